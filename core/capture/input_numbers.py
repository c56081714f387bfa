"""Whole numbers that a frame gets in tensors: where an operation needs one as a number, it is read before the graph.

A tensor of no dimensions may stand for an int among the arguments of an operation, as the size of a batch does that
PackedSequence keeps. Where it is an input of the graph, or an element of one, and nothing was written by then, the
number is in it at the start already: it is a symbolic number like an int that the caller passes. A branch may depend on
it as well.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import torch

from ..guards.source import CallSource
from ..variables.base import VariableTracker

VT = VariableTracker
WHOLE = (torch.int64, torch.int32)
COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
SUMS = (operator.add, operator.sub)
INDEXING = (operator.getitem, operator.setitem, "__getitem__", "__setitem__")
LARGE = 1 << 31
MOST_NODES = 8  # from an input to a decision


def with_numbers(tx: Any, fn: Any, args: list[VT], kwargs: dict[str, VT]) -> tuple[list[VT], dict[str, VT]] | None:
    """The arguments of `fn` with numbers for such tensors; None where there are none, or the program wants none. With
    fullgraph, symbols without a value serve all numbers of the data: these come second. An index stays a tensor, which
    a graph can take from memory."""
    if tx.trace.options.fullgraph and not tx.builder.scalar_outputs or not _may_be_read(tx):
        return None
    found: list[VT] = []
    replaced = [_replaced(tx, arg, found, fn not in INDEXING) for arg in args]
    named = {key: _replaced(tx, value, found, True) for key, value in kwargs.items()}
    return (replaced, named) if found else None


def decision(tx: Any, tensor: Any) -> bool | None:
    """The truth of such a tensor compared with a known int, as a guard; None where it is something else, or where a
    callable has many entries already, which each way of such a decision would add to."""
    node = tensor.value.node
    if node.target not in COMPARISONS or tensor.fake.ndim or not _may_be_read(tx):
        return None
    if tx.trace.policy.crowded and not tx.trace.options.fullgraph:
        return None
    known = [side for side in node.args if type(side) is int and abs(side) < LARGE]  # torch refuses what has no room
    sides = [tx.constant(side) if side in known else _number(tx, tensor.value, side) for side in node.args]
    if len(known) != 1 or len(sides) != 2 or None in sides:
        return None
    return bool(tx.truth(tx.binary(node.target, *sides)))


def _may_be_read(tx: Any) -> bool:
    policy = tx.trace.policy
    if policy.dynamic is False or policy.declared is not None or tx.trace.options.capture_scalar_outputs is False:
        return False
    return not any(call.op._schema.is_mutable for call in tx.builder.recorded_calls)


def _replaced(tx: Any, value: VT, found: list[VT], numbers: bool) -> VT:
    """numbers: whether tensors stand for numbers here; in a slice they do anywhere."""
    value = value.realize(tx)
    if value.kind in ("list", "tuple"):
        items = value.unpack(tx)
        made = [_replaced(tx, item, found, numbers) for item in items]
        return value if all(map(operator.is_, made, items)) else tx.new_tuple(made)  # type: ignore[no-any-return]
    if value.kind == "slice":
        ends = [_replaced(tx, end, found, True) for end in value.parts]  # type: ignore[attr-defined]
        return tx.new_slice(*ends)  # type: ignore[no-any-return]
    if not numbers or value.kind != "tensor" or value.fake.ndim or value.known_number() is not None:  # type: ignore[attr-defined]
        return value
    number = _number(tx, value.value, value.value.node)  # type: ignore[attr-defined]
    if number is None:
        return value
    found.append(number)
    return number


def _number(tx: Any, value: Any, node: Any, dtypes: Sequence[torch.dtype] = WHOLE) -> VT | None:
    """The number in what a node gives, which is all that `value` is made of, by an input of one of these dtypes."""
    if isinstance(node, torch.fx.Node) and node.target in SUMS and len(node.args) == 2:
        return _sum(tx, value, node)
    place = None
    if isinstance(node, torch.fx.Node) and node.target is operator.getitem and type(node.args[1]) is int:
        node, place = node.args[0], node.args[1]
    if not isinstance(node, torch.fx.Node) or node.op != "placeholder":
        return None
    behind = tx.builder.inputs_behind(value, MOST_NODES)
    if len(behind) != 1 or not behind[0].is_tensor or behind[0].source is None or behind[0].lifted:
        return None
    real, source = tx.builder.real_input(behind[0]), behind[0].source
    if type(real) is not torch.Tensor or real.device.type != "cpu" or real.dtype not in dtypes:
        return None
    if place is not None and real.ndim == 1:
        real, source = real[place], CallSource(source, _element(place))
    if real.ndim:
        return None
    return tx.trace.policy.number_of(tx, int(real), CallSource(source, torch.Tensor.item))  # type: ignore[no-any-return]


def _sum(tx: Any, value: Any, node: Any) -> VT | None:
    """A number plus or minus a known int, where the sums of tensors don't overflow."""
    known = [side for side in node.args if type(side) is int and abs(side) < LARGE]
    if len(known) != 1:
        return None
    int64 = (torch.int64,)
    sides = [tx.constant(side) if type(side) is int else _number(tx, value, side, int64) for side in node.args]
    number = next((side for side in sides if side is None or side.kind == "symbolic"), None)
    if number is None:
        return None
    small = tx.truth(tx.binary(operator.lt, number, tx.constant(LARGE)))
    small = small and tx.truth(tx.binary(operator.gt, number, tx.constant(-LARGE)))
    return tx.binary(node.target, *sides) if small else None  # type: ignore[no-any-return]


@functools.cache
def _element(place: int) -> Any:
    """tensor[place] without a frame of Python's."""
    return operator.methodcaller("select", 0, place)
