"""Values written to places that index tensors choose. Each element of the result looks for what was written to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, choose, computing, extremes, guarded, larger, number, smaller
from ..kernel import Kernel, Value, added
from ..registry import Refused, converts
from .indexing import spread_of
from .reductions import accumulating
from .shapes import axis_of, is_empty, linear, moved, places_of

MOST = 1024
"""Writes that each element looks through."""

Hit = Callable[[Sequence[Any], Sequence[Any]], Any]
"""(places of the result, places of a write) -> TVM's truth of whether that write goes there."""
Read = Callable[[Sequence[Any], Sequence[Any]], Num]
"""(places of the result, places of a write) -> the value that is written."""

_COMBINED: dict[str, tuple[Callable[[Num, Num], Num], Callable[[torch.dtype], Any]]] = {
    "sum": (added, lambda kind: 0),
    "prod": (lambda a, b: a * b, lambda kind: 1),
    "amax": (larger, lambda kind: extremes(kind)[0]),
    "amin": (smaller, lambda kind: extremes(kind)[1]),
}


def _few(sizes: Sequence[Any]) -> None:
    if not all(isinstance(size, int) for size in sizes):
        raise Refused("writes whose number is known only at run time")
    if math.prod(sizes) > MOST:
        raise Refused(f"more than {MOST} writes to look through for each element")


def written(k: Kernel, x: Value, over: Sequence[Any], hit: Hit, read: Read, how: str) -> Value:
    """The element of x where no write goes; else the last write ("last"), or what stood there and all writes folded."""
    _few(over)
    sizes, steps = k.sizes(x.shape), k.sizes(over)
    if math.prod(over) == 0:
        return k.compute(lambda *at: x.at(at))
    if how == "last":

        def position(at: Any, inner: Any) -> Num:
            here = Num(hit(at, inner), torch.bool)
            return guarded(here, Num(linear(inner, steps, k.size(0)), torch.int64), number(-1, torch.int64))

        lasts = k.reduce(sizes, steps, position, larger, -1, torch.int64, "last")

        def chosen(*at: Any) -> Num:
            last = lasts.at(at)
            inner = places_of(tirx.max(last.expr, k.size(0)), steps)
            return guarded(last >= 0, read(at, inner).to(x.dtype), x.at(at).to(x.dtype))

        return k.compute(chosen)
    combine, start = _COMBINED[how]
    kind = accumulating(x.dtype) if how in ("sum", "prod") else computing(x.dtype)
    if x.dtype is torch.bool:
        raise Refused("folded truth values")
    begin = number(start(kind), kind)

    def each(at: Any, inner: Any) -> Num:
        return guarded(Num(hit(at, inner), torch.bool), read(at, inner).to(kind), begin)

    folded = k.reduce(sizes, steps, each, combine, start(kind), kind, "written")
    return k.compute(lambda *at: combine(x.at(at).to(kind), folded.at(at)))


def _along(k: Kernel, x: Value, dim: int, index: Value, source: Any, how: str) -> Value:
    """Scatter along one dimension."""
    if is_empty(index):
        return k.compute(lambda *at: x.at(at))
    axis = axis_of(dim, x.rank)
    count = index.shape[axis] if index.rank else 1
    place = k.chosen(index, k.size(x.shape[axis] if x.rank else 1), negative=False, error="RuntimeError")
    reach = k.sizes(index.shape) or [k.size(1)]

    def spot(at: Sequence[Any], inner: Sequence[Any]) -> list[Any]:
        own = at or (k.size(0),)
        return moved([tirx.min(p, n - 1) for p, n in zip(own, reach)], axis, inner[0])

    def hit(at: Sequence[Any], inner: Sequence[Any]) -> Any:
        own = at or (k.size(0),)
        inside: Any = tirx.EQ(place(spot(at, inner)[: index.rank]), own[axis])
        for other in range(len(own)):
            if other != axis:
                inside = tirx.And(inside, tirx.LT(own[other], reach[other]))
        return inside

    def read(at: Sequence[Any], inner: Sequence[Any]) -> Num:
        if not isinstance(source, Value):
            return k.number(source, x.dtype)
        return source.at(spot(at, inner)[: source.rank])

    return written(k, x, [count], hit, read, how)


@converts("aten.scatter.src", "aten.scatter.value")
def scatter(k: Kernel, x: Value, dim: int, index: Value, source: Any) -> Value:
    return _along(k, x, dim, index, source, "last")


