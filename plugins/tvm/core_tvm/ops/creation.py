"""Tensors made of numbers."""

from __future__ import annotations

from typing import Any

import torch

from ..arithmetic import Num, number
from ..kernel import Kernel, Value
from ..registry import Refused, converts


def filled(k: Kernel, value: Any) -> Value:
    """The result full of one number."""
    dtype = k.result.dtype
    return k.compute(lambda *_: k.number(value, dtype))


@converts("aten.full.default", "aten.new_full.default", "aten.full_like.default", "aten.fill.Scalar")
def full(k: Kernel, one: Any, two: Any, three: Any = None, **kwargs: Any) -> Value:
    return filled(k, two if three is None else three)


@converts("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(k: Kernel, *args: Any, **kwargs: Any) -> Value:
    return filled(k, 1)


@converts("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
def zeros(k: Kernel, *args: Any, **kwargs: Any) -> Value:
    return filled(k, 0)


@converts("aten.scalar_tensor.default")
def scalar_tensor(k: Kernel, value: Any, **kwargs: Any) -> Value:
    return filled(k, value)


@converts("aten.fill.Tensor")
def fill_tensor(k: Kernel, x: Value, value: Value) -> Value:
    return k.compute(lambda *_: value.at(()))


@converts("aten.arange.default")
def arange(k: Kernel, end: Any, **kwargs: Any) -> Value:
    return steps(k, 0, 1)


@converts("aten.arange.start")
def arange_start(k: Kernel, start: Any, end: Any, **kwargs: Any) -> Value:
    return steps(k, start, 1)


@converts("aten.arange.start_step")
def arange_step(k: Kernel, start: Any, end: Any, step: Any = 1, **kwargs: Any) -> Value:
    return steps(k, start, step)


@converts("prims.iota.default")
def iota(k: Kernel, length: Any, *, start: Any, step: Any, **kwargs: Any) -> Value:
    return steps(k, start, step)


def steps(k: Kernel, start: Any, step: Any) -> Value:
    """start, start + step, ...: floats are calculated in float64, as torch does, and rounded."""
    dtype = k.result.dtype
    whole = not isinstance(start, float) and not isinstance(step, float)
    if whole and not dtype.is_floating_point:
        return k.compute(lambda at: k.number(start, torch.int64) + Num(at, torch.int64) * k.number(step, torch.int64))
    if not dtype.is_floating_point:
        raise Refused("whole numbers from steps that are not whole")

    def element(at: Any) -> Num:
        place = Num(at, torch.int64).to(torch.float64)
        return number(start, torch.float64) + place * number(step, torch.float64)

    if not all(isinstance(one, (int, float)) for one in (start, step)):
        raise Refused("floats from steps that are known only at run time")
    return k.compute(element)


@converts("aten.eye.default", "aten.eye.m")
def eye(k: Kernel, *args: Any, **kwargs: Any) -> Value:
    from tvm import tirx

    return k.compute(lambda row, column: Num(tirx.EQ(row, column), torch.bool).to(k.result.dtype))


@converts("aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default")
@converts("aten.empty_permuted.default")
def empty(k: Kernel, *args: Any, **kwargs: Any) -> Value:
    return filled(k, 0)
