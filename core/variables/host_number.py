"""HostNumberVariable: the Python number that eager reads out of a tensor, kept in the graph until somebody needs it.

A step count is read for its value, and the formulas of an optimizer are computed with it in Python's arithmetic. In a
graph the number is a 0-d tensor of double precision: the same arithmetic, without a value that differs from call to
call. Where it meets a tensor it counts as the Python number it stands for. A decision that depends on it breaks the
graph.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

ARITHMETIC = frozenset((operator.add, operator.sub, operator.mul, operator.truediv, operator.pow))
IN_PLACE = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
    operator.ipow: operator.pow,
}
REMEDY = "do it with tensors, or outside the compiled function"


class NumberAsArgument(Unsupported):
    """A number read from a tensor is an argument of a tensor operation; see `call_with_numbers`."""


class HostNumberVariable(VariableTracker):
    """A float read from a tensor. `value` is the GraphValue of a 0-d float64 tensor."""

    kind = "host_number"

    def __init__(self, value: Any) -> None:
        super().__init__(None)
        self.value = value

    @classmethod
    def read(cls, tx: Tracer, tensor: VT) -> VT:
        """tensor.item() of a tensor of one floating point number."""
        fake = tensor.value.fake
        if fake.numel() != 1 or not fake.is_floating_point():
            raise Unsupported("reading the value of this tensor is not traced", remedy=REMEDY)
        if fake.requires_grad:
            tensor = tx.graph_method("detach", [tensor], {})
        if fake.ndim:
            tensor = tx.graph_method("reshape", [tensor, tx.new_tuple([])], {})
        double = tx.graph_method("to", [tensor, tx.constant(torch.float64)], {"copy": tx.constant(True)})
        return cls(double.value)

    def python_type(self) -> type:
        return float

    def as_proxy(self) -> Any:
        raise NumberAsArgument("a number read from a tensor is an argument of a tensor operation", remedy=REMEDY)

    def truth(self, tx: Tracer) -> bool:
        raise Unsupported("a branch depends on a number read from a tensor", remedy="use torch.where")

    def tensor(self, tx: Tracer, dtype: torch.dtype | None = None) -> VT:
        """The number as a tensor."""
        made = tx.graph_result(self.value)
        return made if dtype in (None, torch.float64) else tx.graph_method("to", [made, tx.constant(dtype)], {})

    def beside(self, tx: Tracer, tensor: VT) -> VT:
        """The number as a tensor that gives an operation with `tensor` the dtype that a Python float would."""
        fake = tensor.value.fake
        if fake.ndim and fake.is_floating_point():
            return self.tensor(tx)  # one of no dimensions doesn't count among floating point numbers
        return self.tensor(tx, torch.result_type(fake, 1.0))

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_graph_output(self.value)
        emit.call_method("item", [])


def binary(tx: Tracer, op: Any, left: VT, right: VT) -> VT:
    """op(left, right) where one of the two is a HostNumberVariable."""
    number, other = (left, right) if isinstance(left, HostNumberVariable) else (right, left)
    assert isinstance(number, HostNumberVariable)
    if other.kind == "tensor":
        operand = number.beside(tx, other)
        if op is operator.truediv and number is left:  # so torch divides a number by a tensor
            return tx.graph_call(operator.mul, [tx.graph_method("reciprocal", [other], {}), operand], {})
        result = tx.graph_call(op, [operand, other] if number is left else [other, operand], {})
        return other if op in IN_PLACE and other is left else result
    if op not in ARITHMETIC and op not in IN_PLACE or not _is_number(other):
        raise Unsupported(f"{op.__name__} of a number read from a tensor is not traced", remedy=REMEDY)
    operands = [side.tensor(tx) if isinstance(side, HostNumberVariable) else side for side in (left, right)]
    return HostNumberVariable(tx.graph_call(IN_PLACE.get(op, op), operands, {}).value)


def _is_number(value: VT) -> bool:
    if isinstance(value, HostNumberVariable) or value.kind == "symbolic" and value.python_type() is not bool:
        return True
    return value.is_constant() and type(value.as_constant()) in (int, float)


def unary(tx: Tracer, op: Any, number: VT) -> VT:
    """op(number) of a HostNumberVariable."""
    if op not in (operator.neg, operator.pos, abs, operator.abs):
        raise Unsupported(f"{op.__name__} of a number read from a tensor is not traced", remedy=REMEDY)
    return HostNumberVariable(tx.graph_call(op, [number.tensor(tx)], {}).value)


def call_with_numbers(tx: Tracer, target: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """A tensor method (by name) or function with such numbers among its arguments, as operations between tensors."""
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    each = name.startswith("_foreach_")
    bare = name.removeprefix("_foreach_")
    in_place = bare.endswith("_")
    operation = OPERATIONS.get(bare.removesuffix("_"))
    if operation is None:
        raise Unsupported(f"a number read from a tensor as an argument of {name}() is not traced", remedy=REMEDY)
    args = [arg.realize(tx) for arg in args]
    if not each:
        return _finished(tx, args[0], operation(tx, *args, **kwargs), in_place)
    tensors = args[0].unpack(tx)
    columns = [_spread(tx, arg, len(tensors)) for arg in args[1:]]
    named = {key: _spread(tx, value.realize(tx), len(tensors)) for key, value in kwargs.items()}
    made = []
    for at, tensor in enumerate(tensors):
        rest = [column[at] for column in columns]
        result = operation(tx, tensor, *rest, **{key: column[at] for key, column in named.items()})
        made.append(_finished(tx, tensor.realize(tx), result, in_place))
    return tx.constant(None) if in_place else tx.new_tuple(made)


def _spread(tx: Tracer, value: VT, count: int) -> list[VT]:
    """One value for each tensor of a list: the elements of a list, or the same for all."""
    return value.unpack(tx) if value.kind in ("list", "tuple") else [value] * count


def _finished(tx: Tracer, target: VT, result: VT, in_place: bool) -> VT:
    if not in_place:
        return result
    tx.graph_method("copy_", [target, result], {})
    return target


def _scaled(tx: Tracer, tensor: VT, factor: VT | None) -> VT:
    return tensor if factor is None else tx.binary(operator.mul, tensor.realize(tx), factor.realize(tx))


def _combination(op: Any) -> Any:
    def operation(tx: Tracer, tensor: VT, other: VT, alpha: VT | None = None) -> VT:
        return tx.binary(op, tensor, _scaled(tx, other, alpha))

    return operation


def _added(op: Any) -> Any:
    # as torch's kernel associates: the factor times the first tensor, then the second
    def operation(tx: Tracer, tensor: VT, first: VT, second: VT, value: VT | None = None) -> VT:
        return tx.binary(operator.add, tensor, tx.binary(op, _scaled(tx, first, value), second))

    return operation


OPERATIONS = {
    "add": _combination(operator.add),
    "sub": _combination(operator.sub),
    "mul": _combination(operator.mul),
    "div": _combination(operator.truediv),
    "addcmul": _added(operator.mul),
    "addcdiv": _added(operator.truediv),
}
