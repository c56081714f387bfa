"""Choosing and writing values by index tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..failures import placed_error
from ..registry import converts
from .operands import operand


@converts("aten.embedding.default")
def embedding(b: ModelBuilder, weight: Value, indices: Value, *settings: Any, **more: Any) -> Value:
    return b.node("Gather", weight, _places(b, indices, weight, 0), axis=0)


@converts("aten.embedding_renorm.default")
def embedding_renorm(b: ModelBuilder, weight: Value, indices: Value, max_norm: float, norm_type: float) -> Value:
    """The rows that are read, made no longer than `max_norm`."""
    dtype = weight.dtype
    order = b.scalar(norm_type, dtype)
    powers = b.node("Pow", b.node("Abs", weight), order)
    norm = b.node("Pow", b.node("ReduceSum", powers, b.ints([1]), keepdims=1), b.scalar(1 / norm_type, dtype))
    factor = b.node("Div", b.scalar(max_norm, dtype), b.node("Add", norm, b.scalar(1e-7, dtype)))
    short = b.node("Where", b.node("Greater", norm, b.scalar(max_norm, dtype)), b.node("Mul", weight, factor), weight)
    flat = b.reshape(b.cast(_places(b, indices, weight, 0), torch.int64), [-1])
    rows = b.node("Gather", short, flat, axis=0)
    return b.node("ScatterND", weight, b.node("Unsqueeze", flat, b.ints([1])), rows)


@converts("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    b: ModelBuilder,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_by_frequency: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Value | None = None,
    include_last_offset: bool = False,
    padding: int = -1,
) -> tuple[Value, None, None, None]:
    """Sums or means of the rows of each bag, which begins at its offset. What a backward would need is not made."""
    width, bags = weight.shape[1], offsets.shape[0]
    if mode > 1 or weights is not None or include_last_offset or padding >= 0 or any(b.wanted(at) for at in (1, 2, 3)):
        raise ConversionError("bags of an embedding by maximum, with weights, a padding row or a last offset")
    if not all(isinstance(size, int) for size in (width, bags, indices.shape[0])) or weight.dtype not in _WIDE:
        raise ConversionError("bags of an embedding of a symbolic size, or of 16-bit floats")
    starts = b.cast(offsets, torch.int64)
    first = b.node("Gather", starts, b.scalar(0, torch.int64), axis=0)
    wrong = b.node("Not", b.node("Equal", first, b.scalar(0, torch.int64)))
    b.raise_where(wrong, "RuntimeError", "the first bag does not begin at the first index")
    spots = b.constant(list(range(indices.shape[0])), torch.int64, [indices.shape[0], 1])
    begun = b.cast(b.node("LessOrEqual", b.node("Unsqueeze", starts, b.ints([0])), spots), torch.int64)
    bag = b.node("Sub", b.node("ReduceSum", begun, b.ints([1]), keepdims=1), b.scalar(1, torch.int64))
    rows = b.node("Gather", weight, _places(b, indices, weight, 0), axis=0)
    zeros = b.node("Expand", b.scalar(0, weight.dtype), b.ints([bags, width]))
    total = b.node("ScatterND", zeros, bag, rows, reduction="add")
    if mode == 1:
        ones = b.node("Expand", b.scalar(1, weight.dtype), b.ints([indices.shape[0], 1]))
        none = b.node("Expand", b.scalar(0, weight.dtype), b.ints([bags, 1]))
        counts = b.node("ScatterND", none, bag, ones, reduction="add")
        total = b.node("Div", total, b.node("Max", counts, b.scalar(1, weight.dtype)))
    return total, None, None, None


def _index(b: ModelBuilder, value: Value) -> Value:
    if value.dtype is torch.bool or value.dtype is torch.uint8:
        raise ConversionError("a mask as an index gives as many values as are true")
    return value if value.dtype in (torch.int32, torch.int64) else b.cast(value, torch.int64)


_WIDE = (torch.float32, torch.float64)
OUTSIDE = "an index is out of range"


def _places(b: ModelBuilder, index: Value, x: Value, axis: int, *, negative: bool = False) -> Value:
    """An index along an axis of `x`, on which a run fails where eager does: outside of the tensor, and below zero
    unless a negative one counts from the end."""
    value = _index(b, index)
    if not b.target.checks_places:
        if not b.target.questions:
            return value
        size = b.cast(b.size_of(x, axis), value.dtype) if x.rank else None
        return _asked(b, value.like(index.fake), size, negative)
    if negative:
        return value
    far = b.scalar(torch.iinfo(value.dtype).max, value.dtype)
    return b.node("Where", b.node("Less", value, b.scalar(0, value.dtype)), far, value).like(index.fake)


def _asked(b: ModelBuilder, value: Value, size: Value | None, negative: bool) -> Value:
    """The places, with 0 for those outside, and a question whether there were any: a runtime that checks nothing
    reads what lies beside the tensor, and one that stops on its own leaves the question unanswered."""
    if not (b.target.computes("Less", value.dtype) and b.target.computes("Where", value.dtype)):
        value = b.cast(value, torch.int32).like(value.fake)
        size = None if size is None else b.cast(size, torch.int32)
    zero, end = b.scalar(0, value.dtype), b.scalar(1, value.dtype) if size is None else size
    below = b.node("Less", value, b.node("Neg", end) if negative else zero)
    wrong = b.node("Or", below, b.node("Not", b.node("Less", value, end)))
    b.raise_where(wrong, placed_error(b.origin[1]), OUTSIDE)
    return b.node("Where", wrong, zero, value).like(value.fake)


@converts("aten.index_select.default")
def index_select(b: ModelBuilder, x: Value, dim: int, index: Value) -> Value:
    if not x.rank:
        return b.node("Identity", x)
    places = _places(b, index, x, dim % x.rank)
    return b.node("Gather", x, places if index.rank else b.reshape(places, [1]), axis=dim % x.rank)


@converts("aten.gather.default")
def gather(b: ModelBuilder, x: Value, dim: int, index: Value, **kwargs: Any) -> Value:
    axis = dim % x.rank if x.rank else 0
    places = _places(b, index, x, axis)
    if not x.rank or not index.rank:
        chosen = b.node("GatherElements", _line(b, x), _line(b, places.like(index.fake)), axis=0)
        return b.reshape(chosen, list(index.shape))
    return b.node("GatherElements", x, places, axis=axis)


def _line(b: ModelBuilder, x: Value) -> Value:
    """A number as a vector of one."""
    return x if x.rank else b.reshape(x, [1])


@converts("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(b: ModelBuilder, x: Value, indices: Sequence[Value | None]) -> Value:
    """Broadcast index tensors take the place of their dimensions, or come first where a None lies between."""
    dims = [at for at, one in enumerate(indices) if one is not None]
    given = [_places(b, one, x, at, negative=True) for at, one in enumerate(indices) if one is not None]
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
    """Index tensors broadcast together, side by side in a last dimension; without negative ones, but where the target
    tells those that count from the end from those outside."""
    placed = []
    for one, axis in zip(given, dims):
        whole = b.cast(one, torch.int64)
        if b.target.checks_places:
            placed.append(whole)
            continue
        size = b.size_of(x, axis)
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
    kind = x.dtype
    dims = [at for at, one in enumerate(indices) if one is not None]
    chosen = [one for one in indices if one is not None]
    if any(one.dtype in (torch.bool, torch.uint8) for one in chosen):
        return _put_by_mask(b, x, dims[0], chosen, values, accumulate)
    if accumulate and kind is torch.bool:
        raise ConversionError("a sum of bools")
    wide = torch.float32 if accumulate and kind in (torch.float16, torch.bfloat16) else kind
    given = [_places(b, one, x, at, negative=True).like(one.fake) for at, one in zip(dims, chosen)]
    front = dims == list(range(len(dims)))
    rest = [axis for axis in range(x.rank) if axis not in dims]
    order = [*dims, *rest]
    target, value = b.cast(x, wide), b.cast(values, wide)
    moved = target if front else b.node("Transpose", target, perm=order)
    stacked = _stacked(b, given, x, dims)
    if front:
        places = b.node("Shape", stacked)
        lead = b.node("Slice", places, b.ints([0]), b.ints([-1]), b.ints([0]))
        sizes = [x.shape[axis] if isinstance(x.shape[axis], int) else b.size_of(x, axis) for axis in rest]
        shape = b.node("Concat", lead, b.shape_vector(sizes), axis=0) if sizes else lead
        spread = b.node("Expand", value, shape)
    else:
        spread = _spread_behind(b, value, x, given, dims, rest)
    reduction = {"reduction": "add"} if accumulate else {}
    written = b.node("ScatterND", moved, stacked, spread, **reduction)
    if not front:
        written = b.node("Transpose", written, perm=[order.index(axis) for axis in range(x.rank)])
    return b.cast(written, kind)


def _spread_behind(
    b: ModelBuilder, value: Value, x: Value, given: list[Value], dims: list[int], rest: list[int]
) -> Value:
    """Values in the shape that the indexing has, with the axes of the indices moved to the front."""
    sizes = [*x.shape, *(size for one in given for size in one.shape)]
    if not all(isinstance(size, int) for size in sizes):
        raise ConversionError("writing behind the first dimensions of a symbolic size")
    lead = list(torch.broadcast_shapes(*(one.shape for one in given)))  # type: ignore[no-untyped-call]
    together = dims == list(range(dims[0], dims[-1] + 1))
    before = [x.shape[axis] for axis in rest if axis < dims[0]] if together else []
    after = [x.shape[axis] for axis in rest][len(before) :]
    spread = b.node("Expand", value, b.ints([*before, *lead, *after]))
    width, skipped = len(lead), len(before)
    ends = range(skipped + width, skipped + width + len(after))
    return b.node("Transpose", spread, perm=[*range(skipped, skipped + width), *range(skipped), *ends])


def _put_by_mask(b: ModelBuilder, x: Value, first: int, chosen: list[Value], values: Value, accumulate: bool) -> Value:
    """Where one mask is true, values that are the same for all of its places."""
    mask = chosen[0]
    if len(chosen) > 1 or mask.dtype is not torch.bool:
        raise ConversionError("a mask among other indices")
    behind = x.rank - first - mask.rank
    value, at = b.cast(values, x.dtype), values.rank - behind - 1
    if at >= 0 and values.shape[at] != 1:
        raise ConversionError("a mask as an index takes as many values as are true")
    if at >= 0 and mask.rank != 1:
        sizes = list(values.shape)
        value = b.reshape(value, [*sizes[:at], *[1] * mask.rank, *sizes[at + 1 :]])
    if accumulate:
        value = b.node("Or" if x.dtype is torch.bool else "Add", x, value)
    condition = b.node("Unsqueeze", mask, b.ints([mask.rank + at for at in range(behind)])) if behind else mask
    return b.select(condition, value, x)


def _fitted(b: ModelBuilder, source: Value, index: Value) -> Value:
    """The part of `source` that lies over the index."""
    if source.shape == index.shape:
        return source
    ends = b.flat_shape_of(index.fake, (index,))
    return b.node("Slice", source, b.ints([0] * source.rank), ends, b.ints(range(source.rank)))


def _scatter(b: ModelBuilder, x: Value, dim: int, index: Value, source: Value, reduction: str = "none") -> Value:
    if index.fake.numel() == 0:
        return b.node("Identity", x)
    kind = x.dtype
    if reduction != "none" and kind is torch.bool:
        raise ConversionError("a sum or product of bools")
    wide = torch.float32 if reduction != "none" and kind in (torch.float16, torch.bfloat16) else kind
    axis = dim % x.rank if x.rank else 0
    places = _line(b, _places(b, index, x, axis).like(index.fake))
    line, written = _line(b, b.cast(x, wide).like(x.fake)), _line(b, b.cast(source, wide).like(index.fake))
    how = {} if reduction == "none" else {"reduction": reduction}
    result = b.node("ScatterElements", line, places, written, axis=axis, **how)
    return b.cast(result if x.rank else b.reshape(result, []), kind)


@converts("aten.scatter.src")
def scatter(b: ModelBuilder, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter(b, x, dim, index, _fitted(b, b.cast(source, x.dtype).like(source.fake), index))


@converts("aten.scatter.value")
def scatter_value(b: ModelBuilder, x: Value, dim: int, index: Value, value: Any) -> Value:
    spread = b.node("Expand", operand(b, value, x.dtype), b.flat_shape_of(index.fake, (index,)))
    return _scatter(b, x, dim, index, spread)


_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul"}


@converts("aten.scatter.reduce")
def scatter_reduced(b: ModelBuilder, x: Value, dim: int, index: Value, source: Value, *, reduce: str) -> Value:
    return _scatter(b, x, dim, index, _fitted(b, b.cast(source, x.dtype).like(source.fake), index), _REDUCTIONS[reduce])


@converts("aten.scatter.value_reduce")
def scatter_value_reduced(b: ModelBuilder, x: Value, dim: int, index: Value, value: Any, *, reduce: str) -> Value:
    spread = b.node("Expand", operand(b, value, x.dtype), b.flat_shape_of(index.fake, (index,)))
    return _scatter(b, x, dim, index, spread, _REDUCTIONS[reduce])


@converts("aten.scatter_reduce.two")
def scatter_reduce(
    b: ModelBuilder, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if reduce not in _REDUCTIONS or not include_self:
        raise ConversionError("values gathered by extremes or means, or without those that are there")
    return _scatter(b, x, dim, index, _fitted(b, source, index), _REDUCTIONS[reduce])


@converts("aten.masked_scatter.default")
def masked_scatter(b: ModelBuilder, x: Value, mask: Value, source: Value) -> Value:
    """Each true place takes the value whose number is the count of true places before it."""
    shape = b.result.shape
    if not all(isinstance(size, int) for size in (*shape, *mask.shape, *source.shape)):
        raise ConversionError("a mask of a symbolic size")
    if source.fake.numel() < b.result.numel():
        raise ConversionError("eager raises where a mask is true more often than there are values")
    wide = b.node("Expand", mask, b.ints(shape))
    order = b.node("CumSum", b.cast(b.reshape(wide, [-1]), torch.int64), b.scalar(0, torch.int64), exclusive=1)
    taken = b.node("Gather", b.reshape(source, [-1]), b.reshape(order, list(shape)), axis=0)
    return b.select(wide, taken, x)


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
    safe = _places(b, safe.like(target.fake), x, 1)
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
