"""Values chosen by index tensors, and orders of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, absolute, choose, library, number
from ..kernel import Kernel, Value
from ..registry import Refused, converts
from .shapes import axis_of, moved


@converts("aten.embedding.default")
def embedding(k: Kernel, weight: Value, indices: Value, *settings: Any, **more: Any) -> Value:
    place = k.chosen(indices, k.size(weight.shape[0]), negative=False)
    return k.compute(lambda *at: weight.at((place(at[: indices.rank]), *at[indices.rank :])))


@converts("aten.embedding_renorm.default")
def embedding_renorm(k: Kernel, weight: Value, indices: Value, max_norm: float, norm_type: float) -> Value:
    """The rows that are read, made no longer than `max_norm`."""
    if not all(isinstance(size, int) for size in (*weight.shape, *indices.shape)):
        raise Refused("rows whose number is known only at run time")
    if weight.shape[0] * indices.fake.numel() > MOST:
        raise Refused(f"rows and indices whose product is over {MOST}")
    wide = torch.float64
    place = k.chosen(indices, k.size(weight.shape[0]), negative=False)
    rows, over = k.sizes(weight.shape[:1]), k.sizes(indices.shape)

    def same(at: Any, inner: Any) -> Num:
        return Num(tirx.EQ(place(inner), at[0]), torch.bool).to(torch.int32)

    read = k.reduce(rows, over, same, lambda one, two: one | two, 0, torch.int32, "read")
    order = number(float(norm_type), wide)
    powers = k.sum(
        rows,
        k.sizes(weight.shape[1:]),
        lambda at, inner: library("pow", absolute(weight.at((*at, *inner)).to(wide)), order),
        wide,
    )

    def element(row: Any, column: Any) -> Num:
        norm = library("pow", powers.at((row,)), 1 / order)
        value = weight.at((row, column)).to(wide)
        shorter = value * (number(max_norm, wide) / (norm + 1e-7))
        return choose(read.at((row,)).differs(0) & (norm > max_norm), shorter, value)

    return k.compute(element)


MOST = 1 << 20
"""Comparisons of rows with indices."""


@converts("aten.index_select.default")
def index_select(k: Kernel, x: Value, dim: int, index: Value) -> Value:
    axis = axis_of(dim, x.rank)
    extent = k.size(x.shape[axis]) if x.rank else k.size(1)
    place = k.chosen(index, extent, negative=False)

    def element(*at: Any) -> Num:
        chosen = place(at[axis : axis + 1] if index.rank and x.rank else (k.size(0),) * index.rank)
        return x.at(moved(at, axis, chosen) if x.rank else ())

    return k.compute(element)


@converts("aten.gather.default")
def gather(k: Kernel, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    axis = axis_of(dim, x.rank)
    extent = k.size(x.shape[axis]) if x.rank else k.size(1)
    place = k.chosen(index, extent, negative=False, error="RuntimeError")

    def element(*at: Any) -> Num:
        own = at if index.rank else (k.size(0),) * x.rank
        chosen = place(at)
        return x.at(moved(own, axis, chosen) if x.rank else ())

    return k.compute(element)


def spread_of(x: Value, indices: Sequence[Value | None]) -> tuple[list[int], int, list[int]]:
    """The axes that are indexed, where the axes of the indices stand in the result, and the axes that stay."""
    indexed = [axis for axis, index in enumerate(indices) if index is not None]
    together = indexed == list(range(indexed[0], indexed[-1] + 1))
    kept = [axis for axis in range(x.rank) if axis not in indexed]
    first = len([axis for axis in kept if axis < indexed[0]]) if together else 0
    return indexed, first, kept


@converts("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(k: Kernel, x: Value, indices: Sequence[Value | None]) -> Value:
    indexed, first, kept = spread_of(x, indices)
    given = [one for one in indices if one is not None]
    rank = max(one.rank for one in given)
    places = [k.chosen(one, k.size(x.shape[axis]), negative=True) for one, axis in zip(given, indexed)]

    def element(*at: Any) -> Num:
        among = at[first : first + rank]
        rest = iter((*at[:first], *at[first + rank :]))
        own: dict[int, Any] = {axis: next(rest) for axis in kept}
        for one, place, axis in zip(given, places, indexed):
            tail = among[rank - one.rank :] if one.rank else ()
            own[axis] = place([k.size(0) if size == 1 else p for size, p in zip(one.shape, tail)])
        return x.at([own[axis] for axis in range(x.rank)])

    return k.compute(element)


@converts("aten.sort.default")
def sort(k: Kernel, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return _sorted(k, x, dim, descending)


@converts("aten.sort.stable")
def sort_stable(
    k: Kernel, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return _sorted(k, x, dim, descending)


LONGEST = 1024
"""Elements of the axis that is sorted; the work grows with the square."""


def _sorted(k: Kernel, x: Value, dim: int, descending: bool, count: Any = None) -> tuple[Value, Value]:
    """Each value goes to the place that is the number of those before it: NaN is greater than all, equals in order."""
    if not x.rank:
        return k.compute(lambda: x.at(()), 0), k.compute(lambda: number(0, torch.int64), 1)
    axis = axis_of(dim, x.rank)
    size = x.shape[axis]
    if not isinstance(size, int) or size > LONGEST:
        raise Refused(f"an order of more than {LONGEST} values, or of a size known only at run time")
    sizes = k.sizes(x.shape)

    def before(one: Num, two: Num, earlier: Any) -> Num:
        """Whether `two` comes before `one`."""
        if one.dtype is torch.bool:
            one, two = one.to(torch.int32), two.to(torch.int32)
        ahead = (two > one) if descending else (two < one)
        same = one.equals(two)
        if one.dtype.is_floating_point:
            last = (two.is_nan() & ~one.is_nan()) if descending else (one.is_nan() & ~two.is_nan())
            ahead = last | (ahead & ~one.is_nan() & ~two.is_nan())
            same = same | (one.is_nan() & two.is_nan())
        return ahead | (same & Num(earlier, torch.bool))

    def rank(places: Any, reduced: Any) -> Num:
        other = x.at(moved(places, axis, reduced[0]))
        return before(x.at(places), other, tirx.LT(reduced[0], places[axis])).to(torch.int64)

    ranks = k.sum(sizes, [sizes[axis]], rank, torch.int64)
    wanted = list(sizes)
    wanted[axis] = k.size(count if count is not None else size)

    def source(places: Any, reduced: Any) -> Num:
        here = ranks.at(moved(places, axis, reduced[0])).equals(Num(places[axis], torch.int64))
        return here.to(torch.int64) * Num(reduced[0], torch.int64)

    sources = k.sum(wanted, [sizes[axis]], source, torch.int64)

    def chosen(*places: Any) -> Num:
        at = sources.at(places).expr
        return x.at(moved(places, axis, tirx.max(tirx.min(at, sizes[axis] - 1), k.size(0))))

    return k.compute(chosen, 0), k.compute(lambda *places: sources.at(places), 1)


@converts("aten.topk.default")
def topk(
    k: Kernel, x: Value, count: Any, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    if k.wanted(1) and not x.dtype.is_floating_point:
        raise Refused("the places of the greatest whole numbers, of which torch gives equal ones in no order")
    if not sorted:
        raise Refused("greatest values in no order")
    if not isinstance(count, int):
        raise Refused("a number of values that is known only at run time")
    values, places = _sorted(k, x, dim, largest, count)
    return values, places
