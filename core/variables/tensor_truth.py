"""TensorTruthVariable: a bool that eager reads out of a tensor, kept in the graph until somebody needs it.

`bool(t)`, `.item()` of a bool, `torch.allclose` and `torch.equal` ask for it. A program that only hands it on, negates
it or raises an exception by it needs no answer while tracing; any other use breaks the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class AskedFurtherIn(Unsupported):
    """A call that was handed the bool decides by it. `read_at`: the step of the root frame that read it."""

    read_at = 0


class TensorTruthVariable(VariableTracker):
    """A bool. `value` is the GraphValue of a bool tensor of no dimension that nothing else writes to.

    The program read it at step `read_at` of the root frame, `depth` calls below that.
    """

    kind = "tensor_truth"

    def __init__(self, value: Any, read_at: int, depth: int) -> None:
        super().__init__(None)
        self.value = value
        self.read_at = read_at
        self.depth = depth

    @property
    def fake(self) -> Any:
        return self.value.fake

    def python_type(self) -> type:
        return bool

    def truth(self, tx: Tracer) -> bool:
        # a break where a deeper call asks is one in each call on the way, and in each further call that asks
        kind = AskedFurtherIn if tx.trace.depth > self.depth else Unsupported
        refusal = kind(
            "a branch depends on the value of a tensor",
            remedy="use torch.where or torch.cond, or make the decision outside the compiled function",
        )
        if isinstance(refusal, AskedFurtherIn):
            refusal.read_at = self.read_at
        raise refusal

    def negated(self, tx: Tracer) -> VT:
        """not object."""
        tensor = tx.graph_result(self.value)
        return TensorTruthVariable(tx.graph_call(torch.logical_not, [tensor], {}).value, self.read_at, self.depth)

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        raise self.refuse("a comparison")

    def hash_key(self, tx: Tracer) -> Hashable:
        raise self.refuse("hashing")

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(bool)
        emit.load_graph_output(self.value)
        emit.call(1)


def truth_of(tx: Tracer, tensor: VT) -> VT | None:
    """bool(tensor), None where that is an error or where the tensor's size is not known."""
    fake = tensor.fake  # type: ignore[attr-defined]
    if tx.builder.in_region:
        return None
    if not all(type(size) is int and size == 1 for size in fake.shape) or fake.is_sparse or fake.is_quantized:
        return None
    flat = tx.graph_method("detach", [tensor], {}) if fake.requires_grad else tensor
    flat = tx.graph_method("reshape", [flat, tx.new_tuple([])], {}) if fake.ndim else flat
    answer = tx.graph_call(torch.ne, [flat, tx.constant(0)], {})
    return TensorTruthVariable(answer.value, tx.trace.step, tx.trace.depth)  # type: ignore[attr-defined]


def found_in(tx: Tracer, container: VT, item: VT) -> VT | None:
    """`item in container` for a list or tuple in which comparing with tensors decides; None where nothing else would
    be asked of them, or where the comparison is not that of torch's tensors of one element with each other or numbers.
    """
    if container.python_type() not in (list, tuple):
        return None
    candidates = [candidate.realize(tx) for candidate in container.unpack(tx)]
    if not any("tensor" in (candidate.kind, item.kind) for candidate in candidates):
        return None
    answer: VT | None = None
    for candidate in candidates:
        if candidate is item or not (_is_comparable(candidate) and _is_comparable(item)):
            return None
        if "tensor" not in (candidate.kind, item.kind):
            if candidate.as_constant() == item.as_constant():
                return None
            continue
        equal = truth_of(tx, tx.binary(operator.eq, candidate, item).realize(tx))
        if not isinstance(equal, TensorTruthVariable):
            return None
        answer = equal if answer is None else _either(tx, answer, equal)
    return answer


def _is_comparable(tracker: VT) -> bool:
    if tracker.kind == "constant":
        return type(tracker.as_constant()) in (bool, int, float)
    return tracker.kind == "tensor" and tracker.python_type() in (torch.Tensor, torch.nn.Parameter)


def _either(tx: Tracer, left: VT, right: TensorTruthVariable) -> VT:
    assert isinstance(left, TensorTruthVariable)
    tensors = [tx.graph_result(left.value), tx.graph_result(right.value)]
    return TensorTruthVariable(tx.graph_call(torch.logical_or, tensors, {}).value, left.read_at, left.depth)


def ask(tx: Tracer, fn: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT | None:
    """torch.allclose, torch.equal and torch.is_nonzero of tensors; None where the graph has no equal question."""
    operands = [arg.realize(tx) for arg in args]
    if not operands or any(operand.kind != "tensor" for operand in operands[:2]):
        return None
    if fn is torch.is_nonzero:
        return truth_of(tx, operands[0]) if len(operands) == 1 and not kwargs else None
    if len(operands) < 2:
        return None
    left, right = operands[:2]
    if fn is torch.allclose:
        return truth_of(tx, _all(tx, tx.graph_call(torch.isclose, operands, kwargs)))
    a, b = left.fake, right.fake  # type: ignore[attr-defined]
    alike = a.dtype == b.dtype and a.device == b.device and a.layout == b.layout == torch.strided
    # equal() of a tensor with itself does not look for NaNs
    if len(operands) > 2 or kwargs or not alike or a.untyped_storage() is b.untyped_storage():
        return None
    if not all(type(size) is int for size in (*a.shape, *b.shape)):
        return None
    if a.shape != b.shape:
        return tx.constant(False)
    return truth_of(tx, _all(tx, tx.binary(operator.eq, left, right)))


def _all(tx: Tracer, tensor: VT) -> VT:
    return tx.graph_method("all", [tensor], {})


QUESTIONS = (torch.allclose, torch.equal, torch.is_nonzero)