@converts("aten.scatter_add.default")
def scatter_add(k: Kernel, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _along(k, x, dim, index, source, "sum")


@converts("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_reduced(k: Kernel, x: Value, dim: int, index: Value, source: Any, *, reduce: str) -> Value:
    return _along(k, x, dim, index, source, "sum" if reduce == "add" else "prod")


@converts("aten.scatter_reduce.two")
def scatter_reduce(
    k: Kernel, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    if reduce not in _COMBINED or not include_self:
        raise Refused("writes whose mean is taken, or without what stood there")
    return _along(k, x, dim, index, source, reduce)


@converts("aten.index_add.default")
def index_add(k: Kernel, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    axis = axis_of(dim, x.rank)
    place = k.chosen(index, k.size(x.shape[axis] if x.rank else 1), negative=False)

    def hit(at: Sequence[Any], inner: Sequence[Any]) -> Any:
        return tirx.EQ(place(inner[: index.rank]), (at or (k.size(0),))[axis])

    def read(at: Sequence[Any], inner: Sequence[Any]) -> Num:
        value = k.broadcast(source, moved(at, axis, inner[0]) if at else inner[: source.rank], computing(x.dtype))
        return value if alpha == 1 else value * number(alpha, value.dtype)

    return written(k, x, list(index.shape) or [1], hit, read, "sum")


@converts("aten.masked_scatter.default")
def masked_scatter(k: Kernel, x: Value, mask: Value, source: Value) -> Value:
    """The next value of the source wherever the mask holds."""
    return _next_values(k, x, mask, source, k.result.shape, exactly=False)


def _next_values(
    k: Kernel, x: Value, mask: Value, source: Value, shape: Sequence[Any], *, exactly: bool, adds: bool = False
) -> Value:
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
    last = k.sizes([max(size - 1, 0) for size in shape])

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
        kind = computing(x.dtype)
        value = k.broadcast(source, at, kind) if exactly else source.at(at).to(kind)
        old = k.broadcast(x, places, kind)
        return choose(held(lead), old + value if adds else value, old)

    return k.compute(element)


@converts("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(k: Kernel, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    given = [one for one in indices if one is not None]
    if any(one.dtype is torch.bool for one in given):
        return _masked_put(k, x, indices, values, accumulate)
    indexed, first, kept = spread_of(x, indices)
    rank = max(one.rank for one in given)
    shape: list[Any] = [1] * rank
    for one in given:
        for at, size in enumerate(one.shape, start=rank - one.rank):
            shape[at] = size if size != 1 else shape[at]
    places = [k.chosen(one, k.size(x.shape[axis]), negative=True) for one, axis in zip(given, indexed)]

    def hit(at: Sequence[Any], inner: Sequence[Any]) -> Any:
        here: Any = tirx.const(True, "bool")
        for one, place, axis in zip(given, places, indexed):
            tail = inner[rank - one.rank :] if one.rank else []
            spot = place([k.size(0) if size == 1 else p for size, p in zip(one.shape, tail)])
            here = tirx.And(here, tirx.EQ(spot, at[axis]))
        return here

    def read(at: Sequence[Any], inner: Sequence[Any]) -> Num:
        rest = [at[axis] for axis in kept]
        return k.broadcast(values, (*rest[:first], *inner, *rest[first:]), values.dtype)

    return written(k, x, shape, hit, read, "sum" if accumulate else "last")


def _masked_put(k: Kernel, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool) -> Value:
    """Values broadcast to wherever a mask holds, or the next of as many values as it has true elements."""
    mask = indices[0]
    if mask is None or mask.dtype is not torch.bool or any(one is not None for one in indices[1:]):
        raise Refused("a mask beside other indices")
    if values.rank == x.rank - mask.rank + 1 and values.shape[0] != 1:
        return _next_values(k, x, mask, values, mask.shape, exactly=True, adds=accumulate)
    kind = computing(x.dtype)

    def element(*at: Any) -> Num:
        lead, rest = at[: mask.rank], at[mask.rank :]
        value = k.broadcast(values, (k.size(0), *rest), kind)
        own = x.at(at).to(kind)
        return choose(k.broadcast(mask, lead, torch.bool), own + value if accumulate else value, own)

    return k.compute(element)
