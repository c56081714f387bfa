"""Values written to places that index tensors choose. Each element of the result looks for what was written to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, choose, computing, larger, number, smaller
from ..kernel import Kernel, Value
from ..registry import Refused, converts
from .indexing import spread_of
from .shapes import axis_of, linear, moved, places_of

MOST = 1024
"""Writes that each element looks through in a loop."""
LONGEST = 64
"""Writes that are written out one behind the other."""


def _few(k: Kernel, sizes: Sequence[Any]) -> None:
    total = 1
    for size in sizes:
        if not isinstance(size, int):
            raise Refused("writes whose number is known only at run time")
        total *= size
    if total > MOST:
        raise Refused(f"more than {MOST} writes to look through for each element")


def _along(
    k: Kernel, x: Value, dim: int, index: Value, source: Any, combine: Callable[[Num, Num], Num], replaces: bool
) -> Value:
    """Scatter along one dimension: the writes in order, folded from the element that stood there."""
    axis = axis_of(dim, x.rank)
    count = index.shape[axis] if index.rank else 1
    _few(k, [count])
    if count > LONGEST:
        raise Refused(f"more than {LONGEST} writes along a dimension")
    kind = computing(x.dtype)
    if kind is torch.bool:
        kind = torch.int32
    place = k.chosen(index, k.size(x.shape[axis] if x.rank else 1), negative=False, error="RuntimeError")
    if any(size == 0 for size in index.shape):
        return k.compute(lambda *at: x.at(at))
    reach = [k.size(size) for size in index.shape] or [k.size(1)]

    def element(*at: Any) -> Num:
        own = at or (k.size(0),)
        found = x.at(at).to(kind)
        inside: Any = tirx.const(True, "bool")
        for other in range(len(own)):
            if other != axis:
                inside = tirx.And(inside, tirx.LT(own[other], reach[other]))
        safe = [tirx.min(p, n - 1) for p, n in zip(own, reach)]
        for step in range(count):
            spot = moved(safe, axis, k.size(step))
            here = Num(tirx.And(inside, tirx.EQ(place(spot[: index.rank]), own[axis])), torch.bool)
            read = spot[: source.rank] if isinstance(source, Value) else ()
            value = source.at(read).to(kind) if isinstance(source, Value) else k.number(source, kind)
            found = choose(here, value if replaces else combine(found, value), found)
        return found

    return k.compute(element)


@converts("aten.scatter.src", "aten.scatter.value")
def scatter(k: Kernel, x: Value, dim: int, index: Value, source: Any) -> Value:
    return _along(k, x, dim, index, source, lambda a, b: b, True)


@converts("aten.scatter_add.default")
def scatter_add(k: Kernel, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _along(k, x, dim, index, source, lambda a, b: a + b, False)


@converts("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_reduced(k: Kernel, x: Value, dim: int, index: Value, source: Any, *, reduce: str) -> Value:
    return _along(k, x, dim, index, source, _COMBINED["sum" if reduce == "add" else "prod"], False)


@converts("aten.scatter_reduce.two")
def scatter_reduce(
    k: Kernel, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if reduce not in _COMBINED or not include_self:
        raise Refused("writes whose mean is taken, or without what stood there")
    return _along(k, x, dim, index, source, _COMBINED[reduce], False)


_COMBINED: dict[str, Callable[[Num, Num], Num]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "amax": larger,
    "amin": smaller,
}


@converts("aten.index_add.default")
def index_add(k: Kernel, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    if not x.rank:
        raise Refused("writes to a number")
    axis = axis_of(dim, x.rank)
    place = k.chosen(index, k.size(x.shape[axis]), negative=False)
    count = index.shape[0] if index.rank else 1
    _few(k, [count])
    kind = computing(x.dtype)
    if kind is torch.bool:
        raise Refused("sums of truth values")

    def element(*at: Any) -> Num:
        found = x.at(at).to(kind)
        for step in range(count):
            here = tirx.EQ(place([k.size(step)][: index.rank]), at[axis])
            value = k.broadcast(source, moved(at, axis, k.size(step)), kind)
            value = value if alpha == 1 else value * number(alpha, kind)
            found = choose(Num(here, torch.bool), found + value, found)
        return found

    return k.compute(element)


@converts("aten.masked_scatter.default")
def masked_scatter(k: Kernel, x: Value, mask: Value, source: Value) -> Value:
    """The next value of the source wherever the mask holds."""
    return _next_values(k, x, mask, source, x.shape, exactly=False)


def _next_values(k: Kernel, x: Value, mask: Value, source: Value, shape: Sequence[Any], *, exactly: bool) -> Value:
    """Wherever the mask, broadcast to `shape`, holds, the next value of the source; the rest of x's axes go along."""
    if not all(isinstance(size, int) for size in (*x.shape, *source.shape)):
        raise Refused("values whose number is known only at run time")
    total, rank = math.prod(shape), len(shape)
    given = source.shape[0] if exactly else source.fake.numel()
    if total > MOST or not given:
        raise Refused(f"a mask of more than {MOST} elements, or no values")
    own, inner = k.sizes(shape), k.sizes(source.shape)

    def held(places: Sequence[Any]) -> Num:
        return k.broadcast(mask, places, torch.bool)

    def before(places: Any, reduced: Any) -> Num:
        earlier = Num(tirx.LT(reduced[0], linear(places, own, k.size(0))), torch.bool)
        return (earlier & held(places_of(reduced[0], own))).to(torch.int64)

    counts = k.sum(own, [k.size(total)], before, torch.int64)
    last = k.sizes([size - 1 for size in shape])

    def missing(*places: Any) -> Num:
        over = held(places) & (counts.at(places) >= given)
        if not exactly:
            return over
        everything = counts.at(last) + held(last).to(torch.int64)
        return over | everything.differs(given)

    k.alarm(own, missing, "RuntimeError")

    def element(*places: Any) -> Num:
        lead, rest = places[:rank], places[rank:]
        position = tirx.min(counts.at(lead).expr, k.size(given - 1))
        at = (position, *rest) if exactly else places_of(position, inner)
        value = k.broadcast(source, at, x.dtype).to(x.dtype) if exactly else source.at(at).to(x.dtype)
        return choose(held(lead), value, x.at(places).to(x.dtype))

    return k.compute(element)


