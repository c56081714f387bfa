"""CachedFunctionVariable: a function under functools.lru_cache or functools.cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ..errors import Unsupported
from ..guards.checks import Is
from ..guards.held import Held
from ..guards.source import CallSource, ConstSource
from ..variables.base import KnownVariable, VariableTracker
from ..variables.function import MethodVariable
from .reached_state import is_out_of_date, method_may_write
from .special_calls import defer_call

VT = VariableTracker


class Asked:
    """A call with known arguments, as a function of what is called. Equal where the cache may take one for the other
    and no more: by types and values."""

    __name__ = "called"

    def __init__(self, receiver: Held | None, values: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.receiver = receiver
        self.values = values
        self.keywords = keywords

    def parts(self) -> tuple[Any, ...]:
        return (*self.values, *self.keywords.values())

    def __call__(self, fn: Any) -> Any:
        if self.receiver is None:
            return fn(*self.values, **self.keywords)
        return fn(self.receiver.get(), *self.values, **self.keywords)

    def _content(self) -> tuple[Any, ...]:
        return (self.receiver, tuple(map(type, self.parts())), self.values, tuple(self.keywords.items()))

    def __eq__(self, other: object) -> bool:
        return type(other) is Asked and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())


class CachedFunctionVariable(KnownVariable):
    """The wrapper that keeps results. With known arguments it is called for real while tracing, and again by the guards
    of each call: as in eager, the function runs once more when the cache was cleared or has let go of the result.
    """

    kind = "cached_function"

    def bind(self, receiver: VT) -> VT:
        """The wrapper as a method."""
        return MethodVariable(self, receiver)

    def get_attr(self, tx: Any, name: str) -> VT:
        if name in ("__wrapped__", "__name__", "__qualname__", "__doc__", "__module__"):
            return tx.wrap(getattr(self.value, name), None, constant=True)
        return super().get_attr(tx, name)

    def call(self, tx: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        values = [arg.look_inside(tx) for arg in args]
        keywords = {key: value.look_inside(tx) for key, value in kwargs.items()}
        if values and issubclass(values[0].python_type(), logging.Logger):
            return defer_call(tx, self.value, values, keywords)
        receiver = self._receiver(tx, values[0]) if values else None
        if receiver is not None:
            del values[0]
        if not all(value.is_constant() for value in (*values, *keywords.values())):
            raise Unsupported(
                f"{self.value.__qualname__}() keeps results by arguments that only a run can tell",
                remedy="call it outside the compiled function, or remove the cache decorator",
            )
        if is_out_of_date(tx, getattr(self.value, "__wrapped__", None)):
            raise Unsupported(
                f"{self.value.__qualname__}() keeps results, and would run ahead of what the function has changed",
                remedy="keep what changes out of the cached function, or call it outside the compiled function",
            )
        asked = Asked(
            receiver,
            tuple(value.as_constant() for value in values),
            {key: value.as_constant() for key, value in keywords.items()},
        )
        result = tx.answer(asked, [self.value], {})
        tx.trace.kept.append(result)
        if any(tx.is_unreal(part) or tx.is_unreal(type(part)) for part in asked.parts()):
            return tx.wrap(result, None, constant=True)
        source = CallSource(ConstSource(self.value, self.value.__qualname__), asked)
        return tx.wrap(result, tx.trace.asked.setdefault((id(self.value), asked), source))

    def _receiver(self, tx: Any, first: VT) -> Held | None:
        """The object of a method, where the cache tells it from others by its identity, and where the method run now
        sees and leaves what it would in its turn."""
        if first.kind not in ("user_object", "module") or first.source is None or not tx.side_effects.empty:
            return None
        real = first.as_python_object()
        cls = type(real)
        by_identity = (cls.__hash__, cls.__eq__) == (object.__hash__, object.__eq__)
        if not by_identity or method_may_write(getattr(self.value, "__wrapped__", None), cls):
            return None
        tx.guard(first.source, Is(real))
        return Held(real)

    def reconstruct(self, emit: Any) -> None:
        emit.load_global_object(self.value)
