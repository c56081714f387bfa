"""Choosing and writing values by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts
from .operands import operand


@converts("aten.embedding.default")
def embedding(b: ModelBuilder, weight: Value, indices: Value, *settings: Any, **more: Any) -> Value:
    return b.node("Gather", weight, _index(b, indices), axis=0)


@converts("aten.embedding_renorm.default")
def embedding_renorm(b: ModelBuilder, weight: Value, indices: Value, max_norm: float, norm_type: float) -> Value:
    """The rows that are read, made no longer than `max_norm`."""
    dtype = weight.dtype
    order = b.scalar(norm_type, dtype)
    powers = b.node("Pow", b.node("Abs", weight), order)
    norm = b.node("Pow", b.node("ReduceSum", powers, b.ints([1]), keepdims=1), b.scalar(1 / norm_type, dtype))
    factor = b.node("Div", b.scalar(max_norm, dtype), b.node("Add", norm, b.scalar(1e-7, dtype)))
    short = b.node("Where", b.node("Greater", norm, b.scalar(max_norm, dtype)), b.node("Mul", weight, factor), weight)
    flat = b.reshape(b.cast(indices, torch.int64), [-1])
    rows = b.node("Gather", short, flat, axis=0)
    return b.node("ScatterND", weight, b.node("Unsqueeze", flat, b.ints([1])), rows)


def _index(b: ModelBuilder, value: Value) -> Value:
    if value.dtype is torch.bool or value.dtype is torch.uint8:
        raise ConversionError("a mask as an index gives as many values as are true")
    return value if value.dtype in (torch.int32, torch.int64) else b.cast(value, torch.int64)


@converts("aten.index_select.default")
def index_select(b: ModelBuilder, x: Value, dim: int, index: Value) -> Value:
    if not x.rank:
        return b.node("Identity", x)
    value = index if index.rank else b.reshape(index, [1])
    return b.node("Gather", x, _index(b, value), axis=dim % x.rank)


@converts("aten.gather.default")
def gather(b: ModelBuilder, x: Value, dim: int, index: Value, **kwargs: Any) -> Value:
    if not x.rank or not index.rank:
        raise ConversionError("an index into a tensor without dimensions")
    return b.node("GatherElements", x, _index(b, index), axis=dim % x.rank)


@converts("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: ModelBuilder, x: Value, indices: Sequence[Value | None]) -> Value:
    """Broadcast index tensors take the place of their dimensions, or come first where a None lies between."""
    dims = [at for at, one in enumerate(indices) if one is not None]
    given = [_index(b, one) for one in indices if one is not None]
    if len(dims) == 1:
        return b.node("Gather", x, given[0], axis=dims[0])
    rest = [axis for axis in range(x.rank) if axis not in dims]
    moved = b.node("Transpose", x, perm=[*dims, *rest])
    chosen = b.node("GatherND", moved, _stacked(b, given, x, dims))
    together = dims == list(range(dims[0], dims[-1] + 1))
    if not together or dims[0] == 0:
        return chosen
    width = max(one.rank for one in given)
    before = dims[0]  # this many of `rest` come before the indexed dimensions
    order = [*range(width, width + before), *range(width), *range(width + before, width + len(rest))]
    return b.node("Transpose", chosen, perm=order)


def _stacked(b: ModelBuilder, given: list[Value], x: Value, dims: list[int]) -> Value:
    """Index tensors broadcast together, side by side in a last dimension, without negative ones."""
    placed = []
    for one, axis in zip(given, dims):
        size = b.size_of(x, axis)
        whole = b.cast(one, torch.int64)
        negative = b.node("Less", whole, b.scalar(0, torch.int64))
        placed.append(b.node("Where", negative, b.node("Add", whole, size), whole))
    if len(placed) > 1:
        total = placed[0]
        for other in placed[1:]:
            total = b.node("Add", total, other)
        shape = b.node("Shape", total)
        placed = [b.node("Expand", one, shape) for one in placed]
    last = b.ints([-1])
    return b.node("Concat", *[b.node("Unsqueeze", one, last) for one in placed], axis=-1)


@converts("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    b: ModelBuilder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    if not indices or any(one is None for one in indices):
        raise ConversionError("writing by indices that are not of the first dimensions")
    given = [_index(b, one) for one in indices if one is not None]
    dims = list(range(len(given)))
    stacked = _stacked(b, given, x, dims)
    places = b.node("Shape", stacked)
    lead = b.node("Slice", places, b.ints([0]), b.ints([-1]), b.ints([0]))
    rest = [
        x.shape[axis] if isinstance(x.shape[axis], int) else b.size_of(x, axis) for axis in range(len(given), x.rank)
    ]
    shape = b.node("Concat", lead, b.shape_vector(rest), axis=0) if rest else lead
    spread = b.node("Expand", b.cast(values, x.dtype), shape)
    reduction = {"reduction": "add"} if accumulate else {}
    return b.node("ScatterND", x, stacked, spread, **reduction)


def _fitted(b: ModelBuilder, source: Value, index: Value) -> Value:
    """The part of `source` that lies over the index."""
    if source.shape == index.shape:
        return source
    ends = b.flat_shape_of(index.fake, (index,))
    return b.node("Slice", source, b.ints([0] * source.rank), ends, b.ints(range(source.rank)))


def _scatter(b: ModelBuilder, x: Value, dim: int, index: Value, source: Value, **reduction: Any) -> Value:
    if not x.rank or index.fake.numel() == 0:
        raise ConversionError("an index without elements or dimensions")
    return b.node("ScatterElements", x, _index(b, index), source, axis=dim % x.rank, **reduction)


@converts("aten.scatter.src")
def scatter(b: ModelBuilder, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter(b, x, dim, index, _fitted(b, b.cast(source, x.dtype).like(source.fake), index))


@converts("aten.scatter.value")
def scatter_value(b: ModelBuilder, x: Value, dim: int, index: Value, value: Any) -> Value:
    spread = b.node("Expand", operand(b, value, x.dtype), b.flat_shape_of(index.fake, (index,)))
    return _scatter(b, x, dim, index, spread)


@converts("aten.scatter_add.default")
def scatter_add(b: ModelBuilder, x: Value, dim: int, index: Value, source: Value) -> Value:
    if x.dtype is torch.bool:
        raise ConversionError("a sum of bools")
    return _scatter(b, x, dim, index, _fitted(b, source, index), reduction="add")


@converts("aten.embedding_dense_backward.default")
def embedding_backward(
    b: ModelBuilder, gradient: Value, indices: Value, rows: Any, padding: Any, scale_by_frequency: bool
) -> Value:
    if scale_by_frequency or padding >= 0 or not isinstance(rows, int):
        raise ConversionError("an embedding with a padding row or scaled gradients")
    width = gradient.shape[-1]
    if not isinstance(width, int):
        raise ConversionError("an embedding of symbolic width")
    zeros = b.node("Expand", b.scalar(0, gradient.dtype), b.ints([rows, width]))
    places = b.reshape(b.cast(indices, torch.int64), [-1, 1])
    return b.node("ScatterND", zeros, places, b.reshape(gradient, [-1, width]), reduction="add")


@converts("aten.nll_loss_forward.default")
def nll_loss_forward(
    b: ModelBuilder, x: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int
) -> tuple[Value, Value]:
    if x.rank != 2 or weight is not None:
        raise ConversionError("a loss of one sample, or with weights for its classes")
    counted = b.node("Not", b.node("Equal", target, b.scalar(ignore_index, target.dtype)))
    safe = b.node("Where", counted, target, b.scalar(0, target.dtype))
    picked = b.node("GatherElements", x, b.node("Unsqueeze", safe, b.ints([1])), axis=1)
    losses = b.node("Where", counted, b.node("Neg", b.node("Squeeze", picked, b.ints([1]))), b.scalar(0, x.dtype))
    count = b.node("ReduceSum", b.cast(counted, x.dtype), b.ints([0]), keepdims=0)
    if reduction == 0:
        return losses, b.scalar(0, x.dtype)
    total = b.node("ReduceSum", losses, b.ints([0]), keepdims=0)
    return (b.node("Div", total, count) if reduction == 1 else total), count


@converts("aten.nll_loss_backward.default")
def nll_loss_backward(
    b: ModelBuilder,
    gradient: Value,
    x: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    total_weight: Value,
) -> Value:
    if x.rank != 2 or weight is not None:
        raise ConversionError("a loss of one sample, or with weights for its classes")
    counted = b.node("Not", b.node("Equal", target, b.scalar(ignore_index, target.dtype)))
    safe = b.node("Where", counted, target, b.scalar(0, target.dtype))
    share = b.node("Neg", b.node("Div", gradient, total_weight) if reduction == 1 else gradient)
    each = b.node("Where", counted, share, b.scalar(0, x.dtype))
    zeros = b.node("Expand", b.scalar(0, x.dtype), b.flat_shape_of(x.fake, (x,)))
    last = b.ints([1])
    return b.node("ScatterElements", zeros, b.node("Unsqueeze", safe, last), b.node("Unsqueeze", each, last), axis=1)
