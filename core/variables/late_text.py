"""LateTextVariable: a text with the address of an object in it, made when the object exists."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from .base import VariableTracker, find_special

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
PLAIN = (str, int, float, bool, type(None))
WHOLE = re.compile(r"(?:[^%]|%%|(%[sr]))*")
"""A template whose conversions take the text of a value as it is."""


class LateTextVariable(VariableTracker):
    """A string that the traced code may hand on, but not look into: `function` of `parts`."""

    kind = "late_text"

    def __init__(self, function: Any, parts: Sequence[VT]) -> None:
        super().__init__(None)
        self.function = function
        self.parts = tuple(parts)

    def python_type(self) -> type:
        return str

    def truth(self, tx: Tracer) -> bool:
        return True

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        if not issubclass(other.python_type(), str):
            return tx.constant(False) if other.kind == "constant" else None
        if isinstance(other, LateTextVariable) and other.function is self.function in (str, repr):
            mine, theirs = self.parts[0], other.parts[0]
            return mine.equals(tx, theirs) if mine.kind == theirs.kind == "identity" else tx.constant(mine is theirs)
        raise self.refuse("a comparison")

    def hash_key(self, tx: Tracer) -> Hashable:
        raise self.refuse("hashing")

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.function)
        for part in self.parts:
            emit.load(part)
        emit.call(len(self.parts))


def late_text(subject: VT, function: Any) -> VT | None:
    """str() or repr() of what has an address in it: an object that says no more of itself, an id. None for others."""
    if subject.kind == "late_text" and function is str:
        return subject
    if subject.kind == "identity":
        return LateTextVariable(function, [subject])
    cls = subject.python_type()
    plain = find_special(cls, "__repr__") is object.__repr__ and (
        function is repr or find_special(cls, "__str__") is object.__str__
    )
    return LateTextVariable(function, [subject]) if subject.kind == "user_object" and plain else None


def late_parts(function: Any, parts: Sequence[VT]) -> VT | None:
    """A text made of others with a late one among them; None where there is none, or more than texts."""
    late = any(part.kind == "late_text" for part in parts)
    fits = all(part.kind == "late_text" or part.kind == "constant" and part.python_type() is str for part in parts)
    return LateTextVariable(function, parts) if late and fits else None


def late_percent(function: Any, template: VT, values: Sequence[VT]) -> VT | None:
    """template % values where a value has a late text, and the template asks for no more than the texts."""
    text = template.as_constant()
    late = [late_text(value, str) is not None for value in values]
    if not any(late) or not WHOLE.fullmatch(text) or text.replace("%%", "").count("%") != len(values):
        return None
    known = all(flag or value.kind == "constant" and value.python_type() in PLAIN for flag, value in zip(late, values))
    return LateTextVariable(function, [template, *values]) if known else None
