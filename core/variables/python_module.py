"""Trackers of imported modules and of objects that tracing only passes around."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import MissingKey
from ..guards.source import AttrSource, ConstSource, DictItemSource, InstanceDictSource, ModuleSource
from .base import VariableTracker
from .literal import is_literal

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class PythonModuleVariable(VariableTracker):
    """An imported module."""

    kind = "python_module"

    def __init__(self, module: types.ModuleType, source: Any = None) -> None:
        super().__init__(source)
        self.module = module
        self.written: dict[str, VT] = {}

    def python_type(self) -> type:
        return types.ModuleType

    def as_python_object(self) -> Any:
        return self.module

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in self.written:
            return self.written[name].realize(tx)
        stored, value = tx.side_effects.global_value(self.module.__dict__, name)
        if value is not None:
            return value.realize(tx)
        if stored:
            tx.raise_exception(AttributeError, f"module '{self.module.__name__}' has no attribute '{name}'")
        if name not in self.module.__dict__:
            tx.guard(InstanceDictSource(self._origin()), MissingKey(name))
        if not hasattr(self.module, name):
            tx.raise_exception(AttributeError, f"module '{self.module.__name__}' has no attribute '{name}'")
        if name not in self.module.__dict__:  # a property of the module's class, or a module-level __getattr__
            found = getattr(self.module, name)
            if is_literal(found):
                return tx.wrap(found, AttrSource(self._origin(), name))
            return tx.wrap(found, None, constant=True)
        return tx.wrap(self.module.__dict__[name], DictItemSource(InstanceDictSource(self._origin()), name))

    def _origin(self) -> Any:
        """An imported module is the same wherever it was read from, once that read is guarded."""
        if sys.modules.get(self.module.__name__) is self.module:
            return ModuleSource(self.module.__name__)
        return self.source if self.source is not None else ConstSource(self.module)

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if type(self.module) is types.ModuleType:  # attributes and globals of the module's code are the same thing
            tx.side_effects.store_global(self.module.__dict__, InstanceDictSource(self._origin()), name, value)
            return
        tx.side_effects.mutated(self)
        self.written[name] = value

    def write_back(self, emit: Emitter) -> None:
        for name, value in self.written.items():
            emit.load(value)
            emit.load(self)
            emit.store_attr(name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.module)


class OpaqueVariable(VariableTracker):
    """An object that tracing does not look into. Calling it breaks the graph: `reason` and `remedy` say why."""

    kind = "opaque"
    mutable = True

    def __init__(self, value: Any, reason: str, remedy: str = "", source: Any = None) -> None:
        super().__init__(source)
        self.value = value
        self.reason = reason
        self.remedy = remedy

    def python_type(self) -> type:
        return type(self.value)

    def as_python_object(self) -> Any:
        return self.value

    def refuse(self, operation: str, remedy: str = "") -> Unsupported:
        return super().refuse(operation, remedy or self.remedy)

    def call(self, tx: Tracer, args: Any, kwargs: Any) -> VT:
        raise Unsupported(self.reason, remedy=self.remedy)

    def iterate(self, tx: Tracer) -> VT:
        if not isinstance(self.value, Iterator):
            return super().iterate(tx)
        raise Unsupported(self.reason, remedy=self.remedy)

    def next_item(self, tx: Tracer) -> VT | None:
        raise Unsupported(self.reason, remedy=self.remedy)

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        if type(self.value).__eq__ is not object.__eq__:
            raise Unsupported(self.reason, remedy=self.remedy)
        return None

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("__name__", "__qualname__", "__module__", "__doc__") and hasattr(self.value, name):
            return tx.constant(getattr(self.value, name))
        return super().get_attr(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.value)


class UnguardedVariable(OpaqueVariable):
    """A container whose items no guard reaches: it may be handed on, what depends on its items breaks the graph."""

    kind = "unguarded"

    def as_python_object(self) -> Any:
        raise Unsupported(self.reason, remedy=self.remedy)
