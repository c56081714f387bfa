"""CompiledFunctionVariable: what core.compile returned for a function, met in the code of another compiled one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _C
from .function import UserFunctionVariable

if TYPE_CHECKING:
    from .protocols import Emitter


class CompiledFunctionVariable(UserFunctionVariable):
    """Traced through, as the function that it compiles: one graph in place of two.

    The identity of the callable is guarded, and with it the function; the function's own parts are reached through it.
    """

    def __init__(self, value: _C.CompiledCallable) -> None:
        super().__init__(value.fn)
        self.callable = value

    def python_type(self) -> type:
        return type(self.callable)

    def as_python_object(self) -> Any:
        return self.callable

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.callable)
