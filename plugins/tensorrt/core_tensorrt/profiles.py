"""Optimisation profiles: the sizes that an engine is built for, from the ranges of the graph's symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from core.plugin import Unsupported

Ranges = Mapping[str, tuple[int, "int | None", int]]
"""As `CompileContext.ranges`: symbol -> (least, largest or None, example)."""
Span = tuple[int, int, int]
"""The least, the usual and the largest value of one size."""


def span_of(size: Any, ranges: Ranges) -> Span:
    """The span of a size. Raises Unsupported for one whose ends are not those of its symbols, or that has no end."""
    if isinstance(size, int):
        return size, size, size
    expression = size.node.expr
    if not _grows(expression):
        raise Unsupported((), f"the size {expression} of an input does not grow with its symbols")
    values: list[dict[Any, int]] = [{}, {}, {}]
    for symbol in expression.free_symbols:
        low, high, example = ranges.get(str(symbol), (1, None, 1))
        if high is None:
            raise Unsupported((), f"the size {symbol} of an input has no upper bound")
        for chosen, value in zip(values, (low, example, high)):
            chosen[symbol] = value
    least, usual, largest = (int(expression.subs(chosen)) for chosen in values)
    return least, usual, largest


def _grows(expression: Any) -> bool:
    """Whether a larger symbol never makes it smaller: sums and products of symbols and of numbers above zero."""
    if expression.is_Symbol:
        return True
    if expression.is_Integer:
        return bool(expression >= 0)
    return (expression.is_Add or expression.is_Mul) and all(_grows(part) for part in expression.args)


def shape_spans(fake: Any, ranges: Ranges) -> tuple[Span, ...] | None:
    """The span of each size of a tensor, None where all are known."""
    if not isinstance(fake, torch.Tensor) or all(isinstance(size, int) for size in fake.shape):
        return None
    return tuple(span_of(size, ranges) for size in fake.shape)


def require_elements(fake_inputs: Sequence[Any]) -> None:
    """Assume of every symbolic size that it is no 0, which becomes a guard: such calls are another graph."""
    for fake in fake_inputs:
        for size in fake.shape if isinstance(fake, torch.Tensor) else ():
            if isinstance(size, torch.SymInt) and not bool(size >= 1):
                raise Unsupported((), "tensors without elements are not taken")


def add_profile(builder: Any, config: Any, network: Any, inputs: Mapping[str, Any], ranges: Ranges) -> dict[str, Any]:
    """One profile for the whole network; name of an input -> its (least, usual, largest) shape, for reports.

    inputs: the fake value of each input by name.
    """
    profile = builder.create_optimization_profile()
    made: dict[str, Any] = {}
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        fake = inputs[tensor.name]
        spans = shape_spans(fake, ranges)
        if spans is not None:
            made[tensor.name] = tuple(tuple(max(span[end], 1) for span in spans) for end in range(3))
            profile.set_shape(tensor.name, *made[tensor.name])
        elif tensor.is_shape_tensor:
            made[tensor.name] = tuple((value,) for value in span_of(fake, ranges))
            profile.set_shape_input(tensor.name, *made[tensor.name])
    if made:
        config.add_optimization_profile(profile)
    return made
