"""ClassedTensorVariable: a tensor of the graph whose class adds attributes and methods of its own.

A subclass of Parameter is one: torch's functions take its tensors for plain ones, and give plain ones back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..guards.source import InstanceAttrSource
from .base import BuiltinMethodVariable, VariableTracker
from .class_attribute import MISSING, bound_attribute, own_attribute
from .tensor import TensorVariable
from .wrapper_class import CODE_OF_THE_CLASS

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker

_TORCH_CLASSES = frozenset((*torch.nn.Parameter.__mro__, *torch.nn.Buffer.__mro__))
_OF_ITS_MEMORY = frozenset(
    ("untyped_storage", "as_subclass", "register_hook", "register_post_accumulate_grad_hook", "new")
)
_NOT_CALLED = ("__new__", "__init__", *CODE_OF_THE_CLASS[:2])


class ClassedTensorVariable(TensorVariable):
    """A tensor with attributes of its class; those of the class are traced as those of any object."""

    def _own(self, name: str) -> Any:
        """What the classes of the program define, torch's own left out."""
        return own_attribute(self.cls, name, _TORCH_CLASSES)

    def _bound(self, tx: Tracer, name: str) -> VT | None:
        raw = self._own(name)
        if raw is MISSING:
            return None
        if _is_of_torch(raw):
            return self._of_torch(tx, name, raw)
        return bound_attribute(tx, self, self.cls, name, raw)

    def _of_torch(self, tx: Tracer, name: str, raw: Any) -> VT | None:
        """Methods and properties of torch's own classes are calls of the graph, as torch's functions are."""
        if isinstance(raw, property):
            return tx.graph_call(getattr, [self, tx.constant(name)], {})
        return None if isinstance(raw, (staticmethod, classmethod)) else BuiltinMethodVariable(self, name)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in self.attributes:
            return super().get_attr(tx, name)
        if self._own("__getattribute__") is not MISSING or self._own("__getattr__") is not MISSING:
            raise self.refuse(f"reading attribute {name!r} of a class that answers for itself")
        kept = self._kept(tx, name)
        if kept is not None:
            return kept
        own = self._bound(tx, name)
        if own is not None:
            return own
        if name in _OF_ITS_MEMORY:
            raise self.refuse(f"reading attribute {name!r}")
        return super().get_attr(tx, name)

    def _kept(self, tx: Tracer, name: str) -> VT | None:
        """An attribute of the object itself; None where it has none of that name."""
        if self.real is not None and self.source is not None and name in self.real.__dict__:
            return tx.wrap(self.real.__dict__[name], InstanceAttrSource(self.source, name))
        return None

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if name in ("data", "requires_grad") or self._own(name) is not MISSING:
            raise self.refuse(f"setting attribute {name!r}")
        super().set_attr(tx, name, value)

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        own = self._own(name)
        if own is not MISSING and not _is_of_torch(own) and name not in _NOT_CALLED:
            return tx.call_function(self.get_attr(tx, name), list(args), kwargs)
        if name in _OF_ITS_MEMORY:
            raise self.refuse(f"a call of {name}")
        return super().call_method(tx, name, args, kwargs)

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        own = self._bound(tx, name)
        return own if own is not None else super().lookup_special(tx, name)


def _is_of_torch(raw: Any) -> bool:
    function = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "torch"
