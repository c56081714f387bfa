"""LoopGraph: the loop IR of one graph, in an order in which it could run.

Enters: nodes from the lowerings. Leaves: the list that the scheduler reads, the outputs and the arguments. This file
must not know ATen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .expr import Index
from .nodes import Extern, ExternResult, Input, Loops, Node, Scalar, View

Item = Loops | Extern


@dataclass
class Argument:
    """One argument of the program: a tensor (`node`), an int (`size`), a float, or something passed on as it is."""

    name: str
    node: Input | None = None
    size: Index | None = None
    is_float: bool = False


@dataclass
class PythonValue:
    """A number computed between kernels: `name = target(*args)`; `size` when it is an int with a known expression."""

    name: str
    path: str
    args: tuple


@dataclass
class LoopGraph:
    """items: Loops and Extern in a valid order. outputs: View, Scalar or constants. bindings: size symbol -> how to
    read it."""

    arguments: list[Argument] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    items: list[Item | PythonValue] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    bindings: dict[str, tuple[str, str]] = field(default_factory=dict)
    callables: dict[str, Any] = field(default_factory=dict)

    def loops(self) -> list[Loops]:
        """The nodes with bodies, in order."""
        return [item for item in self.items if isinstance(item, Loops)]


def leaves(value: Any) -> Iterator[Any]:
    """Views, Scalars and constants of nested arguments."""
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from leaves(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from leaves(v)
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def views_of(extern: Extern) -> Iterator[View]:
    """The tensors that an extern call takes."""
    for leaf in leaves((extern.args, extern.kwargs)):
        if isinstance(leaf, View):
            yield leaf


__all__ = [
    "Argument",
    "Extern",
    "ExternResult",
    "Input",
    "Item",
    "LoopGraph",
    "Loops",
    "Node",
    "PythonValue",
    "Scalar",
    "View",
    "leaves",
    "views_of",
]
