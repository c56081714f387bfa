"""UnreadVariable: a literal from outside, or a text made of such, whose value the traced code has not asked for.

Until it is read only its type is guarded, and what passes it on takes it from where it is: one entry serves a program
that keeps a list of losses, or writes each into a log. Reading the value guards it, as for any other literal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .base import VariableTracker
from .constant import ConstantVariable
from .late_text import late_parts, late_percent
from .literal import FOLD_ERRORS

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

WRITTEN = (str, int, float, bool, complex, bytes)
"""Types whose text is made by C code, of the value alone."""
PICKY = re.compile(r"c$|c\}|%[^a-zA-Z%]*[c*]|:[^}]*\{")
"""In a format: a number as the character it is the code of, and a width among the values. Not every value will do."""


class UnreadVariable(ConstantVariable):
    """A literal whose value is part of the entry from the first look at it on. `on_read` adds the guard."""

    def __init__(self, value: Any, source: Any, on_read: Callable[[], None]) -> None:
        VariableTracker.__init__(self, source)
        self._real = value
        self._on_read: Callable[[], None] | None = on_read

    @property
    def unread(self) -> bool:  # type: ignore[override]
        """Whether nothing depends on the value yet."""
        return self._on_read is not None

    @property
    def value(self) -> Any:  # type: ignore[override]
        """The value, which the entry depends on from here on."""
        if self._on_read is not None:
            on_read, self._on_read = self._on_read, None
            on_read()
        return self._real

    def python_type(self) -> type:
        return type(self._real)

    def is_constant(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.source.name()} ({type(self._real).__name__})" if self.unread else super().describe()


class UnreadTextVariable(ConstantVariable):
    """A string made by `function` of values that are unread, or known to a run alone; a look at it fixes them all."""

    def __init__(self, function: Callable[..., str], parts: Sequence[VT], tx: Tracer) -> None:
        VariableTracker.__init__(self, None)
        self._function = function
        self._parts = parts
        self._tx = tx
        self._text: str | None = None

    @property
    def unread(self) -> bool:  # type: ignore[override]
        """Whether nothing depends on the text yet."""
        return self._text is None and any(is_open(part) for part in self._parts)

    @property
    def value(self) -> Any:  # type: ignore[override]
        """The text, which the entry depends on from here on."""
        if self._text is None:
            known = [part.specialize(self._tx) if part.kind == "symbolic" else part for part in self._parts]  # type: ignore[attr-defined]
            self._text = self._function(*(part.as_constant() for part in known))
        return self._text

    def is_made_of_any_value(self) -> bool:
        """Whether the types of the parts settle that there is a text: a format may be wrong for them."""
        values = [_example(part) for part in self._parts]
        template = {format: values[-1], str.format: values[0], percent: values[0]}.get(self._function, "")
        if PICKY.search(template):
            return False
        try:
            self._function(*values)
        except FOLD_ERRORS:
            return False
        return True

    def python_type(self) -> type:
        return str

    def is_constant(self) -> bool:
        return True

    def describe(self) -> str:
        return "a text" if self.unread else super().describe()

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self._function)
        for part in self._parts:
            emit.load(part)
        emit.call(len(self._parts))


def _example(part: VT) -> Any:
    """A value of the part's type, without a look at its own where it is not part of the entry."""
    if is_open(part):
        return part.python_type()(1)
    return part.as_constant()


def joined(*parts: str) -> str:
    """The parts of a formatted string, in one."""
    return "".join(parts)


def percent(template: str, *values: Any) -> str:
    """template % values."""
    return template % values


def is_open(tracker: VT) -> bool:
    """True for a number or text that is not part of the entry yet."""
    if tracker.kind == "symbolic":
        return tracker.python_type() in (int, float)
    return getattr(tracker, "unread", False)


def text_later(tx: Tracer, function: Callable[..., str], parts: Sequence[VT]) -> VT | None:
    """function(*parts) as an unread text; None where all parts are part of the entry, or one's text runs other code."""
    parts = [part.realize(tx) for part in parts]
    if not any(is_open(part) for part in parts):
        return None
    if not all(is_open(part) or part.kind == "constant" for part in parts):
        return None
    if any(part.python_type() not in WRITTEN for part in parts):
        return None
    made = UnreadTextVariable(function, parts, tx)
    return made if made.is_made_of_any_value() else None


def sum_of_texts(tx: Tracer, left: VT, right: VT) -> VT | None:
    """left + right for a string and another object, where it is an unread text."""
    if right.python_type() is not str:
        return None
    return text_later(tx, joined, [left, right]) or late_parts(joined, [left, right])


def percent_later(tx: Tracer, template: VT, operand: VT) -> VT | None:
    """template % operand for a string and any object, where it is an unread text."""
    several = operand.kind == "tuple" and operand.python_type() is tuple
    values = [value.realize(tx) for value in operand.unpack(tx)] if several else [operand]
    return text_later(tx, percent, [template, *values]) or late_percent(percent, template, values)
