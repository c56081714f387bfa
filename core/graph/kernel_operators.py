"""Operators that launch a kernel of the program's: what a graph holds in the place of `kernel[grid](...)`.

Enters: a kernel (an object with `kernel[grid](...)`), the shape of one call of it and which of its tensors it writes
to. Leaves: an operator of torch.library whose schema says so; calling it launches the very kernel object. Autograd
does not see the launch, as in eager: nothing is recorded and no version is counted.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

NAMESPACE = "core_kernels"


class Slot(NamedTuple):
    """An argument of the launch that is operand `index` of the operator."""

    index: int


class Baked(NamedTuple):
    """An argument of the launch that is the same object in each call; `text` tells it apart in another process."""

    value: Any
    text: str | None


class Grids(NamedTuple):
    """How many programs are launched: operands first, first + 1, ... for each value that a grid function may meet.

    names: the parameters by which these are told apart, none where there is one grid. cases: (values of the names, the
    number of dimensions), in the order of their operands.
    """

    names: tuple[str, ...]
    cases: tuple[tuple[tuple[Any, ...], int], ...]


class LaunchShape(NamedTuple):
    """One form of a launch: trees (nested tuples) of Slot and Baked for its arguments, and its grid.

    operands: for each operand its type in a schema, written ones of tensors "Tensor!". on_host: the kernel has hooks,
    functions of the program that are called around a launch.
    """

    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    operands: tuple[str, ...]
    grids: Grids
    on_host: bool = False


_operators: dict[tuple[int, LaunchShape], tuple[Any, Any]] = {}  # (identity of the kernel, form) -> kernel, operator
_taken: set[str] = set()
_library: Any = None


def operator_for(kernel: Any, shape: LaunchShape, name: str, source: str | None) -> Any:
    """The operator of such launches of a kernel; one per kernel object and form.

    Kernels with the same source have the same operator names in each process, for what caches keep of a graph.
    """
    key = (id(kernel), _by_identity(shape))
    known = _operators.get(key)
    if known is None:
        known = _operators[key] = (kernel, _define(kernel, shape, name, source))
    return known[1]


def _by_identity(shape: LaunchShape) -> Any:
    def plain(tree: Any) -> Any:
        if isinstance(tree, Baked):
            return ("baked", id(tree.value))
        return tuple(map(plain, tree)) if type(tree) is tuple else tree

    names, cases = shape.grids
    told_apart = tuple((tuple(map(id, values)), size) for values, size in cases)
    return plain(shape.args), plain(shape.kwargs), shape.operands, names, told_apart, shape.on_host


def _define(kernel: Any, shape: LaunchShape, name: str, source: str | None) -> Any:
    global _library
    if _library is None:
        _library = torch.library.Library(NAMESPACE, "FRAGMENT")
    unique = _unique_name(name, shape, source)
    arguments = ", ".join(_declared(at, kind) for at, kind in enumerate(shape.operands))
    tags = [torch.Tag.cudagraph_unsafe] if shape.on_host and hasattr(torch.Tag, "cudagraph_unsafe") else []
    _library.define(f"{unique}({arguments}) -> ()", tags=tags)
    _library.impl(unique, _launcher(kernel, shape), "CompositeExplicitAutograd")
    _library.impl(unique, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"{NAMESPACE}::{unique}", _writes_nothing_yet, lib=_library)
    return getattr(getattr(torch.ops, NAMESPACE), unique).default


def _declared(at: int, kind: str) -> str:
    declared = f"Tensor(a{at}!)" if kind == "Tensor!" else kind
    return f"{declared} operand_{at}"


def _writes_nothing_yet(*operands: Any) -> None:
    """What a launch does to tensors without data."""


def _unique_name(name: str, shape: LaunchShape, source: str | None) -> str:
    texts: list[str | None] = [source, str(shape.operands), str(shape.grids.cases and shape.grids.names)]
    texts += [_text(tree) for tree in (shape.args, shape.kwargs, shape.grids.cases)]
    if any(text is None for text in texts):
        known = None  # another process may not find the same kernel under the name
    else:
        known = f"{name}_{hashlib.sha256(repr(texts).encode()).hexdigest()[:16]}"
    if known is None or known in _taken:  # another kernel object has this source: its globals may differ
        known = f"{name}_{uuid.uuid4().hex}"
    _taken.add(known)
    return known


def _text(tree: Any) -> str | None:
    if isinstance(tree, Baked):
        return tree.text
    if isinstance(tree, Slot):
        return f"operand {tree.index}"
    if type(tree) is tuple:
        parts = [_text(part) for part in tree]
        return None if None in parts else str(parts)
    return repr(tree) if type(tree) in (int, str, bool, float, type(None)) else None


def _launcher(kernel: Any, shape: LaunchShape) -> Callable[..., None]:
    """The Python function behind the operator: it puts the operands in the places of a call of the kernel."""
    known: dict[str, Any] = {"kernel": kernel}

    def spell(tree: Any) -> str:
        if isinstance(tree, Slot):
            return f"operand_{tree.index}"
        if isinstance(tree, Baked):
            known[f"known_{len(known)}"] = tree.value
            return f"known_{len(known) - 1}"
        return "(" + "".join(f"{spell(part)}, " for part in tree) + ")"

    arguments = [spell(tree) for tree in shape.args]
    arguments += [f"**{{{key!r}: {spell(tree)}}}" for key, tree in shape.kwargs]
    operands = ", ".join(f"operand_{at}" for at in range(len(shape.operands)))
    first = len(shape.operands) - sum(size for _, size in shape.grids.cases)
    lines = []
    if shape.grids.names:
        table = []
        for values, size in shape.grids.cases:
            table.append((values, _numbers(first, size)))
            first += size
        known["chosen_grid"] = _chosen_grid
        known["names"], known["cases"] = shape.grids.names, tuple(values for values, _ in table)
        lines.append(f"    grid = chosen_grid(names, cases, ({''.join(numbers + ', ' for _, numbers in table)}))")
    else:
        lines.append(f"    grid = {_numbers(first, shape.grids.cases[0][1])}")
    source = "\n".join([f"def launch({operands}):", *lines, f"    kernel[grid]({', '.join(arguments)})"])
    exec(compile(source, "<launch of a kernel>", "exec"), known)
    return known["launch"]


def _numbers(first: int, size: int) -> str:
    return "(" + "".join(f"operand_{at}, " for at in range(first, first + size)) + ")"


def _chosen_grid(names: Sequence[str], cases: Sequence[tuple[Any, ...]], grids: Sequence[tuple[int, ...]]) -> Any:
    """The grid as a function, as tuned kernels ask for it: each of their configurations has numbers of its own."""

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        values = tuple(meta[name] for name in names)
        if values not in cases:
            raise RuntimeError(
                f"a kernel was launched with {dict(zip(names, values))}, which none of its configurations had when the "
                "function that launches it was compiled; call core.reset() after changing a kernel's configurations"
            )
        return grids[cases.index(values)]

    return grid
