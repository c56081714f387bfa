"""Flags of torch that a program switches inside a graph, such as which kernels attention may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import UserLine

Setter = Callable[[bool], None]


@dataclass(frozen=True)
class Switched:
    """A flag that is not as it was before the graph: what sets it, and its present state."""

    apply: Setter
    mode: bool


def switch(builder: Any, apply: Setter, mode: bool, before: bool, line: UserLine | None) -> None:
    """apply(mode), here and in the graph; the builder puts the first state back when the graph ends."""
    if mode == before:
        return
    builder._toggle(apply, (mode,), line)
    apply(mode)
    if any(flag.apply is apply for flag in switched(builder)):  # two states: it is as it was before the graph
        builder._undo = [entry for entry in builder._undo if entry[0] != Switched(apply, before)]
    else:
        key = Switched(apply, mode)
        builder._push_undo(key, lambda: apply(before), lambda: builder._toggle(apply, (before,), None))


def switched(builder: Any) -> list[Switched]:
    """The flags that are not as they were before the graph."""
    return [key for key, _, _ in builder._undo if isinstance(key, Switched)]
