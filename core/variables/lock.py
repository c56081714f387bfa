"""LockVariable: a lock from outside. Python takes it, which ends a graph; it is given back when all else is done."""

from __future__ import annotations

import _thread
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..guards.checks import TypeIs
from .base import BuiltinMethodVariable, KnownVariable, VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
CLASSES = (_thread.LockType, _thread.RLock)
TAKES = ("__enter__", "acquire", "acquire_lock")
GIVES = ("__exit__", "release", "release_lock")


class LockVariable(KnownVariable):
    """A lock or a re-entrant lock. What is guarded behind the point where Python took it is read under the lock; what
    the traced code changes is written before it is released."""

    kind = "lock"

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name[:2] != "__" and hasattr(type(self.value), name) or name in ("__enter__", "__exit__"):
            return BuiltinMethodVariable(self, name)
        return super().get_attr(tx, name)

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        return BuiltinMethodVariable(self, name) if name in ("__enter__", "__exit__") else None

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name in TAKES:
            raise self.refuse("taking the lock", "take it outside the compiled function")
        if name not in GIVES:
            raise self.refuse(f"calling {name}()", "ask the lock outside the compiled function")
        tx.side_effects.finally_call(type(self.value).release, [self])
        return tx.constant(None)


def from_value(tx: Any, value: Any, source: Any) -> VT:
    """The tracker of a real lock."""
    tx.guard(source, TypeIs(type(value)))
    return LockVariable(value, source)
