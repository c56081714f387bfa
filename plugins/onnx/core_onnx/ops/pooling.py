"""Pooling over windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts
from .windows import adaptive_spans, averaged, flat_windows, gathered, spans, table


def _full(values: Sequence[int], dims: int) -> list[int]:
    given = [int(value) for value in values]
    return given * dims if len(given) == 1 else given


def _batched(b: ModelBuilder, x: Value, dims: int) -> Value:
    """With a batch in front, which ONNX's pools ask for."""
    return b.node("Unsqueeze", x, b.ints([0])) if x.rank == dims + 1 else x


def _without(b: ModelBuilder, value: Value, x: Value, dims: int) -> Value:
    return b.node("Squeeze", value, b.ints([0])) if x.rank == dims + 1 else value


def _check_elements(x: Value) -> None:
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        raise ConversionError("a pool without elements")


@converts("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool_with_indices(
    b: ModelBuilder,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value | None]:
    """The greatest of each window, NaN where it holds one."""
    _check_elements(x)
    dims = 2 if len(_full(kernel, 2)) == 2 else 3
    settings: dict[str, Any] = {
        "kernel_shape": _full(kernel, dims),
        "strides": _full(stride or kernel, dims),
        "pads": _full(padding, dims) * 2,
        "dilations": _full(dilation, dims),
        "ceil_mode": int(ceil_mode),
    }
    if b.wanted(1):
        return _with_places(b, x, dims, settings)
    value = _batched(b, x, dims)
    pooled = b.node("MaxPool", value, **settings)
    # Of a window that holds NaN, or nothing above minus infinity, a runtime may give anything: 2 is NaN, 0 the other.
    one, kind = b.scalar(1, torch.float32), torch.float32
    above = b.cast(b.node("Greater", value, b.scalar(float("-inf"), x.dtype)), kind)
    class_of = b.node("Where", b.node("IsNaN", value), b.scalar(2, kind), above)
    found = b.node("MaxPool", class_of, **settings)
    result = b.node("Where", b.node("Greater", found, one), b.scalar(float("nan"), x.dtype), pooled)
    result = b.node("Where", b.node("Less", found, one), b.scalar(float("-inf"), x.dtype), result)
    return _without(b, result, x, dims), None


def _known_shape(x: Value) -> None:
    if not all(isinstance(size, int) for size in x.shape):
        raise ConversionError("windows of their own over a symbolic size")


def _with_places(b: ModelBuilder, x: Value, dims: int, settings: dict[str, Any]) -> tuple[Value, Value]:
    """The extremes and where they are: of equal ones the first, of several NaN the last."""
    _known_shape(x)
    given, asked = x.shape[-dims:], b.result[0].shape[-dims:]
    along = [
        spans(given[at], asked[at], *(settings[key][at] for key in ("kernel_shape", "strides", "pads", "dilations")))
        for at in range(dims)
    ]
    windows = flat_windows(given, along)
    values, length = gathered(b, x, dims, windows)
    axis = x.rank - dims + 1
    unknown = b.cast(b.node("IsNaN", values), torch.int32)
    first = b.node("ArgMax", values, axis=axis, keepdims=1)
    last = b.node("ArgMax", unknown, axis=axis, keepdims=1, select_last_index=1)
    found = b.cast(b.node("ReduceMax", unknown, b.ints([axis]), keepdims=1), torch.bool)
    best = b.node("Where", found, last, first)
    lead = [1] * (x.rank - dims)
    listed = b.node(
        "Expand", b.reshape(table(b, windows, length), [*lead, len(windows), length]), b.node("Shape", values)
    )
    shape = list(b.result[0].shape)
    places = b.reshape(b.node("GatherElements", listed, best, axis=axis), shape)
    return b.reshape(b.node("GatherElements", values, best, axis=axis), shape), places


@converts("aten.avg_pool2d.default", "aten.avg_pool1d.default", "aten.avg_pool3d.default")
def avg_pool(
    b: ModelBuilder,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    _check_elements(x)
    if not x.dtype.is_floating_point:
        raise ConversionError("an average pool of integers")
    dims = b.result.dim() - 2 if b.result.dim() > len(kernel) + 1 else b.result.dim() - 1
    if ceil_mode or divisor_override is not None or not b.target.computes("AveragePool", x.dtype):
        full = [_full(setting, dims) for setting in (kernel, stride or kernel, padding)]
        return _average_of_lists(b, x, full, count_include_pad, divisor_override)
    value = _batched(b, x, dims)
    result = b.node(
        "AveragePool",
        value,
        kernel_shape=_full(kernel, dims),
        strides=_full(stride or kernel, dims),
        pads=_full(padding, dims) * 2,
        count_include_pad=int(count_include_pad),
    )
    return _without(b, result, x, dims)


def _average_of_lists(b: ModelBuilder, x: Value, settings: list[list[int]], padded: bool, divisor: int | None) -> Value:
    """With the divisors that torch takes: a window may reach over the image, and over its padding when rounded up."""
    _known_shape(x)
    kernel, stride, padding = settings
    dims = len(kernel)
    given, asked = x.shape[-dims:], b.result.shape[-dims:]
    along = [spans(given[at], asked[at], kernel[at], stride[at], padding[at]) for at in range(dims)]
    windows = flat_windows(given, along)
    reaches = []
    for at in range(dims):
        starts = [place * stride[at] - padding[at] for place in range(asked[at])]
        reaches.append([min(start + kernel[at], given[at] + padding[at]) - start for start in starts])
    whole = [math.prod(sizes) for sizes in itertools.product(*reaches)]
    counts = whole if padded else [len(window) for window in windows]
    divisors = [float(divisor or count) for count in counts]
    return b.reshape(averaged(b, x, dims, windows, divisors), list(b.result.shape))


@converts("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default", "aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool(b: ModelBuilder, x: Value, size: Sequence[int]) -> Value:
    _check_elements(x)
    dims = len(size)
    given = x.shape[-dims:]
    if all(wanted == 1 for wanted in size):
        return b.node("ReduceMean", x, b.ints(range(x.rank - dims, x.rank)), keepdims=1)
    _known_shape(x)
    if any(have % want for have, want in zip(given, size)) or not b.target.computes("AveragePool", x.dtype):
        windows = flat_windows(given, [adaptive_spans(have, want) for have, want in zip(given, size)])
        divisors = [float(len(window)) for window in windows]
        return b.reshape(averaged(b, x, dims, windows, divisors), list(b.result.shape))
    windows = [have // want for have, want in zip(given, size)]
    value = _batched(b, x, dims)
    return _without(b, b.node("AveragePool", value, kernel_shape=windows, strides=windows), x, dims)
