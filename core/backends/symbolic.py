"""Sizes for backends that can't take any size: graphs without symbols, and symbols with an upper bound.

Both are conditions on the calls that an entry serves: they become guards, and another size is another entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..graph.captured import CapturedGraph
from ..graph.symbols import input_numbers
from ..graph.tree import map_tree

GROWTH = 8
"""A size without a bound of its own may grow by this factor before another entry is made, rounded up to a power of two:
three doublings, so that entries for growing sizes stay few, and an engine built for the largest is not absurd."""

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def size_ranges(captured: CapturedGraph) -> Mapping[str, tuple[int, int | None, int]]:
    """Name of a symbol of the inputs -> (least, largest or None, the size of this call)."""
    found: dict[str, tuple[int, int | None, int]] = {}
    for _, value in _open_numbers(captured):
        symbol = str(value.node.expr)
        if symbol not in found:
            low, high = torch_compat.bounds_of(value)
            bound = int(high) if high.is_Integer else None
            found[symbol] = (int(low) if low.is_Integer else 0, bound, int(torch_compat.hint_of(value)))
    return found


def _open_numbers(captured: CapturedGraph) -> list[tuple[Any, Any]]:
    """Sizes and numbers of the inputs that are symbols with a value in this call."""
    if captured.shape_env is None:
        return []
    return [
        (place, value)
        for place, value in input_numbers(captured.inputs)
        if isinstance(value, torch.SymInt)
        and value.node.expr.is_Symbol
        and torch_compat.has_number(captured.shape_env, value.node.expr)
    ]


def specialise(captured: CapturedGraph) -> None:
    """Assume of every symbol that it is what it is in this call."""
    if captured.shape_env is None:
        return
    for _, value in input_numbers(captured.inputs):
        if isinstance(value, torch.SymInt) and _known(captured, value):
            int(value)
        elif isinstance(value, torch.SymFloat) and _known(captured, value):
            float(value)


def _known(captured: CapturedGraph, value: Any) -> bool:
    return all(torch_compat.has_number(captured.shape_env, symbol) for symbol in value.node.expr.free_symbols)


def bound_sizes(captured: CapturedGraph) -> None:
    """Assume an upper bound of every size that has none."""
    for place, value in _open_numbers(captured):
        _, high = torch_compat.bounds_of(value)
        if place.kind == "size" and not high.is_Integer:
            example = max(int(torch_compat.hint_of(value)), 1)
            bool(value <= 1 << (example * GROWTH - 1).bit_length())


def with_plain_sizes(module: fx.GraphModule, fake_mode: Any) -> fx.GraphModule:
    """The same module, its values without symbols that have become numbers."""
    for node in module.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = map_tree(lambda leaf: _plain(leaf, fake_mode), node.meta["val"])
    return module


def plain_fakes(fakes: Any, fake_mode: Any) -> list[Any]:
    """Fakes without symbols that have become numbers."""
    return [_plain(fake, fake_mode) for fake in fakes]


def _plain(value: Any, fake_mode: Any) -> Any:
    if isinstance(value, _SYMBOLIC):
        expr = value.node.expr
        return type(value.node.pytype(0))(expr) if not expr.free_symbols else value
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    numbers = (*value.shape, *value.stride())
    if all(isinstance(number, int) for number in numbers):
        return value
    shape, stride = ([_plain(number, fake_mode) for number in item] for item in (value.shape, value.stride()))
    with fake_mode, torch.no_grad():
        made = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
    if value.requires_grad:
        made.requires_grad_()
    return made
