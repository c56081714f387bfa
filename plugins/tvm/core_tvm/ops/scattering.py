"""Values written to places that index tensors choose. Each element of the result looks for what was written to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, choose, computing
from ..kernel import Kernel, Value
from ..registry import Refused, converts
from .indexing import spread_of
from .shapes import axis_of, moved

MOST = 1024
"""Writes that each element looks through."""


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
    rank = max(x.rank, index.rank)
    if rank == 0 or x.rank != index.rank:
        raise Refused("writes to a number")
    _few(k, [index.shape[axis]])
    kind = computing(x.dtype)
    if kind is torch.bool:
        kind = torch.int32
    place = k.chosen(index, k.size(x.shape[axis]), negative=False, error="RuntimeError")
    count = index.shape[axis]
    inside_of = [k.size(size) for size in index.shape]

    def element(*at: Any) -> Num:
        found = x.at(at).to(kind)
        reached: Any = tirx.const(True, "bool")
        for other in range(x.rank):
            if other != axis:
                reached = tirx.And(reached, tirx.LT(at[other], inside_of[other]))
        safe = [tirx.min(p, n - 1) for p, n in zip(at, inside_of)]
        for step in range(count):
            spot = moved(safe, axis, k.size(step))
            here = Num(tirx.And(reached, tirx.EQ(place(spot), at[axis])), torch.bool)
            value = source.at(spot).to(kind) if isinstance(source, Value) else k.number(source, kind)
            found = choose(here, value if replaces else combine(found, value), found)
        return found

    if count > 64:
        raise Refused("more than 64 writes along a dimension")
    if any(size == 0 for size in index.shape):
        return k.compute(lambda *at: x.at(at))
    return k.compute(element)


@converts("aten.scatter.src", "aten.scatter.value")
def scatter(k: Kernel, x: Value, dim: int, index: Value, source: Any) -> Value:
    return _along(k, x, dim, index, source, lambda a, b: b, True)


@converts("aten.scatter_add.default")
def scatter_add(k: Kernel, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _along(k, x, dim, index, source, lambda a, b: a + b, False)


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
    if total > 64:
        raise Refused("more than 64 writes by index")
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
    """One number written wherever a mask holds."""
    mask = indices[0]
    numbers = all(size == 1 for size in values.shape)
    if mask is None or mask.dtype is not torch.bool or any(one is not None for one in indices[1:]) or not numbers:
        raise Refused("as many values as a mask has true elements")
    kind = computing(x.dtype)

    def element(*at: Any) -> Num:
        value = values.at([k.size(0)] * values.rank).to(kind)
        own = x.at(at).to(kind)
        here = k.broadcast(mask, at[: mask.rank], torch.bool)
        return choose(here, own + value if accumulate else value, own)

    return k.compute(element)
