"""Sums, products, extremes and their places, truth of all or any."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import te, tirx

from ..arithmetic import Num, absolute, choose, computing, extremes, intrinsic, larger, library, number, smaller
from ..kernel import Kernel, Made, Value, added
from ..registry import Refused, converts
from .shapes import axis_of, linear


def axes_of(dims: Any, rank: int) -> list[int]:
    """Dimensions as sorted axes; None or nothing means all."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    given = dims if isinstance(dims, (list, tuple)) else [dims]
    return sorted(axis_of(dim, rank) for dim in given) if rank else []


def accumulating(dtype: torch.dtype) -> torch.dtype:
    """The dtype that sums are made in: one after another in float32 would be less exact than torch's."""
    return torch.float64 if dtype.is_floating_point else torch.int64


def fold(
    k: Kernel,
    x: Value,
    axes: Sequence[int],
    element: Callable[[Num], Num],
    combine: Callable[[Num, Num], Num],
    start: Any,
    dtype: torch.dtype,
) -> Made:
    """`combine` over some axes, which are left out of what is made."""
    kept = [axis for axis in range(x.rank) if axis not in axes]
    sizes = k.sizes([x.shape[axis] for axis in kept])
    over = k.sizes([x.shape[axis] for axis in axes])

    def inner(places: Any, reduced: Any) -> Num:
        at = dict(zip(kept, places)) | dict(zip(axes, reduced))
        return element(x.at([at[axis] for axis in range(x.rank)]))

    return k.reduce(sizes, over, inner, combine, start, dtype)


def spread(k: Kernel, made: Made, rank: int, axes: Sequence[int], index: int | None = None) -> Callable[..., Num]:
    """Reads what was folded at the places of a tensor of `rank` dimensions, in which the axes may be 1 or more."""
    return lambda places: made.at([places[axis] for axis in range(rank) if axis not in axes])


def finished(
    k: Kernel, made: Made, x: Value, axes: Sequence[int], last: Callable[[Num], Num], index: int | None = None
) -> Value:
    """The node's result from what was folded, with or without the folded axes."""
    fake = k.result if index is None else k.result[index]
    keeps = fake.dim() == x.rank and bool(axes)

    def element(*places: Any) -> Num:
        return last(spread(k, made, x.rank, axes)(places) if keeps else made.at(places))

    return k.compute(element, index)


def total(k: Kernel, x: Value, axes: Sequence[int], dtype: torch.dtype | None = None) -> Made:
    """Sums over some axes."""
    kind = dtype or accumulating(k.result.dtype)
    return fold(k, x, axes, lambda one: one.to(kind), added, 0, kind)


