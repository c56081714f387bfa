"""Settings of torch that a program switches inside a graph: which kernels attention may use, the default dtype."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import UserLine

Setter = Callable[[Any], None]


@dataclass(frozen=True)
class Switched:
    """A setting that is not as it was before the graph: what sets it, its present state, and the one before."""

    apply: Setter
    mode: Any
    before: Any


def switch(builder: Any, apply: Setter, mode: Any, before: Any, line: UserLine | None) -> None:
    """apply(mode), here and in the graph; the builder puts the first state back when the graph ends."""
    if mode == before:
        return
    builder._toggle(apply, (mode,), line)
    apply(mode)
    for key, _, _ in builder._undo:
        if isinstance(key, Switched) and key.apply is apply:
            before = key.before  # what it was before the graph, not before this switch
            builder._undo = [entry for entry in builder._undo if entry[0] is not key]
            break
    if mode != before:
        first = before
        builder._push_undo(
            Switched(apply, mode, first), lambda: apply(first), lambda: builder._toggle(apply, (first,), None)
        )


def switched(builder: Any) -> list[Switched]:
    """The flags that are not as they were before the graph."""
    return [key for key, _, _ in builder._undo if isinstance(key, Switched)]
