"""WrapperTensorVariable: a tensor of a class with a __torch_dispatch__, made of other tensors.

Enters: what `__tensor_flatten__` tells of such a tensor. The graph holds the tensor itself; what its class does with an
operator runs on fakes, beneath the call, and is recorded there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .base import VariableTracker
from .classed_tensor import ClassedTensorVariable
from .literal import is_literal
from .wrapper_class import inner_source

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


class WrapperTensorVariable(ClassedTensorVariable):
    """A wrapper tensor. `value` is the GraphValue of the tensor itself, whose fake is the class around fakes."""

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name not in self.attributes and name in self.fake.__tensor_flatten__()[0]:
            if self.real is not None and self.source is not None:
                return tx.wrap(getattr(self.real, name), inner_source(self.real, self.source, name))
            return tx.graph_call(getattr, [self, tx.constant(name)], {})
        return super().get_attr(tx, name)

    def _kept(self, tx: Tracer, name: str) -> VT | None:
        """Of a tensor made in the graph: what the class made of its metadata."""
        kept = super()._kept(tx, name)
        if kept is not None or name not in self.fake.__dict__ or name.startswith("_dynamo"):
            return kept
        value = self.fake.__dict__[name]
        if is_literal(value) or isinstance(value, (torch.dtype, torch.device, torch.layout)):
            return tx.constant(value)
        if type(value) is tuple and all(is_literal(item) for item in value):
            return tx.constant(value)
        raise self.refuse(f"reading attribute {name!r} of a tensor made in the graph")

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if name in self.fake.__tensor_flatten__()[0]:
            raise self.refuse(f"setting attribute {name!r}")
        super().set_attr(tx, name, value)
