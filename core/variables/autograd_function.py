"""FunctionContextVariable: the `ctx` of an autograd.Function while its forward and backward are traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ..errors import Unsupported
from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


class FunctionContextVariable(VariableTracker):
    """The context. It lives only inside the region of its Function: giving it to anyone else breaks the graph."""

    kind = "function_context"
    mutable = True

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        super().__init__(None)
        self.needs_input_grad = needs_input_grad
        self.saved: list[VT] = []
        self.dirty: list[VT] = []
        self.non_differentiable: list[VT] = []
        self.attributes: dict[str, VT] = {}
        self.in_backward = False

    def python_type(self) -> type:
        return torch.autograd.function.FunctionCtx

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in self.attributes:
            return self.attributes[name].realize(tx)
        if name == "needs_input_grad":
            return tx.new_tuple([tx.constant(flag) for flag in self.needs_input_grad])
        if name in ("saved_tensors", "saved_variables"):
            return tx.new_tuple(self.saved)
        if hasattr(self, "method_" + name):
            return ContextMethodVariable(self, name)
        if hasattr(torch.autograd.Function, name):
            raise self.refuse(f"reading attribute {name!r}")
        tx.raise_exception(AttributeError, f"'Function context' object has no attribute '{name}'")

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if self.in_backward:
            raise Unsupported(
                "the backward of an autograd.Function sets an attribute of its context",
                remedy="keep what the backward makes in local variables",
            )
        if hasattr(torch.autograd.Function, name) or name == "needs_input_grad":
            raise self.refuse(f"setting attribute {name!r}")
        self.attributes[name] = value

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        method = getattr(self, "method_" + name, None)
        if method is None or self.in_backward:
            return super().call_method(tx, name, args, kwargs)
        method(tx, *args, **kwargs)
        return tx.constant(None)

    def method_save_for_backward(self, tx: Tracer, *tensors: VT) -> None:
        self.saved = [tensor.realize(tx) for tensor in tensors]

    def method_mark_dirty(self, tx: Tracer, *tensors: VT) -> None:
        self.dirty = [tensor.realize(tx) for tensor in tensors]

    def method_mark_non_differentiable(self, tx: Tracer, *tensors: VT) -> None:
        self.non_differentiable = [tensor.realize(tx) for tensor in tensors]

    def method_set_materialize_grads(self, tx: Tracer, value: VT) -> None:
        if value.as_constant() is not True:
            raise Unsupported(
                "set_materialize_grads(False) leaves open which gradients the backward gets",
                remedy="let gradients be materialized, or call the Function outside the compiled function",
            )

    def method_save_for_forward(self, tx: Tracer, *tensors: VT) -> None:
        """Nothing: forward-mode differentiation is never active in a graph."""


class ContextMethodVariable(VariableTracker):
    """A method of the context, looked up but not yet called."""

    kind = "method"

    def __init__(self, context: FunctionContextVariable, name: str) -> None:
        super().__init__(None)
        self.context = context
        self.name = name

    def python_type(self) -> type:
        return type((lambda: 0).__get__(0))

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.context.in_backward:
            raise self.context.refuse(f"{self.name} in the backward")
        return self.context.call_method(tx, self.name, args, kwargs)
