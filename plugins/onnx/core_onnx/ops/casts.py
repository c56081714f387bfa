"""Changes of dtype, and copies that change nothing."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


@converts("aten._to_copy.default", "prims.convert_element_type.default")
def to_copy(b: ModelBuilder, x: Value, *args: Any, **kwargs: Any) -> Value:
    if b.result.device != x.fake.device:
        raise ConversionError("a copy between devices is not part of a model")
    if b.result.dtype is x.dtype:
        return b.node("Identity", x)
    return b.cast(x, b.result.dtype)


@converts(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.contiguous.default",
)
def clone(b: ModelBuilder, x: Value, *args: Any, **kwargs: Any) -> Value:
    """Layouts are the core's affair: it gives results the strides of the graph."""
    return b.node("Identity", x)


@converts("aten.copy.default")
def copy(b: ModelBuilder, x: Value, source: Value, non_blocking: bool = False) -> Value:
    value = b.cast(source, x.dtype)
    return b.node("Expand", value, b.flat_shape_of(b.result, (x, source)))


@converts("aten.fill.Scalar", "aten.full_like.default")
def fill(b: ModelBuilder, x: Value, value: Any, **kwargs: Any) -> Value:
    number = b.cast(value, b.result.dtype) if isinstance(value, Value) else b.scalar(value, b.result.dtype)
    return b.node("Expand", number, b.flat_shape_of(b.result, (x,)))


@converts("aten.zeros_like.default", "aten.empty_like.default")
def zeros_like(b: ModelBuilder, x: Value, **kwargs: Any) -> Value:
    return b.node("Expand", b.scalar(0, b.result.dtype), b.flat_shape_of(b.result, (x,)))


@converts("aten.ones_like.default")
def ones_like(b: ModelBuilder, x: Value, **kwargs: Any) -> Value:
    return b.node("Expand", b.scalar(1, b.result.dtype), b.flat_shape_of(b.result, (x,)))


@converts("aten.view.dtype")
def view_dtype(b: ModelBuilder, x: Value, dtype: torch.dtype) -> Value:
    raise ConversionError("reading bytes as another type")
