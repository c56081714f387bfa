"""ImmutableVariable: an object of the standard library that never changes and whose methods depend on nothing else."""

from __future__ import annotations

import datetime
import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import Is, TypeIs
from .base import OUTSIDE, BuiltinMethodVariable, VariableTracker
from .literal import from_result, run
from .python_module import OpaqueVariable

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
CLASSES = (re.Pattern, re.Match)
MOMENTS: tuple[type, ...] = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone)
PURE_MAKERS = ("fromordinal", "fromisoformat", "fromisocalendar", "combine")
OF_THE_PROCESS = frozenset("now today utcnow fromtimestamp utcfromtimestamp timestamp astimezone strptime".split())
"""Methods of moments that look at the clock or at the time zone of the process."""


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real pattern or match, guarded by identity."""
    tx.guard(source, Is(value))
    return ImmutableVariable(value, source)


def moment_from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a date or time. One from outside is only handed on: it may be another on each call."""
    if source is None:
        return ImmutableVariable(value)
    tx.guard(source, TypeIs(type(value)))
    remedy = "use it outside the compiled function"
    return OpaqueVariable(value, f"a {type(value).__name__} made outside is not traced", remedy, source)


def make_moment(tx: Tracer, cls: type, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """cls(*args, **kwargs) of a class of moments, from known parts."""
    values = {key: value.look_inside(tx) for key, value in [*enumerate(args), *kwargs.items()]}
    if not all(value.is_constant() for value in values.values()):
        raise Unsupported(f"a {cls.__name__} of parts that only a run can tell is not traced", remedy=OUTSIDE)
    known = {key: value.as_constant() for key, value in values.items()}
    words = {key: value for key, value in known.items() if isinstance(key, str)}
    made = run(tx, cls, [value for key, value in known.items() if key not in words], words)
    return tx.wrap(made, None, constant=True)


class ImmutableVariable(VariableTracker):
    """A compiled pattern, a match or a moment: its methods run for real, on known arguments."""

    kind = "immutable"

    def __init__(self, value: Any, source: Any = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def as_constant(self) -> Any:
        return self.value

    def as_python_object(self) -> Any:
        return self.value

    def hash_key(self, tx: Tracer) -> Hashable:
        return self.value

    def truth(self, tx: Tracer) -> bool:
        return bool(self.value)

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        return tx.constant(self.value == other.value) if isinstance(other, ImmutableVariable) else None

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "__class__":
            return tx.wrap(type(self.value), None, constant=True)
        found = run(tx, getattr, [self.value, name])
        return BuiltinMethodVariable(self, name) if callable(found) else from_result(tx, found)

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name in ("sub", "subn") and len(args) >= 2 and args[0].realize(tx).kind in ("function", "method"):
            return self._replaced(tx, name, args, kwargs)
        if isinstance(self.value, MOMENTS) and name in OF_THE_PROCESS:
            raise self.refuse(f"{name}()", remedy=OUTSIDE)
        values = [_literal(arg.look_inside(tx)) for arg in args]
        keywords = {key: _literal(value.look_inside(tx)) for key, value in kwargs.items()}
        for value in (*values, *keywords.values()):
            if not value.is_constant() or callable(value.as_constant()):
                raise self.refuse(f"{name}() with {value.describe()}", remedy="pass strings and numbers")
        real = {key: value.as_constant() for key, value in keywords.items()}
        method = run(tx, getattr, [self.value, name])
        result = run(tx, method, [value.as_constant() for value in values], real)
        return from_result(tx, list(result) if name == "finditer" else result)

    def _replaced(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """sub() with a function, which is asked for each match in turn."""
        function, text = args[0].realize(tx), args[1].look_inside(tx).as_constant()
        rest = [*args[2:], *kwargs.values()]
        limit = rest[0].look_inside(tx).as_constant() if rest else 0
        parts, end, count = [], 0, 0
        for match in self.value.finditer(text):
            if limit and count >= limit:
                break
            new = tx.call_function(function, [tx.wrap(match, None, constant=True)], {}).realize(tx)
            if not (new.is_constant() and isinstance(new.as_constant(), type(text))):
                raise self.refuse(f"{name}() with a function that gives {new.describe()}")
            parts += [text[end : match.start()], new.as_constant()]
            end, count = match.end(), count + 1
        made = tx.constant(type(text)().join([*parts, text[end:]]))
        return made if name == "sub" else tx.new_tuple([made, tx.constant(count)])

    def get_item(self, tx: Tracer, key: VT) -> VT:
        return self.call_method(tx, "__getitem__", [key], {})

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_const(self.value)


def _literal(value: VT) -> VT:
    """Of an object whose class extends a literal's, the literal: C code reads nothing else."""
    payload: VT | None = getattr(value, "payload", None)
    return payload if payload is not None and payload.kind == "constant" else value
