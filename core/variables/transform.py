"""TransformVariable: a function under a transform of torch.func, made but not yet called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class TransformVariable(VariableTracker):
    """`api(function, **options)`: what torch.func.grad, vmap, ... return."""

    kind = "function"

    def __init__(
        self, name: str, api: Callable[..., Any], function: VT, options: dict[str, VT], source: Any = None
    ) -> None:
        super().__init__(source)
        self.name = name
        self.api = api
        self.function = function
        self.options = options

    def python_type(self) -> type:
        return type(lambda: 0)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return tx.call_function(self, args, kwargs)

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.api)
        emit.load(self.function)
        for value in self.options.values():
            emit.load(value)
        emit.call_keywords(tuple(self.options), 1 + len(self.options))


class PullbackVariable(VariableTracker):
    """The second result of torch.func.vjp: the function from cotangents to gradients."""

    kind = "pullback"

    def __init__(self, apply: Callable[[Any, Sequence[VT]], VT]) -> None:
        super().__init__(None)
        self.apply = apply

    def python_type(self) -> type:
        return type(lambda: 0)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if kwargs:
            raise self.refuse("a call with keywords")
        return self.apply(tx, args)
