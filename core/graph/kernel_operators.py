"""Operators that launch a kernel of the program's: what a graph holds in the place of `kernel[grid](...)`.

Enters: a kernel (an object with `kernel[grid](...)`), the shape of one call of it and which of its tensors it writes
to. Leaves: an operator of torch.library whose schema says so; calling it launches the very kernel object. Autograd
does not see the launch, as in eager: nothing is recorded and no version is counted.
"""

from __future__ import annotations

import hashlib
import inspect
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


_operators: dict[tuple[int, str], tuple[Any, Any]] = {}  # (identity of the kernel, form as text) -> kernel, operator
_taken: set[str] = set()
_library: Any = None


def operator_for(kernel: Any, function: Any, shape: LaunchShape) -> Any:
    """The operator of such launches of a kernel, made of a Python function; one per kernel object and form.

    Kernels with the same source have the same operator names in each process, for what caches keep of a graph.
    """
    unnamed: list[Any] = []
    form = _text(shape, unnamed)
    known = _operators.get((id(kernel), form))
    if known is None:
        name = _unique_name(function, None if unnamed else form)
        known = _operators[id(kernel), form] = (kernel, _define(kernel, shape, name))
    return known[1]


def _define(kernel: Any, shape: LaunchShape, name: str) -> Any:
    global _library
    if _library is None:
        _library = torch.library.Library(NAMESPACE, "FRAGMENT")
    arguments = ", ".join(_declared(at, kind) for at, kind in enumerate(shape.operands))
    tags = [torch.Tag.cudagraph_unsafe] if shape.on_host and hasattr(torch.Tag, "cudagraph_unsafe") else []
    _library.define(f"{name}({arguments}) -> ()", tags=tags)
    _library.impl(name, _launcher(kernel, shape), "CompositeExplicitAutograd")
    _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", _writes_nothing_yet, lib=_library)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _declared(at: int, kind: str) -> str:
    declared = f"Tensor(a{at}!)" if kind == "Tensor!" else kind
    return f"{declared} operand_{at}"


def _writes_nothing_yet(*operands: Any) -> None:
    """What a launch does to tensors without data."""


def _unique_name(function: Any, form: str | None) -> str:
    """A name for launches of a form; None for one that another process may not find again."""
    try:
        source = f"{function.__module__} {function.__qualname__} {inspect.getsource(function)} {form}"
    except (OSError, TypeError):
        form = None
    name = f"{function.__name__}_{uuid.uuid4().hex}"
    if form is not None:
        known = f"{function.__name__}_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
        name = name if known in _taken else known  # another kernel object has this source: its globals may differ
    _taken.add(name)
    return name


def _text(tree: Any, unnamed: list[Any]) -> str:
    """A form, or a part of one, as text; objects that have none go to `unnamed`."""
    if isinstance(tree, Baked) and tree.text is not None:
        return tree.text
    if isinstance(tree, Slot):
        return f"operand {tree.index}"
    if isinstance(tree, tuple) and not isinstance(tree, Baked):
        return f"({', '.join(_text(part, unnamed) for part in tree)})"
    if type(tree) in (int, float, bool, str, type(None)):
        return repr(tree)
    unnamed.append(tree)
    return f"<{id(tree.value if isinstance(tree, Baked) else tree)}>"


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
