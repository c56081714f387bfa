"""LateTextVariable: str() or repr() of an object whose class names the address in it, made when the object exists."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from .base import VariableTracker, find_special

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class LateTextVariable(VariableTracker):
    """A string that the traced code may hand on, but not look into."""

    kind = "late_text"

    def __init__(self, function: Any, subject: VT) -> None:
        super().__init__(None)
        self.function = function
        self.subject = subject

    def python_type(self) -> type:
        return str

    def truth(self, tx: Tracer) -> bool:
        return True

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        raise self.refuse("a comparison")

    def hash_key(self, tx: Tracer) -> Hashable:
        raise self.refuse("hashing")

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.function)
        emit.load(self.subject)
        emit.call(1)


def late_text(subject: VT, function: Any) -> VT | None:
    """The text of an object whose str() and repr() are those of `object`; None for any other."""
    cls = subject.python_type()
    plain = find_special(cls, "__repr__") is object.__repr__ and (
        function is repr or find_special(cls, "__str__") is object.__str__
    )
    return LateTextVariable(function, subject) if subject.kind == "user_object" and plain else None