@converts("aten.sum.dim_IntList", "aten.sum.default")
def sum_(k: Kernel, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    axes = axes_of(dims, x.rank)
    return finished(k, total(k, x, axes), x, axes, lambda one: one)


@converts("aten.mean.dim", "aten.mean.default")
def mean(k: Kernel, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    axes = axes_of(dims, x.rank)
    count = Num(k.count([x.shape[axis] for axis in axes]), torch.int64).to(torch.float64)
    return finished(k, total(k, x, axes, torch.float64), x, axes, lambda one: one / count)


@converts("aten.prod.default", "aten.prod.dim_int")
def prod(k: Kernel, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    axes = axes_of(dim, x.rank)
    kind = accumulating(k.result.dtype)
    made = fold(k, x, axes, lambda one: one.to(kind), lambda a, b: a * b, 1, kind)
    return finished(k, made, x, axes, lambda one: one)


def extreme(k: Kernel, x: Value, axes: Sequence[int], greatest: bool) -> Made:
    """The greatest or least values over some axes; NaN where there is one."""
    kind = computing(x.dtype)
    least, most = extremes(kind)
    if kind is torch.bool:
        combine: Callable[[Num, Num], Num] = (lambda a, b: a | b) if greatest else (lambda a, b: a & b)
    else:
        combine = larger if greatest else smaller
    return fold(k, x, axes, lambda one: one, combine, least if greatest else most, kind)


def _values(greatest: bool) -> Callable[..., Value]:
    def convert(k: Kernel, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
        axes = axes_of(dims, x.rank)
        if any(x.shape[axis] == 0 for axis in axes):
            raise Refused("an extreme of no values")
        return finished(k, extreme(k, x, axes, greatest), x, axes, lambda one: one)

    return convert


converts("aten.amax.default", "aten.max.default")(_values(True))
converts("aten.amin.default", "aten.min.default")(_values(False))


def place_of_extreme(
    k: Kernel,
    sizes: Sequence[Any],
    over: Sequence[Any],
    read: Callable[..., Num],
    greatest: bool,
    dtype: torch.dtype,
    *,
    last_nan: bool = False,
) -> tuple[Made, Made]:
    """The first greatest (or least) value over `over` and its position there; before all others the first NaN, or the
    last one, as in windows.

    read: (places, reduced places) -> the value.
    """
    kind = computing(dtype)
    if kind is torch.bool:
        kind = torch.int32
    least, most = extremes(kind)

    def combine(x: Any, y: Any) -> tuple[Any, Any]:
        here, there = Num(x[1], kind), Num(y[1], kind)
        first, second = Num(x[0], torch.int64), Num(y[0], torch.int64)
        better = (there > here) if greatest else (there < here)
        same = here.equals(there)
        if kind.is_floating_point:
            better = better | (there.is_nan() if last_nan else there.is_nan() & here.equals(here))
            same = same | (here.is_nan() & there.is_nan())
        keeps = ~((first < 0) | ((second >= 0) & (better | (same & (second < first)))))
        return (choose(keeps, first, second).expr, choose(keeps, here, there).expr)

    def start(*_: Any) -> tuple[Any, Any]:
        return (tirx.const(-1, "int64"), number(least if greatest else most, kind).expr)

    reducer = te.comm_reducer(combine, start, name="place")
    axes = [te.reduce_axis((k.size(0), extent), name=f"e{at}") for at, extent in enumerate(over)]

    def element(*places: Any) -> Any:
        inner = [axis.var for axis in axes]
        position = linear(inner, over, k.size(0))
        return reducer((position, read(places, inner).to(kind).expr), axis=axes)

    placed, valued = te.compute(list(sizes) or (), element, name="extreme")
    return Made(placed, torch.int64), Made(valued, kind)


def _placed(k: Kernel, x: Value, axes: Sequence[int], greatest: bool) -> tuple[Made, Made]:
    if any(x.shape[axis] == 0 for axis in axes):
        raise Refused("the place of an extreme of no values")
    kept = [axis for axis in range(x.rank) if axis not in axes]

    def read(places: Any, reduced: Any) -> Num:
        at = dict(zip(kept, places)) | dict(zip(axes, reduced))
        return x.at([at[axis] for axis in range(x.rank)])

    sizes = k.sizes([x.shape[axis] for axis in kept])
    return place_of_extreme(k, sizes, k.sizes([x.shape[axis] for axis in axes]), read, greatest, x.dtype)


def _argument(greatest: bool) -> Callable[..., Value]:
    def convert(k: Kernel, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
        axes = axes_of(dim, x.rank)
        if not axes:
            return k.compute(lambda *_: number(0, torch.int64))
        placed, _ = _placed(k, x, axes, greatest)
        return finished(k, placed, x, axes, lambda one: one)

    return convert


converts("aten.argmax.default")(_argument(True))
converts("aten.argmin.default")(_argument(False))


def _with_place(greatest: bool) -> Callable[..., Any]:
    def convert(k: Kernel, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        axes = axes_of(dim, x.rank)
        if not axes:
            return k.compute(lambda *_: x.at(()), 0), k.compute(lambda *_: number(0, torch.int64), 1)
        placed, valued = _placed(k, x, axes, greatest)
        return finished(k, valued, x, axes, lambda one: one, 0), finished(k, placed, x, axes, lambda one: one, 1)

    return convert


converts("aten.max.dim")(_with_place(True))
converts("aten.min.dim")(_with_place(False))


def _truths(start: bool, combine: Callable[[Num, Num], Num]) -> Callable[..., Value]:
    def convert(k: Kernel, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
        axes = axes_of(dims, x.rank)
        made = fold(k, x, axes, lambda one: one.to(torch.bool).to(torch.int32), combine, int(start), torch.int32)
        return finished(k, made, x, axes, lambda one: one.to(torch.bool).to(k.result.dtype))

    return convert


converts("aten.any.default", "aten.any.dim", "aten.any.dims")(_truths(False, lambda a, b: a | b))
converts("aten.all.default", "aten.all.dim", "aten.all.dims")(_truths(True, lambda a, b: a & b))


def moments(k: Kernel, x: Value, axes: Sequence[int]) -> tuple[Made, Made, Num]:
    """Means, sums of squared distances from them, and the number of values, in float64."""
    wide = torch.float64
    count = Num(k.count([x.shape[axis] for axis in axes]), torch.int64).to(wide)
    sums = total(k, x, axes, wide)
    kept = [axis for axis in range(x.rank) if axis not in axes]
    sizes = k.sizes([x.shape[axis] for axis in kept])
    means = k.make(sizes, wide, lambda *places: sums.at(places) / count, "mean")

    def squared(places: Any, reduced: Any) -> Num:
        at = dict(zip(kept, places)) | dict(zip(axes, reduced))
        away = x.at([at[axis] for axis in range(x.rank)]).to(wide) - means.at(places)
        return away * away

    over = k.sizes([x.shape[axis] for axis in axes])
    return means, k.sum(sizes, over, squared, wide), count


def _deviation(root: bool, with_mean: bool) -> Callable[..., Any]:
    def convert(k: Kernel, x: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
        axes = axes_of(dims, x.rank)
        means, squares, count = moments(k, x, axes)
        freedom = count - number(1 if correction is None else correction, torch.float64)
        freedom = choose(freedom > 0, freedom, number(0, torch.float64))

        def last(one: Num) -> Num:
            return intrinsic("sqrt", one / freedom) if root else one / freedom

        if not with_mean:
            return finished(k, squares, x, axes, last)
        return finished(k, squares, x, axes, last, 0), finished(k, means, x, axes, lambda one: one, 1)

    return convert


converts("aten.var.correction")(_deviation(False, False))
converts("aten.std.correction")(_deviation(True, False))
converts("aten.var_mean.correction")(_deviation(False, True))
converts("aten.std_mean.correction")(_deviation(True, True))


@converts("aten.linalg_vector_norm.default")
def vector_norm(
    k: Kernel, x: Value, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    axes = axes_of(dims, x.rank)
    wide = torch.float64
    if any(x.shape[axis] == 0 for axis in axes) and (order < 0 or math.isinf(order)):
        raise Refused("an extreme of no values")
    if math.isinf(order):
        kind = computing(k.result.dtype)
        combine = larger if order > 0 else smaller
        start = -math.inf if order < 0 else 0.0
        start = math.inf if order < 0 else start
        made = fold(k, x, axes, lambda one: absolute(one.to(kind)), combine, start, kind)
        return finished(k, made, x, axes, lambda one: one)

    def powered(one: Num) -> Num:
        size = absolute(one.to(wide))
        if order == 0:
            return size.differs(0).to(wide)
        if order in (1, 2):
            return size if order == 1 else size * size
        return library("pow", size, number(float(order), wide))

    def last(one: Num) -> Num:
        if order in (0, 1):
            return one
        return intrinsic("sqrt", one) if order == 2 else library("pow", one, number(1 / order, wide))

    if x.dtype is torch.float64 and order == 2:
        raise Refused("a norm of float64, whose squares may be too large")
    made = fold(k, x, axes, powered, added, 0, wide)
    return finished(k, made, x, axes, last)


@converts("aten.logsumexp.default")
def logsumexp(k: Kernel, x: Value, dims: Any, keepdim: bool = False) -> Value:
    axes = axes_of(dims, x.rank)
    if any(x.shape[axis] == 0 for axis in axes):
        raise Refused("an extreme of no values")
    top, sums = shifted_sums(k, x, axes)

    def element(*places: Any) -> Num:
        keeps = len(places) == x.rank and bool(axes)
        at = [places[axis] for axis in range(x.rank) if axis not in axes] if keeps else places
        return library("log", sums.at(at)) + level(top, at)

    return k.compute(element)


def level(top: Made, at: Any) -> Num:
    """What is taken away before exponentials: the greatest value, 0 where that is infinite."""
    value = top.at(at)
    return choose(absolute(value).equals(math.inf), number(0, value.dtype), value).to(torch.float64)


def shifted_sums(
    k: Kernel, x: Value, axes: Sequence[int], shift: Callable[[Made, Any], Num] = level
) -> tuple[Made, Made]:
    """The greatest values, and the sums of exp(value - shift), in float64."""
    top = extreme(k, x, axes, True)
    kept = [axis for axis in range(x.rank) if axis not in axes]

    def inner(places: Any, reduced: Any) -> Num:
        at = dict(zip(kept, places)) | dict(zip(axes, reduced))
        value = x.at([at[axis] for axis in range(x.rank)]).to(torch.float64)
        return library("exp", value - shift(top, places))

    sizes = k.sizes([x.shape[axis] for axis in kept])
    return top, k.sum(sizes, k.sizes([x.shape[axis] for axis in axes]), inner, torch.float64)
