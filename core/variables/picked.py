"""Indexing a tensor by symbolic ints: `select`, which takes a symbol where torch's own indexing fixes the number."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..torch_compat import tracing
from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


def picked(tx: Tracer, tensor: Any, key: VT) -> VT | None:
    """tensor[key] where an int of the key is symbolic and in range; None where torch's own indexing has to answer."""
    parts = [part.realize(tx) for part in key.unpack(tx)] if key.kind == "tuple" else [key]
    if not any(_is_symbol(part) for part in parts):
        return None
    dims = _dims(parts, tensor.fake.ndim)
    if dims is None or not all(_in_range(tx, tensor, part, dim) for dim, part in dims.items()):
        return None
    return _applied(tx, tensor, parts)


def _applied(tx: Tracer, tensor: Any, parts: Sequence[VT]) -> VT:
    """The parts of a key from left to right, as torch applies them: views and their gradients come in that order."""
    hidden = tensor.fake.ndim - sum(map(_width, parts))
    whole = tx.call_function(tx.wrap(slice, None, constant=True), [tx.constant(None)], {})
    position = 0
    for part in parts:
        if _is_symbol(part):
            tensor = tx.graph_method("select", [tensor, tx.constant(position), part], {})
        elif _is_ellipsis(part):
            position += hidden
        else:
            if not _is_whole(part):
                tensor = tx.graph_call(operator.getitem, [tensor, tx.new_tuple([whole] * position + [part])], {})
            position += part.kind == "slice" or part.as_constant() is None
    return tensor  # type: ignore[no-any-return]


def _is_symbol(part: VT) -> bool:
    known = part.kind == "symbolic" and part.python_type() is int
    return known and not tracing.depends_on_data(part.symbol)  # type: ignore[attr-defined]


def _is_whole(part: VT) -> bool:
    ends = part.parts if part.kind == "slice" else [part]  # type: ignore[attr-defined]
    return part.kind == "slice" and all(end.is_constant() and end.as_constant() is None for end in ends)


def _dims(parts: Sequence[VT], ndim: int) -> dict[int, VT] | None:
    """The dimension that each symbolic int picks from; None beside a part that is no int, slice, None or Ellipsis."""
    dims: dict[int, VT] = {}
    taken = sum(_width(part) for part in parts)
    if taken > ndim or any(_width(part) < 0 for part in parts):
        return None
    dim = 0
    for part in parts:
        if _is_symbol(part):
            dims[dim] = part
        dim += ndim - taken if _is_ellipsis(part) else _width(part)
    return dims if sum(map(_is_ellipsis, parts)) < 2 else None


def _is_ellipsis(part: VT) -> bool:
    return part.kind == "constant" and part.as_constant() is Ellipsis


def _width(part: VT) -> int:
    """How many dimensions a part of a key takes up; far below 0 for a part that is not of these kinds."""
    if _is_symbol(part) or part.kind == "slice":
        return 1
    if part.kind != "constant":
        return -(1 << 20)
    value = part.as_constant()
    if value is None or value is Ellipsis:
        return 0
    return 1 if type(value) is int else -(1 << 20)


def _in_range(tx: Tracer, tensor: Any, index: VT, dim: int) -> bool:
    # both are guarded: out of range the error is that of torch's own indexing
    size = tx.graph_method("size", [tensor, tx.constant(dim)], {})
    below = tx.truth(tx.binary(operator.lt, index, size))
    return below and tx.truth(tx.binary(operator.ge, index, tx.unary(operator.neg, size)))
