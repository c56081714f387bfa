"""Normalisations and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


@converts("aten.native_layer_norm.default")
def native_layer_norm(
    b: ModelBuilder, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value | None, Value | None]:
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        raise ConversionError("a normalisation without elements")
    if not all(isinstance(size, int) for size in shape):
        raise ConversionError("a normalisation over a symbolic size")
    axis = x.rank - len(shape)
    parts = [b.cast(value, x.dtype) if value is not None else None for value in (weight, bias)]
    if b.wanted(1) or b.wanted(2) or x.dtype is torch.float64:  # the operator's eps is a float32
        return _with_statistics(b, x, list(range(axis, x.rank)), parts, eps)
    scale = parts[0] if parts[0] is not None else b.constant([1.0] * _product(shape), x.dtype, list(shape))
    return b.node("LayerNormalization", x, scale, parts[1], axis=axis, epsilon=eps), None, None


def _with_statistics(
    b: ModelBuilder, x: Value, axes: list[int], parts: list[Value | None], eps: float
) -> tuple[Value, Value, Value]:
    """By sums: not every runtime has the optional results of LayerNormalization."""
    center = b.node("ReduceMean", x, b.ints(axes), keepdims=1)
    apart = b.node("Sub", x, center)
    spread = b.node("ReduceMean", b.node("Mul", apart, apart), b.ints(axes), keepdims=1)
    inverse = b.node("Reciprocal", b.node("Sqrt", b.node("Add", spread, b.scalar(eps, x.dtype))))
    result = b.node("Mul", apart, inverse)
    if parts[0] is not None:
        result = b.node("Mul", result, parts[0])
    return (b.node("Add", result, parts[1]) if parts[1] is not None else result), center, inverse


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _per_channel(b: ModelBuilder, value: Value, rank: int) -> Value:
    """A vector over dimension 1 of a tensor of `rank` dimensions."""
    return b.reshape(value, [1, -1, *[1] * (rank - 2)])


@converts("aten.native_batch_norm.default", "aten._native_batch_norm_legit_no_training.default")
def native_batch_norm(
    b: ModelBuilder, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, *rest: Any
) -> tuple[Value, Value | None, Value | None]:
    """With the running statistics. What it would save for a backward is empty then."""
    training, eps = (rest[0], rest[2]) if len(rest) == 3 else (False, rest[1])
    if training and (mean is not None or var is not None):
        raise ConversionError("a batch normalisation that updates its statistics")
    if training:
        return _by_batch(b, x, weight, bias, eps)
    if not isinstance(x.shape[1], int) or any(size == 0 for size in x.shape if isinstance(size, int)):
        raise ConversionError("a normalisation without elements or of symbolic channels")
    if mean is None or var is None:
        raise ConversionError("a batch normalisation without statistics")
    kind = mean.dtype
    channels = x.shape[1]
    scale = weight if weight is not None else b.constant([1.0] * channels, kind)
    shift = bias if bias is not None else b.constant([0.0] * channels, kind)
    parts = [b.cast(value, x.dtype) for value in (scale, shift, mean, var)]
    if x.dtype is torch.float64:  # the operator's eps is a float32
        gain, base, center, spread = [_per_channel(b, part, x.rank) for part in parts]
        inverse = b.node("Reciprocal", b.node("Sqrt", b.node("Add", spread, b.scalar(eps, x.dtype))))
        return b.node("Add", b.node("Mul", b.node("Sub", x, center), b.node("Mul", inverse, gain)), base), None, None
    return b.node("BatchNormalization", x, *parts, epsilon=eps), None, None


def _by_batch(
    b: ModelBuilder, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """With the statistics of the batch itself, kept nowhere."""
    result, center, inverse, _, _ = _batch_statistics(b, x, weight, bias, eps)
    return result, b.reshape(center, [x.shape[1]]), b.reshape(inverse, [x.shape[1]])


def _batch_statistics(
    b: ModelBuilder, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value, int]:
    """The normalised values, mean, inverse deviation and variance of each channel, and how many values it has."""
    sizes, kind = x.shape, x.dtype
    if not all(isinstance(size, int) and size for size in sizes):
        raise ConversionError("statistics of a batch of symbolic size")
    axes = [0, *range(2, x.rank)]
    center = b.node("ReduceMean", x, b.ints(axes), keepdims=1)
    apart = b.node("Sub", x, center)
    spread = b.node("ReduceMean", b.node("Mul", apart, apart), b.ints(axes), keepdims=1)
    inverse = b.node("Reciprocal", b.node("Sqrt", b.node("Add", spread, b.scalar(eps, kind))))
    result = b.node("Mul", apart, inverse)
    if weight is not None:
        result = b.node("Mul", result, _per_channel(b, b.cast(weight, kind), x.rank))
    if bias is not None:
        result = b.node("Add", result, _per_channel(b, b.cast(bias, kind), x.rank))
    return result, center, inverse, spread, _product([sizes[axis] for axis in axes])


@converts("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    b: ModelBuilder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """The normalised values, the batch's mean and inverse deviation, and the new running statistics."""
    if not training:
        raise ConversionError("a functional normalisation without training")
    result, center, inverse, spread, count = _batch_statistics(b, x, weight, bias, eps)
    if count < 2:
        raise ConversionError("statistics of one value")
    kind, sizes = x.dtype, x.shape
    flat_center, flat_inverse, flat_spread = (b.reshape(value, [sizes[1]]) for value in (center, inverse, spread))
    unbiased = b.node("Mul", flat_spread, b.scalar(count / (count - 1), kind))
    new_mean = _moved(b, mean, flat_center, momentum)
    new_var = _moved(b, var, unbiased, momentum)
    return result, flat_center, flat_inverse, new_mean, new_var


