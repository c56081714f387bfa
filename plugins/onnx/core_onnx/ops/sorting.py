"""Orders along a dimension: sort and the extremes in order. NaN counts as greater than every number."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


def _keys(b: ModelBuilder, x: Value) -> Value:
    """Values that order as torch orders `x`: floats in float64, where there is room above infinity for NaN."""
    if x.dtype is torch.bool:
        return b.cast(x, torch.int32)
    if not x.dtype.is_floating_point:
        return x
    if x.dtype is torch.float64 or not b.target.computes("TopK", torch.float64):
        raise ConversionError("an order of floats in which NaN is the greatest needs a wider type to be counted in")
    wide = b.cast(x, torch.float64)
    infinite = b.node("Equal", wide, b.scalar(float("inf"), torch.float64))
    wide = b.node("Where", infinite, b.scalar(1e300, torch.float64), wide)
    return b.node("Where", b.node("IsNaN", wide), b.scalar(2e300, torch.float64), wide)


def _ordered(b: ModelBuilder, x: Value, count: Any, axis: int, largest: bool) -> tuple[Value, Value]:
    """The first `count` in order and their places; of equal ones the earlier comes first."""
    if not x.rank:
        return b.node("Identity", x), b.scalar(0, torch.int64)
    number = b.shape_vector([count])
    _, places = b.nodes_of("TopK", 2, _keys(b, x), number, axis=axis, largest=int(largest), sorted=1)
    return b.node("GatherElements", x, places, axis=axis), places


_SHORT = 16
"""Values that eager sorts by insertion, which keeps equal ones in order."""


def _note_open_places(b: ModelBuilder, x: Value, axis: int) -> None:
    """Where equal values are usual, and eager leaves open which of them comes first."""
    size = x.shape[axis] if x.rank else 1
    if b.wanted(1) and x.dtype is not torch.float32 and not (isinstance(size, int) and size <= _SHORT):
        b.leave_open("places of equal values, whose order eager leaves open unless asked for a stable one")


@converts("aten.sort.default")
def sort(b: ModelBuilder, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    axis = dim % x.rank if x.rank else 0
    _note_open_places(b, x, axis)
    return _sorted(b, x, axis, descending)


def _sorted(b: ModelBuilder, x: Value, axis: int, descending: bool) -> tuple[Value, Value]:
    return _ordered(b, x, b.size_of(x, axis) if x.rank else 1, axis, descending)


@converts("aten.sort.stable")
def sort_stable(
    b: ModelBuilder, x: Value, *, stable: bool | None = False, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    axis = dim % x.rank if x.rank else 0
    if not stable:
        _note_open_places(b, x, axis)
    return _sorted(b, x, axis, descending)


@converts("aten.topk.default")
def topk(
    b: ModelBuilder, x: Value, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    if not sorted and not (isinstance(k, int) and k <= 1):
        b.leave_open("extremes that are not in order: eager's are in that of its algorithm")
    if b.wanted(1) and not x.dtype.is_floating_point and x.rank and k != 1:
        b.leave_open("places of equal integers, which eager orders by its algorithm")
    return _ordered(b, x, k, dim % x.rank if x.rank else 0, largest)
