"""Sums, means, extremes, counts, scans and orders along dimensions."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts
from .operands import axes_of


def _reduce(b: ModelBuilder, name: str, x: Value, dims: Any, keepdim: bool) -> Value:
    axes = axes_of(dims, x.rank)
    if not axes:
        return b.node("Identity", x)
    return b.node(name, x, b.ints(axes), keepdims=int(keepdim))


_LONG = 4096  # values that a running sum in the tensor's own float type still adds precisely enough
_EXACT = 2**21  # 32-bit integers whose sum a double holds


def _counted(x: Value, dims: Any) -> int | None:
    """How many values are reduced to one, None where a size is symbolic."""
    count = 1
    for axis in axes_of(dims, x.rank):
        if not isinstance(x.shape[axis], int):
            return None
        count *= x.shape[axis]
    return count


def _summed(b: ModelBuilder, name: str, x: Value, dims: Any, keepdim: bool) -> Value:
    """A sum or mean. Long ones are taken in float64: runtimes add one value after the other, torch in blocks."""
    dtype, count = b.result.dtype, _counted(x, dims)
    if not dtype.is_floating_point:
        if x.dtype is torch.int64 or count is None or count > _EXACT:
            raise ConversionError("runtimes add integers as doubles, which round what is beyond 2**53")
        return _reduce(b, name, b.cast(x, dtype).like(x.fake), dims, keepdim)
    long = dtype is torch.float32 and (count is None or count > _LONG)
    if long and not b.target.computes(name, torch.float64):
        raise ConversionError(f"{b.target.name} adds one value after the other: a long sum loses digits")
    return b.cast(_reduce(b, name, b.cast(x, torch.float64 if long else dtype).like(x.fake), dims, keepdim), dtype)


@converts("aten.sum.dim_IntList", "aten.sum.default")
def sum_(b: ModelBuilder, x: Value, dims: Any = None, keepdim: bool = False, **kwargs: Any) -> Value:
    return _summed(b, "ReduceSum", x, dims, keepdim)


@converts("aten.mean.dim", "aten.mean.default")
def mean(b: ModelBuilder, x: Value, dims: Any = None, keepdim: bool = False, **kwargs: Any) -> Value:
    if _counted(x, dims) == 0:
        return _unknown(b, b.result)
    return _summed(b, "ReduceMean", x, dims, keepdim)


@converts("aten.prod.default", "aten.prod.dim_int")
def prod(b: ModelBuilder, x: Value, dims: Any = None, keepdim: bool = False, **kwargs: Any) -> Value:
    if not b.result.dtype.is_floating_point:
        raise ConversionError("runtimes multiply integers as doubles, which don't wrap")
    return _reduce(b, "ReduceProd", b.cast(x, b.result.dtype).like(x.fake), dims, keepdim)


def _count(x: Value, axes: list[int]) -> int:
    count = 1
    for axis in axes:
        if not isinstance(x.shape[axis], int):
            raise ConversionError("a variance over a symbolic size")
        count *= x.shape[axis]
    return count


def _unknown(b: ModelBuilder, fake: torch.Tensor) -> Value:
    """NaN in each place: what a mean or variance of no values is."""
    return b.node("Expand", b.scalar(math.nan, fake.dtype), b.flat_shape_of(fake))


def _variance(b: ModelBuilder, x: Value, dims: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    axes = axes_of(dims, x.rank)
    count = _count(x, axes)
    free = count - (1 if correction is None else correction)
    if not count:
        fakes = b.result if isinstance(b.result, (tuple, list)) else [b.result] * 2
        return _unknown(b, fakes[0]), _unknown(b, fakes[1])
    if not axes:  # one number is no distance from itself
        apart = b.node("Sub", x, x)
        return b.node("Div", apart, b.scalar(max(free, 0), x.dtype)), b.node("Identity", x)
    long = count > _LONG and x.dtype is torch.float32
    if long and not b.target.computes("ReduceSum", torch.float64):
        raise ConversionError(f"{b.target.name} adds one value after the other: a long sum loses digits")
    wide = b.cast(x, torch.float64) if long else x
    center = b.node("ReduceMean", wide, b.ints(axes), keepdims=1)
    apart = b.node("Sub", wide, center)
    total = b.node("ReduceSum", b.node("Mul", apart, apart), b.ints(axes), keepdims=int(keepdim))
    flat = center if keepdim else b.node("Squeeze", center, b.ints(axes))
    return b.cast(b.node("Div", total, b.scalar(max(free, 0), wide.dtype)), x.dtype), b.cast(flat, x.dtype)


@converts("aten.var.correction")
def var(b: ModelBuilder, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    return _variance(b, x, dims, correction, keepdim)[0]


@converts("aten.var_mean.correction")
def var_mean(
    b: ModelBuilder, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[Value, Value]:
    return _variance(b, x, dims, correction, keepdim)


@converts("aten.std.correction")
def std(b: ModelBuilder, x: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    return b.node("Sqrt", _variance(b, x, dims, correction, keepdim)[0])


def _extreme(b: ModelBuilder, x: Value, dims: Any, keepdim: bool, *, greatest: bool) -> Value:
    """Along dimensions; NaN where one is among the values, which runtimes are free to drop."""
    axes = axes_of(dims, x.rank)
    if any(x.shape[axis] == 0 for axis in axes):
        raise ConversionError("an extreme of no values raises in eager")
    if x.dtype is torch.bool:
        whole = _extreme(b, b.cast(x, torch.int32).like(x.fake), dims, keepdim, greatest=greatest)
        return b.cast(whole, torch.bool)
    result = _reduce(b, "ReduceMax" if greatest else "ReduceMin", x, axes, keepdim)
    if not axes or not x.dtype.is_floating_point:
        return result
    unknown = b.cast(b.node("IsNaN", x), torch.int32).like(x.fake)
    found = b.cast(_reduce(b, "ReduceMax", unknown, axes, keepdim), torch.bool)
    return b.node("Where", found, b.scalar(float("nan"), x.dtype), result)


@converts("aten.amax.default", "aten.max.default")
def amax(b: ModelBuilder, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return _extreme(b, x, dims, keepdim, greatest=True)


@converts("aten.amin.default", "aten.min.default")
def amin(b: ModelBuilder, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return _extreme(b, x, dims, keepdim, greatest=False)


def _truth(b: ModelBuilder, x: Value) -> Value:
    return b.cast(b.cast(x, torch.bool), torch.int32).like(x.fake)


@converts("aten.any.dim", "aten.any.dims", "aten.any.default")
def any_(b: ModelBuilder, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    total = _reduce(b, "ReduceSum", b.cast(_truth(b, x), torch.int64).like(x.fake), dims, keepdim)
    return b.cast(b.cast(total, torch.bool), b.result.dtype)


@converts("aten.all.dim", "aten.all.dims", "aten.all.default")
def all_(b: ModelBuilder, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    false = b.cast(b.node("Not", b.cast(x, torch.bool)), torch.int64).like(x.fake)
    total = _reduce(b, "ReduceSum", false, dims, keepdim)
    return b.cast(b.node("Equal", total, b.scalar(0, torch.int64)), b.result.dtype)


@converts("aten.argmax.default")
def argmax(b: ModelBuilder, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _argument(b, x, dim, keepdim, greatest=True)


@converts("aten.argmin.default")
def argmin(b: ModelBuilder, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _argument(b, x, dim, keepdim, greatest=False)


def _argument(b: ModelBuilder, x: Value, dim: Any, keepdim: bool, *, greatest: bool) -> Value:
    """The first place of the extreme; the first NaN comes before every number."""
    if not x.rank:
        return b.scalar(0, torch.int64)
    value, axis = (b.reshape(x, [-1]), 0) if dim is None else (x, dim % x.rank)
    if dim is None and x.fake.numel() == 0 or dim is not None and x.shape[axis] == 0:
        raise ConversionError("an extreme of no values raises in eager")
    name = "ArgMax" if greatest else "ArgMin"
    keep = int(keepdim and dim is not None)
    result = b.node(name, value, axis=axis, keepdims=keep)
    if x.dtype.is_floating_point:
        unknown = b.cast(b.node("IsNaN", value), torch.int32)
        first = b.node("ArgMax", unknown, axis=axis, keepdims=keep)
        found = b.cast(b.node("ReduceMax", unknown, b.ints([axis]), keepdims=keep), torch.bool)
        result = b.node("Where", found, first, result)
    return b.reshape(result, [1] * x.rank) if keepdim and dim is None else result


@converts("aten.max.dim")
def max_dim(b: ModelBuilder, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    places = _argument(b, x, dim, keepdim, greatest=True)
    return _extreme(b, x, [dim], keepdim, greatest=True), places


@converts("aten.min.dim")
def min_dim(b: ModelBuilder, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    places = _argument(b, x, dim, keepdim, greatest=False)
    return _extreme(b, x, [dim], keepdim, greatest=False), places


@converts("aten.cumsum.default")
def cumsum(b: ModelBuilder, x: Value, dim: int, **kwargs: Any) -> Value:
    value = b.cast(x, b.result.dtype)
    if not x.rank:
        return b.node("Identity", value)
    return b.node("CumSum", value, b.scalar(dim % x.rank, torch.int64))


@converts("aten.cumprod.default")
def cumprod(b: ModelBuilder, x: Value, dim: int, **kwargs: Any) -> Value:
    value = b.cast(x, b.result.dtype)
    if not x.rank:
        return b.node("Identity", value)
    if b.target.opset < 26:
        raise ConversionError("running products came with ONNX's operator set 26")
    return b.node("CumProd", value, b.scalar(dim % x.rank, torch.int64))


@converts("aten.linalg_vector_norm.default")
def vector_norm(
    b: ModelBuilder, x: Value, order: Any = 2, dims: Any = None, keepdim: bool = False, **kwargs: Any
) -> Value:
    dtype = b.result.dtype
    value = b.cast(x, dtype).like(x.fake.to(dtype))
    size = b.node("Abs", value).like(value.fake)
    if order in (math.inf, -math.inf):
        return _extreme(b, size, dims, keepdim, greatest=order > 0)
    if order == 0:
        other = b.node("Not", b.node("Equal", value, b.scalar(0, dtype)))
        return _summed(b, "ReduceSum", b.cast(other, dtype).like(value.fake), dims, keepdim)
    if _counted(value, dims) == 1:
        return _reduce(b, "ReduceSum", size, dims, keepdim)
    if order == 1:
        return _summed(b, "ReduceSum", size, dims, keepdim)
    power = b.node("Mul", size, size) if order == 2 else b.node("Pow", size, b.scalar(order, dtype))
    total = _summed(b, "ReduceSum", power.like(value.fake), dims, keepdim)
    return b.node("Sqrt", total) if order == 2 else b.node("Pow", total, b.scalar(1 / order, dtype))


@converts("aten.softmax.int", "aten._softmax.default")
def softmax(b: ModelBuilder, x: Value, dim: int, half_to_float: bool = False) -> Value:
    value = b.cast(x, b.result.dtype)
    return b.node("Softmax", value, axis=dim % x.rank) if x.rank else _of_one(b, value)


def _of_one(b: ModelBuilder, x: Value) -> Value:
    """The softmax of one number: 1, or NaN where the number is not finite."""
    return b.node("Exp", b.node("Sub", x, x))


@converts("aten._log_softmax.default")
def log_softmax(b: ModelBuilder, x: Value, dim: int, half_to_float: bool = False) -> Value:
    value = b.cast(x, b.result.dtype)
    return b.node("LogSoftmax", value, axis=dim % x.rank) if x.rank else b.node("Sub", value, value)


@converts("aten._softmax_backward_data.default")
def softmax_backward(b: ModelBuilder, gradient: Value, output: Value, dim: int, dtype: Any) -> Value:
    weighted = b.node("Mul", gradient, output)
    if not output.rank:
        return b.node("Sub", weighted, b.node("Mul", output, weighted))
    total = b.node("ReduceSum", weighted, b.ints([dim % output.rank]), keepdims=1)
    return b.cast(b.node("Sub", weighted, b.node("Mul", output, total)), b.result.dtype)


@converts("aten._log_softmax_backward_data.default")
def log_softmax_backward(b: ModelBuilder, gradient: Value, output: Value, dim: int, dtype: Any) -> Value:
    if not output.rank:
        raise ConversionError("the gradient of a log_softmax of one number")
    total = b.node("ReduceSum", gradient, b.ints([dim % output.rank]), keepdims=1)
    return b.cast(b.node("Sub", gradient, b.node("Mul", b.node("Exp", output), total)), b.result.dtype)