def _moved(b: ModelBuilder, old: Value, new: Value, momentum: float) -> Value:
    fresh = b.node("Mul", b.cast(new, old.dtype), b.scalar(momentum, old.dtype))
    return b.node("Add", b.node("Mul", old, b.scalar(1 - momentum, old.dtype)), fresh)


@converts("aten.native_group_norm.default")
def native_group_norm(
    b: ModelBuilder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    batch: Any,
    channels: Any,
    places: Any,
    group: int,
    eps: float,
) -> tuple[Value, Value, Value]:
    if not all(isinstance(size, int) and size for size in x.shape):
        raise ConversionError("groups of a symbolic size")
    flat = b.reshape(x, [batch, group, -1])
    axes = b.ints([2])
    center = b.node("ReduceMean", flat, axes, keepdims=1)
    apart = b.node("Sub", flat, center)
    spread = b.node("ReduceMean", b.node("Mul", apart, apart), axes, keepdims=1)
    inverse = b.node("Reciprocal", b.node("Sqrt", b.node("Add", spread, b.scalar(eps, x.dtype))))
    result = b.reshape(b.node("Mul", apart, inverse), list(x.shape))
    if weight is not None:
        result = b.node("Mul", result, _per_channel(b, b.cast(weight, x.dtype), x.rank))
    if bias is not None:
        result = b.node("Add", result, _per_channel(b, b.cast(bias, x.dtype), x.rank))
    return result, b.reshape(center, [batch, group]), b.reshape(inverse, [batch, group])


@converts("aten.native_layer_norm_backward.default")
def native_layer_norm_backward(
    b: ModelBuilder,
    gradient: Value,
    x: Value,
    shape: Sequence[Any],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    if not all(isinstance(size, int) for size in shape):
        raise ConversionError("a normalisation over a symbolic size")
    kind = x.dtype
    first = x.rank - len(shape)
    inner, outer = list(range(first, x.rank)), list(range(first))
    normal = b.node("Mul", b.node("Sub", x, b.cast(mean, kind)), b.cast(rstd, kind))
    of_x = of_weight = of_bias = None
    if mask[0]:
        scaled = b.node("Mul", gradient, b.cast(weight, kind)) if weight is not None else gradient
        average = b.node("ReduceMean", scaled, b.ints(inner), keepdims=1)
        along = b.node("ReduceMean", b.node("Mul", scaled, normal), b.ints(inner), keepdims=1)
        rest = b.node("Sub", b.node("Sub", scaled, average), b.node("Mul", normal, along))
        of_x = b.node("Mul", rest, b.cast(rstd, kind))
    if mask[1] and weight is not None:
        of_weight = _summed(b, b.node("Mul", gradient, normal), outer)
    if mask[2] and bias is not None:
        of_bias = _summed(b, gradient, outer)
    return of_x, of_weight, of_bias


def _summed(b: ModelBuilder, value: Value, axes: list[int]) -> Value:
    return b.node("ReduceSum", value, b.ints(axes), keepdims=0) if axes else b.node("Identity", value)


@converts("aten.native_batch_norm_backward.default")
def native_batch_norm_backward(
    b: ModelBuilder,
    gradient: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    saved_mean: Value | None,
    saved_inverse: Value | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    kind = x.dtype
    axes = b.ints([0, *range(2, x.rank)])
    if training:
        assert saved_mean is not None and saved_inverse is not None
        center, inverse = saved_mean, saved_inverse
    else:
        assert running_mean is not None and running_var is not None
        center = running_mean
        inverse = b.node("Reciprocal", b.node("Sqrt", b.node("Add", running_var, b.scalar(eps, running_var.dtype))))
    inverse = _per_channel(b, b.cast(inverse, kind), x.rank)
    normal = b.node("Mul", b.node("Sub", x, _per_channel(b, b.cast(center, kind), x.rank)), inverse)
    of_weight = b.node("ReduceSum", b.node("Mul", gradient, normal), axes, keepdims=0)
    of_bias = b.node("ReduceSum", gradient, axes, keepdims=0)
    of_x = None
    if mask[0]:
        rest = gradient
        if training:
            average = b.node("ReduceMean", gradient, axes, keepdims=1)
            along = b.node("ReduceMean", b.node("Mul", gradient, normal), axes, keepdims=1)
            rest = b.node("Sub", b.node("Sub", gradient, average), b.node("Mul", normal, along))
        of_x = b.node("Mul", rest, inverse)
        if weight is not None:
            of_x = b.node("Mul", of_x, _per_channel(b, b.cast(weight, kind), x.rank))
    return of_x, of_weight if mask[1] else None, of_bias if mask[2] else None
