"""The table from overload names to lowerings.

A lowering is `fn(lowering, node, *args, **kwargs)`: tensors come as `View`, symbolic numbers as `Scalar`, the rest as
recorded; it returns a View, a tuple of View and None, or NotImplemented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lowered = Callable[..., Any]
LOWERINGS: dict[str, Lowered] = {}


def lowers(*names: str) -> Callable[[Lowered], Lowered]:
    """Register a lowering for overloads named as in "aten::add.Tensor" without the "aten::" (or with "prims::")."""

    def register(fn: Lowered) -> Lowered:
        for name in names:
            LOWERINGS[name if "::" in name else f"aten::{name}"] = fn
        return fn

    return register


_by_target: dict[Any, Lowered | None] = {}


def lowering_of(target: Any) -> Lowered | None:
    """The lowering of an overload, None when it is called as it is."""
    try:
        return _by_target[target]
    except KeyError:
        name = target.name() if hasattr(target, "_schema") else ""
        found = _by_target[target] = LOWERINGS.get(name)
        return found
