"""UntracedTensorVariable: a tensor that no graph takes (a subclass, sparse, quantized, nested, without data, ...).

Traced code may pass it around; the first operation on it breaks the graph and runs in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..graph.history import has_lost_history
from ..guards.checks import TypeIs
from ..torch_compat import fakes
from . import tensor_subclass, wrapper_class
from .base import BuiltinMethodVariable, VariableTracker
from .python_module import OpaqueVariable

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker

TRACED_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def reason_against(value: torch.Tensor) -> str | None:
    """What keeps a real tensor out of a graph, None when nothing does."""
    if wrapper_class.has_own_dispatch(type(value)):
        return wrapper_class.reason_against(value)
    if type(value) not in TRACED_CLASSES and not is_own_parameter(value):
        return f"a tensor of class {type(value).__name__}"
    if value.device.type == "meta":
        return "a tensor of the meta device"
    if value.is_nested:
        return "a nested tensor"
    if value.layout is not torch.strided:
        return f"a tensor of layout {value.layout}"
    if value.is_quantized:
        return "a quantized tensor"
    if has_lost_history(value):
        return "a view whose base was written to without gradients"
    return None


def is_own_parameter(value: torch.Tensor) -> bool:
    """True for a parameter or buffer of a class of the program's that torch's functions take for a plain tensor."""
    cls = type(value)
    return cls not in TRACED_CLASSES and fakes.is_parameter_class(cls) and fakes.is_plain_leaf(value)


class UntracedTensorVariable(OpaqueVariable):
    """A tensor that is only passed around. Everything but its class and identity is left to Python."""

    def __init__(self, value: torch.Tensor, what: str, source: Any = None) -> None:
        own = wrapper_class.has_own_dispatch(type(value))
        remedy = wrapper_class.REMEDY if own else "use plain tensors inside the compiled function"
        super().__init__(value, f"{what} is not traced", remedy, source)

    def as_proxy(self) -> Any:
        raise Unsupported(self.reason, remedy=self.remedy)

    def refuse(self, operation: str, remedy: str = "") -> Unsupported:
        return Unsupported(f"{self.reason} ({operation})", remedy=remedy or self.remedy)

    def truth(self, tx: Tracer) -> bool:
        raise self.refuse("a truth test")

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if callable(getattr(type(self.value), name, None)):
            return BuiltinMethodVariable(self, name)
        raise self.refuse(f"reading attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        raise self.refuse(f"a call of {name}")

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        raise self.refuse(f"the operator {name}")

    def hash_key(self, tx: Tracer) -> Any:
        if type(self.value).__hash__ is torch.Tensor.__hash__:
            return self
        raise self.refuse("hashing")


def untraced(tx: Tracer, value: torch.Tensor, what: str, source: Any) -> VT:
    """The tracker of a tensor that `reason_against` refuses."""
    taken_apart = tensor_subclass.from_value(tx, value, source) if type(value) not in TRACED_CLASSES else None
    if taken_apart is not None:
        return taken_apart
    tx.guard(source, TypeIs(type(value)))
    return UntracedTensorVariable(value, what, source)
