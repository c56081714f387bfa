"""CachedFunctionVariable: a function under functools.lru_cache or functools.cache."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ..errors import Unsupported
from ..variables.base import KnownVariable, VariableTracker
from ..variables.function import MethodVariable
from .special_calls import defer_call

VT = VariableTracker


class CachedFunctionVariable(KnownVariable):
    """The wrapper that keeps results. With known arguments it is called for real while tracing: eager would call the
    function once and then use the kept result, and so does the compiled code.
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
        if not all(value.is_constant() for value in (*values, *keywords.values())):
            raise Unsupported(
                f"{self.value.__qualname__}() keeps results by arguments that only a run can tell",
                remedy="call it outside the compiled function, or remove the cache decorator",
            )
        result = tx.answer(
            self.value,
            [value.as_constant() for value in values],
            {key: value.as_constant() for key, value in keywords.items()},
        )
        tx.trace.kept.append(result)
        return tx.wrap(result, None, constant=True)

    def reconstruct(self, emit: Any) -> None:
        emit.load_global_object(self.value)
