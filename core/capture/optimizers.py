"""Optimizers of torch: what tracing their steps needs beyond following their code.

The code of a step is followed as eager runs it, not in the form that torch keeps for compilers: that form rounds
otherwise. Where it asks a step count for its value, the count stays in the graph as a number of double precision.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from ..torch_compat import training
from ..variables.base import VariableTracker
from ..variables.host_number import HostNumberVariable
from .polyfills import rectified_adam
from .polyfills.optimizer_step import by_kind, run_step
from .special_calls import FUNCTIONS, WRAPPERS, function

VT = VariableTracker
TORCH = training.optimizer_functions()


def wrapped_step(tx: Any, fn: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A call of what torch wraps a step in, without the graph breaks there, made for the sake of another compiler."""
    cells = dict(zip(fn.code.co_freevars, fn.closure_cells(tx)))
    return tx.inline(run_step, [cells["func"].get(tx), *args], kwargs)


WRAPPERS[training.optimizer_step_wrapper()] = wrapped_step


def kept_out(tx: Any, fn: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A function that torch.compile is kept out of; that is no reason to leave it to Python here."""
    return tx.call_function(tx.wrap(fn.fn.__wrapped__, None, constant=True), args, kwargs)


WRAPPERS[training.kept_out_wrapper()] = kept_out


@function(TORCH["check"])
def check_capture(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Warns of a step inside a CUDA graph that is being recorded; a compiled function manages those by itself."""
    return tx.constant(None)


@function(TORCH["value"])
def get_value(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The number in a tensor of one element, or the number itself."""
    value = args[0].realize(tx)
    return HostNumberVariable.read(tx, value) if value.kind == "tensor" else value


@function(TORCH["groups"])
def group_tensors(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    return tx.inline(by_kind, args, kwargs)


FUNCTIONS[rectified_adam.value_of] = get_value


@function(rectified_adam.pick)
def pick(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """One of two values, by a number that only a run can tell."""
    number, limit, *values = (arg.realize(tx) for arg in args)
    above = tx.graph_call(operator.gt, [number.tensor(tx), limit], {})
    tensors = [value.tensor(tx) if isinstance(value, HostNumberVariable) else value for value in values]
    chosen = tx.graph_call(torch.where, [above, *tensors], {})
    if any(value.kind == "tensor" for value in values):
        return chosen
    return HostNumberVariable(tx.graph_method("to", [chosen, tx.constant(torch.float64)], {}).value)


def _rectified(original: Any, twin: Any) -> None:
    @function(original)
    def step(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        flags = [kwargs[name] for name in ("capturable", "differentiable") if name in kwargs]
        if len(args) != 5 or any(tx.truth(flag) for flag in flags):
            return tx.trace_into(tx.wrap(original, None, constant=True), args, kwargs)
        return tx.inline(twin, args, kwargs)


_rectified(TORCH["radam"], rectified_adam.step_each)
_rectified(TORCH["radam of lists"], rectified_adam.step_lists)