@converts("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(k: Kernel, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    indexed, first, kept = spread_of(x, indices)
    given = [indices[axis] for axis in indexed]
    if any(one is not None and one.dtype is torch.bool for one in given):
        return _masked_put(k, x, indices, values, accumulate)
    fakes = [one for one in given if one is not None]
    rank = max(one.rank for one in fakes)
    shape: list[Any] = [1] * rank
    for one in fakes:
        for at, size in enumerate(one.shape, start=rank - one.rank):
            shape[at] = size if size != 1 else shape[at]
    _few(k, shape)
    total = 1
    for size in shape:
        total *= size
    if total > LONGEST:
        raise Refused(f"more than {LONGEST} writes by index")
    places = [k.chosen(one, k.size(x.shape[axis]), negative=True) for one, axis in zip(fakes, indexed)]
    kind = computing(x.dtype)
    if kind is torch.bool:
        kind = torch.int32

    def element(*at: Any) -> Num:
        found = x.at(at).to(kind)
        for step in range(total):
            among, left = [], step
            for size in reversed(shape):
                among.insert(0, k.size(left % size))
                left //= size
            here: Any = tirx.const(True, "bool")
            for one, place, axis in zip(fakes, places, indexed):
                tail = among[rank - one.rank :] if one.rank else []
                spot = place([k.size(0) if size == 1 else p for size, p in zip(one.shape, tail)])
                here = tirx.And(here, tirx.EQ(spot, at[axis]))
            rest = [at[axis] for axis in kept]
            value = k.broadcast(values, (*rest[:first], *among, *rest[first:]), values.dtype).to(kind)
            found = choose(Num(here, torch.bool), found + value if accumulate else value, found)
        return found

    return k.compute(element)


def _masked_put(k: Kernel, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    """One number written wherever a mask holds, or the next of as many values as it has true elements."""
    mask = indices[0]
    if mask is None or mask.dtype is not torch.bool or any(one is not None for one in indices[1:]):
        raise Refused("a mask beside other indices")
    if any(size != 1 for size in values.shape):
        if accumulate or values.rank != x.rank - mask.rank + 1 or values.shape[0] == 1:
            raise Refused("values of a mask that are broadcast or added up")
        return _next_values(k, x, mask, values, mask.shape, exactly=True)
    kind = computing(x.dtype)

    def element(*at: Any) -> Num:
        value = values.at([k.size(0)] * values.rank).to(kind)
        own = x.at(at).to(kind)
        here = k.broadcast(mask, at[: mask.rank], torch.bool)
        return choose(here, own + value if accumulate else value, own)

    return k.compute(element)
