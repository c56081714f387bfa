"""Operators of torch.library: calls of their definitions, and gradient formulas that their authors wrote in Python."""

from __future__ import annotations

from typing import Any

import torch

from .. import torch_compat
from ..errors import Unsupported
from ..variables.autograd_function import FunctionContextVariable
from ..variables.base import VariableTracker
from ..variables.tensor import TensorVariable
from .autograd_function import Application
from .regions import tensors_in

VT = VariableTracker


def call(tx: Any, op: Any, args: list[VT], kwargs: dict[str, VT]) -> VT | None:
    """The call of an operator that is Python code or has it for a gradient formula; None where there is none."""
    overload = op if isinstance(op, torch_compat.OpOverload) else _only_overload(op)
    if overload is None:
        return None
    tensors = list(tensors_in([*args, kwargs]))
    if not torch.is_grad_enabled() or not any(tensor.fake.requires_grad for tensor in tensors):
        body = _body(overload, tensors)
        return None if body is None else tx.call_function(tx.wrap(body, None, constant=True), args, kwargs)
    formula = torch_compat.python_gradient(overload)
    if formula is None:
        return None
    setup, backward = formula
    if backward is None:
        raise Unsupported(
            f"the gradient formula of {overload} is Python code that tracing does not see",
            remedy="define the operator with torch.library.custom_op and register_autograd",
        )
    return Application(tx, OperatorWithFormula(tx, overload, setup, backward)).run(_bound(tx, overload, args, kwargs))


def _body(op: Any, tensors: list[Any]) -> Any:
    return torch_compat.traceable_body(op, {tensor.fake.device.type for tensor in tensors})


def _only_overload(packet: Any) -> Any:
    names = packet.overloads()
    return getattr(packet, names[0]) if len(names) == 1 else None


def _bound(tx: Any, op: Any, args: list[VT], kwargs: dict[str, VT]) -> list[VT]:
    """The arguments in the order of the schema, defaults filled in."""
    result = []
    for at, argument in enumerate(op._schema.arguments):
        if argument.kwarg_only or argument.alias_info is not None and argument.alias_info.is_write:
            raise Unsupported(
                f"{op} with keyword-only or written arguments and a gradient formula is not traced",
                remedy="call it outside the compiled function",
            )
        if at < len(args):
            value = args[at]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        else:
            value = tx.constant(argument.default_value)
        value = value.realize(tx)
        if not isinstance(value, TensorVariable) and any(tensors_in(value)):
            raise Unsupported(
                f"{op} takes a list of tensors and has a gradient formula", remedy="call it outside the function"
            )
        result.append(value)
    return result


class OperatorWithFormula:
    """An operator of torch.library.custom_op with register_autograd; see autograd_function.Subject."""

    once = False

    def __init__(self, tx: Any, op: Any, setup: Any, backward: Any) -> None:
        self.tx = tx
        self.op = op
        self.name = f"{op._namespace}_{op._opname}"
        self._setup = setup
        self._backward = backward

    def forward(self, ctx: FunctionContextVariable, args: list[VT]) -> VT:
        body = _body(self.op, list(tensors_in(args)))
        if body is None:
            result = self.tx.graph_call(self.op, args, {})  # below grad mode: the operator's formula stays out of it
        else:
            result = self.tx.call_function(self.tx.wrap(body, None, constant=True), args)
        if self._setup is not None:
            setup = self.tx.wrap(self._setup, None, constant=True)
            self.tx.call_function(setup, [], {"ctx": ctx, "inputs": self.tx.new_tuple(args), "output": result})
        return result

    def backward(self) -> VT:
        return self.tx.wrap(self._backward, None, constant=True)
