"""BlockVariable: a context manager made in traced code of which only its entering and leaving mean something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import BuiltinMethodVariable, VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


class BlockVariable(VariableTracker):
    """Subclasses say in `call_method` what `__enter__` and `__exit__` do. cls: the manager's class."""

    mutable = True
    cls: type

    def __init__(self) -> None:
        super().__init__(None)

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Any, name: str) -> VT:
        if name in ("__enter__", "__exit__"):
            return BuiltinMethodVariable(self, name)
        return super().get_attr(tx, name)
