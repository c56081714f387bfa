"""ModuleVariable: an nn.Module. Parameters, buffers and submodules are found as Module.__getattr__ finds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..guards.checks import Length, MissingKey
from ..guards.source import DictItemSource, InstanceAttrSource
from .base import ObservedException, VariableTracker
from .object import MISSING, UserObjectVariable, find_on_type

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker

# per-instance dicts that Module._call_impl looks at before it takes its short way to forward()
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
REGISTRIES = ("_parameters", "_buffers", "_modules")


class ModuleVariable(UserObjectVariable):
    """An nn.Module."""

    kind = "module"

    def fallback_get_attr(self, tx: Tracer, name: str) -> VT:
        getter, _ = find_on_type(self.cls, "__getattr__")
        if getter is not torch.nn.Module.__getattr__:
            return super().fallback_get_attr(tx, name)
        for registry_name in REGISTRIES:
            found = self._registered(tx, registry_name, name)
            if found is not None:
                return found
        try:
            tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        except ObservedException as raised:
            tx.passed_unseen(raised.value)
            raise

    def _registered(self, tx: Tracer, registry_name: str, name: str) -> VT | None:
        """The parameter, buffer or submodule of this name; its absence is guarded."""
        real = self._real_dict(tx, registry_name)
        if real is None:
            registry = self.own_attribute(tx, registry_name)
            if registry is None or not registry.contains(tx, tx.constant(name)):
                return None
            return registry.get_item(tx, tx.constant(name))
        source = InstanceAttrSource(self.source, registry_name)
        if name in real:
            return tx.wrap(real[name], DictItemSource(source, name))
        tx.guard(source, MissingKey(name))
        return None

    def _real_dict(self, tx: Tracer, name: str) -> dict[str, Any] | None:
        """A dict of the real module, None where the traced code has looked at it as a whole or changed it."""
        if self.value is None or self.source is None or name in self.written:
            return None
        real = self.value.__dict__.get(name)
        return real if isinstance(real, dict) and tx.is_untouched(real) else None

    def truth(self, tx: Tracer) -> bool:
        if find_on_type(self.cls, "__len__")[0] is MISSING and find_on_type(self.cls, "__bool__")[0] is MISSING:
            return True
        return super().truth(tx)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self._takes_short_way(tx):
            try:
                return self.get_attr(tx, "forward").call(tx, args, kwargs)
            except ObservedException as raised:
                tx.passed_unseen(raised.value)
                raise
        return super().call(tx, args, kwargs)

    def _takes_short_way(self, tx: Tracer) -> bool:
        """True when Module.__call__ ends in forward(*args, **kwargs) and nothing else; what decides it is guarded."""
        call, _ = find_on_type(self.cls, "__call__")
        inner, _ = find_on_type(self.cls, "_call_impl")
        if call is not torch.nn.Module.__call__ or inner is not torch.nn.Module._call_impl:
            return False
        if self.own_attribute(tx, "_compiled_call_impl") is not None and not self._is_none(tx, "_compiled_call_impl"):
            return False
        for name in HOOKS:
            real = self._real_dict(tx, name)
            if real is None:
                hooks = self.own_attribute(tx, name)
                if hooks is None or hooks.truth(tx):
                    return False
            else:
                tx.guard(InstanceAttrSource(self.source, name), Length(len(real)))
                if real:
                    return False
        return not tx.global_module_hooks()

    def _is_none(self, tx: Tracer, name: str) -> bool:
        value = self.own_attribute(tx, name)
        return value is not None and value.is_constant() and value.as_constant() is None

    def as_proxy(self) -> Any:
        raise self.refuse("passing a module to a tensor operation", "pass its parameters")
