"""WrapperTensorVariable: a tensor of a class with a __torch_dispatch__, made of other tensors.

Enters: what `__tensor_flatten__` tells of such a tensor. The graph holds the tensor itself; what its class does with an
operator runs on fakes, beneath the call, and is recorded there. The attributes and methods that the class adds are
traced as those of any object.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..guards.checks import Is
from ..guards.source import ConstSource, InstanceAttrSource, TypeAttrSource
from .base import BuiltinMethodVariable, VariableTracker
from .function import MethodVariable
from .literal import is_literal
from .tensor import TensorVariable
from .wrapper_class import CODE_OF_THE_CLASS, inner_source

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker

_TORCH_CLASSES = frozenset(torch.Tensor.__mro__)
_OF_ITS_MEMORY = frozenset(
    ("untyped_storage", "as_subclass", "register_hook", "register_post_accumulate_grad_hook", "new")
)


class WrapperTensorVariable(TensorVariable):
    """A wrapper tensor. `value` is the GraphValue of the tensor itself, whose fake is the class around fakes."""

    def __init__(self, value: Any, cls: type, source: Any = None, real: Any = None) -> None:
        super().__init__(value, cls, source, real)

    def _own(self, name: str) -> Any:
        """What the classes of the program define, torch's own left out."""
        for base in self.cls.__mro__:
            if base not in _TORCH_CLASSES and name in base.__dict__:
                return base.__dict__[name]
        return None

    def _bound(self, tx: Tracer, name: str) -> VT | None:
        raw = self._own(name)
        if raw is None:
            return None
        if _is_of_torch(raw):
            return self._of_torch(tx, name, raw)
        source = TypeAttrSource(ConstSource(self.cls), name)
        if isinstance(raw, property) and raw.fget is not None:
            tx.guard(source, Is(raw))
            return tx.call_function(tx.wrap(raw.fget, None, constant=True), [self], {})
        if isinstance(raw, staticmethod):
            return tx.wrap(raw.__func__, None, constant=True)
        if isinstance(raw, classmethod):
            return MethodVariable(tx.wrap(raw.__func__, None, constant=True), tx.wrap(self.cls, None, constant=True))
        if hasattr(raw, "__code__"):
            return MethodVariable(tx.wrap(raw, source), self)
        if hasattr(type(raw), "__get__"):
            return None
        return tx.wrap(raw, source)

    def _of_torch(self, tx: Tracer, name: str, raw: Any) -> VT | None:
        """Methods and properties of torch's own classes are calls of the graph, as torch's functions are."""
        if isinstance(raw, property):
            return tx.graph_call(getattr, [self, tx.constant(name)], {})
        return None if isinstance(raw, (staticmethod, classmethod)) else BuiltinMethodVariable(self, name)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in self.attributes:
            return super().get_attr(tx, name)
        if name in self.fake.__tensor_flatten__()[0]:
            if self.real is not None and self.source is not None:
                return tx.wrap(getattr(self.real, name), inner_source(self.real, self.source, name))
            return tx.graph_call(getattr, [self, tx.constant(name)], {})
        if self._own("__getattribute__") is not None or self._own("__getattr__") is not None:
            raise self.refuse(f"reading attribute {name!r} of a class that answers for itself")
        if name in self.fake.__dict__ and not name.startswith("_dynamo"):
            return self._kept(tx, name)
        own = self._bound(tx, name)
        if own is not None:
            return own
        if name in _OF_ITS_MEMORY:
            raise self.refuse(f"reading attribute {name!r}")
        return super().get_attr(tx, name)

    def _kept(self, tx: Tracer, name: str) -> VT:
        """An attribute of the object that is no inner tensor: what the class makes of its metadata."""
        if self.real is not None and self.source is not None and name in self.real.__dict__:
            return tx.wrap(self.real.__dict__[name], InstanceAttrSource(self.source, name))
        value = self.fake.__dict__[name]
        if is_literal(value) or isinstance(value, (torch.dtype, torch.device, torch.layout)):
            return tx.constant(value)
        if type(value) is tuple and all(is_literal(item) for item in value):
            return tx.constant(value)
        raise self.refuse(f"reading attribute {name!r} of a tensor made in the graph")

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if (
            name in ("data", "requires_grad")
            or name in self.fake.__tensor_flatten__()[0]
            or self._own(name) is not None
        ):
            raise self.refuse(f"setting attribute {name!r}")
        super().set_attr(tx, name, value)

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        own = self._own(name)
        if own is not None and not _is_of_torch(own) and name not in ("__new__", "__init__", *CODE_OF_THE_CLASS[:2]):
            return tx.call_function(self.get_attr(tx, name), list(args), kwargs)
        if name in _OF_ITS_MEMORY:
            raise self.refuse(f"a call of {name}")
        return super().call_method(tx, name, args, kwargs)

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        own = self._bound(tx, name) if self._own(name) is not None else None
        return own if own is not None else super().lookup_special(tx, name)


def _is_of_torch(raw: Any) -> bool:
    function = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "torch"
