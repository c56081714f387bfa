"""IdentityVariable: id(object) or hash(object) of what the traced code made, and the number of the thread."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class IdentityVariable(VariableTracker):
    """An address that only a run can tell; known is which object it belongs to, so it can be compared and be a key."""

    kind = "identity"

    def __init__(self, function: Callable[..., Any], *args: VT) -> None:
        super().__init__(None)
        self.function = function
        self.args = args

    def python_type(self) -> type:
        return int

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_key(self, tx: Tracer) -> Hashable:
        return self

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        if isinstance(other, IdentityVariable) and other.function is self.function:
            same = len(self.args) == len(other.args) and all(a is b for a, b in zip(self.args, other.args))
            return tx.constant(other is self or bool(self.args) and same)
        if issubclass(other.python_type(), (int, float)):
            raise self.refuse("comparing an address with a number", "compare with `is`")
        return None

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.function)
        for arg in self.args:
            emit.load(arg)
        emit.call(len(self.args))
