"""Tensors from numbers: constants, ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch

from ..builder import ModelBuilder, Value
from ..registry import converts
from .operands import operand


def _filled(b: ModelBuilder, number: Any, size: Sequence[Any]) -> Value:
    value = operand(b, number, b.result.dtype)
    return b.node("Expand", value, b.shape_vector(size)) if size else b.node("Identity", value)


@converts("aten.full.default")
def full(b: ModelBuilder, size: Sequence[Any], fill_value: Any, **kwargs: Any) -> Value:
    return _filled(b, fill_value, size)


@converts("aten.new_full.default")
def new_full(b: ModelBuilder, x: Value, size: Sequence[Any], fill_value: Any, **kwargs: Any) -> Value:
    return _filled(b, fill_value, size)


@converts("aten.zeros.default")
def zeros(b: ModelBuilder, size: Sequence[Any], **kwargs: Any) -> Value:
    return _filled(b, 0, size)


@converts("aten.ones.default")
def ones(b: ModelBuilder, size: Sequence[Any], **kwargs: Any) -> Value:
    return _filled(b, 1, size)


@converts("aten.new_zeros.default")
def new_zeros(b: ModelBuilder, x: Value, size: Sequence[Any], **kwargs: Any) -> Value:
    return _filled(b, 0, size)


@converts("aten.new_ones.default")
def new_ones(b: ModelBuilder, x: Value, size: Sequence[Any], **kwargs: Any) -> Value:
    return _filled(b, 1, size)


@converts("aten.empty.memory_format", "aten.empty_permuted.default")
def empty(b: ModelBuilder, size: Sequence[Any], *args: Any, **kwargs: Any) -> Value:
    """Memory with whatever values: zeros."""
    return _filled(b, 0, size)


@converts("aten.empty_strided.default")
def empty_strided(b: ModelBuilder, size: Sequence[Any], stride: Sequence[Any], **kwargs: Any) -> Value:
    return _filled(b, 0, size)


@converts("aten.new_empty.default", "aten.new_empty_strided.default")
def new_empty(b: ModelBuilder, x: Value, size: Sequence[Any], *args: Any, **kwargs: Any) -> Value:
    return _filled(b, 0, size)


@converts("aten.scalar_tensor.default")
def scalar_tensor(b: ModelBuilder, number: Any, **kwargs: Any) -> Value:
    return b.node("Identity", operand(b, number, b.result.dtype))


@converts("aten.arange.start_step")
def arange_step(b: ModelBuilder, start: Any, end: Any, step: Any = 1, **kwargs: Any) -> Value:
    """Integers by Range; floats as start + i * step, which rounds once as torch does."""
    dtype = b.result.dtype
    given = (start, end, step)
    if all(isinstance(number, int) or (isinstance(number, Value) and number.dtype is torch.int64) for number in given):
        whole = b.node("Range", *[operand(b, number, torch.int64) for number in given])
        return b.cast(whole, dtype)
    (length,) = b.result.shape
    count = b.node("Range", b.scalar(0, torch.int64), b.scalar(int(length), torch.int64), b.scalar(1, torch.int64))
    scaled = b.node("Mul", b.cast(count, torch.float64), operand(b, step, torch.float64))
    return b.cast(b.node("Add", scaled, operand(b, start, torch.float64)), dtype)


@converts("aten.arange.start")
def arange_start(b: ModelBuilder, start: Any, end: Any, **kwargs: Any) -> Value:
    return arange_step(b, start, end, 1)


@converts("aten.arange.default")
def arange(b: ModelBuilder, end: Any, **kwargs: Any) -> Value:
    return arange_step(b, 0, end, 1)


@converts("prims.iota.default")
def iota(b: ModelBuilder, length: Any, *, start: Any, step: Any, **kwargs: Any) -> Value:
    count = b.node("Range", b.scalar(0, torch.int64), operand(b, length, torch.int64), b.scalar(1, torch.int64))
    scaled = b.node("Mul", count, operand(b, step, torch.int64))
    return b.cast(b.node("Add", scaled, operand(b, start, torch.int64)), b.result.dtype)


@converts("aten.tril_indices.default")
def places_below(b: ModelBuilder, rows: int, columns: int, offset: int = 0, **kwargs: Any) -> Value:
    """Row and column of each place on and below a diagonal, a line of each."""
    return _written_places(b, numpy.tri(rows, columns, offset, dtype=bool))


@converts("aten.triu_indices.default")
def places_above(b: ModelBuilder, rows: int, columns: int, offset: int = 0, **kwargs: Any) -> Value:
    return _written_places(b, ~numpy.tri(rows, columns, offset - 1, dtype=bool))


def _written_places(b: ModelBuilder, chosen: Any) -> Value:
    places = numpy.stack(numpy.nonzero(chosen))
    return b.cast(b.constant([int(one) for one in places.flat], torch.int64, places.shape), b.result.dtype)
