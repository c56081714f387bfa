"""ContextVariableVariable: a contextvars.ContextVar from outside, read, set and reset by the traced code."""

from __future__ import annotations

import contextvars
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..guards.checks import Is
from ..guards.source import CallSource, ConstSource
from ..variables.base import BuiltinMethodVariable, KnownVariable, VariableTracker
from .side_effects import NotGivenBack

if TYPE_CHECKING:
    from ..variables.protocols import Emitter, Tracer

VT = VariableTracker
NOTHING = object()
READ = contextvars.ContextVar.get
READ_IF_SET = operator.methodcaller("get", NOTHING)


class ContextVariableVariable(KnownVariable):
    """The variable. current: what the traced code has set; None while it has what it had before."""

    kind = "context_variable"
    mutable = True

    def __init__(self, value: Any, source: Any = None) -> None:
        super().__init__(value, source)
        self.current: VT | None = None

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("get", "set", "reset"):
            return BuiltinMethodVariable(self, name)
        if name == "name":
            return tx.constant(self.value.name)
        return super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if kwargs or len(args) > 1 or name != "get" and not args:
            raise self.refuse(f"calling {name}() with these arguments")
        if name == "get":
            return self._read(tx, args)
        if name == "set":
            return self._replace(tx, args[0])
        token = args[0].realize(tx)
        if name != "reset" or not isinstance(token, TokenVariable) or token.variable is not self or token.used:
            raise self.refuse(f"calling {name}()")
        token.used = True
        self._replace(tx, token.before)
        return tx.constant(None)

    def _replace(self, tx: Tracer, value: VT | None) -> VT:
        token = TokenVariable(self, self.current, tx.trace.step)  # type: ignore[attr-defined]
        tx.side_effects.mutated(self)
        self.current = value
        return token

    def _read(self, tx: Tracer, default: Sequence[VT]) -> VT:
        if self.current is not None:
            return self.current.realize(tx)
        source = self.source if self.source is not None else ConstSource(self.value)
        try:
            value = (READ_IF_SET if default else READ)(self.value)
        except LookupError:
            value = NOTHING
        source = CallSource(source, READ_IF_SET if default or value is NOTHING else READ)
        if value is not NOTHING:
            return tx.wrap(value, source)
        tx.guard(source, Is(NOTHING))
        if default:
            return default[0].realize(tx)
        tx.raise_exception(LookupError, self.value)

    def write_back(self, emit: Emitter) -> None:
        if self.current is None:
            return
        emit.load(self)
        emit.call_method("set", [self.current])
        emit.pop_top()


class TokenVariable(VariableTracker):
    """What set() gives, for reset(). before: what the traced code had set until then, None for nothing; made_at: the
    step of the root frame that set it."""

    kind = "token"
    mutable = True

    def __init__(self, variable: ContextVariableVariable, before: VT | None, made_at: int) -> None:
        super().__init__(None)
        self.made_at = made_at
        self.variable = variable
        self.before = before
        self.used = False

    def python_type(self) -> type:
        return contextvars.Token

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "var":
            return self.variable
        return super().get_attr(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        what = "the token of a variable of the context is Python's to make"
        raise NotGivenBack(what, self.made_at, remedy="reset the variable before the graph ends")


def from_value(tx: Any, value: Any, source: Any) -> VT:
    """The tracker of a real one."""
    tx.guard(source, Is(value))
    return ContextVariableVariable(value, source)
