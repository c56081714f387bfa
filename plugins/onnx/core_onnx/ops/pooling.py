"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


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
) -> tuple[Value, None]:
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
    value = _batched(b, x, dims)
    if b.wanted(1):
        raise ConversionError("the places of a pool's extremes, where NaN counts as the greatest")
    pooled = b.node("MaxPool", value, **settings)
    # Of a window that holds NaN, or nothing above minus infinity, a runtime may give anything: 2 is NaN, 0 the other.
    one, kind = b.scalar(1, torch.float32), torch.float32
    above = b.cast(b.node("Greater", value, b.scalar(float("-inf"), x.dtype)), kind)
    class_of = b.node("Where", b.node("IsNaN", value), b.scalar(2, kind), above)
    found = b.node("MaxPool", class_of, **settings)
    result = b.node("Where", b.node("Greater", found, one), b.scalar(float("nan"), x.dtype), pooled)
    result = b.node("Where", b.node("Less", found, one), b.scalar(float("-inf"), x.dtype), result)
    return _without(b, result, x, dims), None


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
    if ceil_mode or divisor_override is not None or not x.dtype.is_floating_point:
        raise ConversionError("an average pool with ceil_mode, a divisor of its own or integers")
    dims = b.result.dim() - 2 if b.result.dim() > len(kernel) + 1 else b.result.dim() - 1
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


@converts("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default", "aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool(b: ModelBuilder, x: Value, size: Sequence[int]) -> Value:
    _check_elements(x)
    dims = len(size)
    given = x.shape[-dims:]
    if all(wanted == 1 for wanted in size):
        return b.node("ReduceMean", x, b.ints(range(x.rank - dims, x.rank)), keepdims=1)
    if not all(
        isinstance(have, int) and isinstance(want, int) and want and have % want == 0 for have, want in zip(given, size)
    ):
        raise ConversionError("an adaptive pool of windows of different sizes")
    windows = [have // want for have, want in zip(given, size)]
    value = _batched(b, x, dims)
    return _without(b, b.node("AveragePool", value, kernel_shape=windows, strides=windows), x, dims)
