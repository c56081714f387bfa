"""Weak references: of objects from outside, whether they live is guarded, and nothing here keeps them alive."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..guards.checks import TypeIs
from ..guards.source import CallSource, LocalSource
from .base import BuiltinMethodVariable, VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


def referent(reference: weakref.ref[Any]) -> Any:
    """The object, None when it is gone."""
    return reference()


class WeakReferenceVariable(VariableTracker):
    """A `weakref.ref`. value: the real one; target: what one made by the traced code refers to."""

    kind = "weak_reference"
    mutable = True

    def __init__(self, value: Any = None, target: VT | None = None, source: Any = None) -> None:
        super().__init__(source)
        self.value = value
        self.target = target

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "__call__":
            return BuiltinMethodVariable(self, name)
        if name == "__callback__" and self.value is None:
            return tx.constant(None)
        if name == "__class__":
            return tx.wrap(weakref.ref, None, constant=True)
        raise self.refuse(f"reading attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name == "__call__":
            return self.call(tx, args, kwargs)
        raise self.refuse(f"calling {name!r}")

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if args or kwargs:
            tx.raise_exception(TypeError, "a weak reference is called without arguments")
        if self.target is not None:
            held = isinstance(self.target.source, LocalSource) or self.target.source is None
            if not tx.is_in_a_variable(self.target) and (held or not tx.side_effects.empty):
                raise self.refuse("a call when no variable holds the object", "keep the object in a variable")
            return self.target
        if self.source is None:
            raise self.refuse("a call", "reach the reference through an argument or attribute")
        return tx.wrap(self.value(), CallSource(self.source, referent))

    def reconstruct(self, emit: Emitter) -> None:
        if self.target is None:
            emit.load_global_object(self.value)
            return
        emit.push_null()
        emit.load_global_object(weakref.ref)
        emit.load(self.target)
        emit.call(1)


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real reference."""
    tx.guard(source, TypeIs(weakref.ref))
    return WeakReferenceVariable(value, source=source)
