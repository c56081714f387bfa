"""Averages and extremes of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, computing, guarded, number
from ..kernel import Kernel, Value
from ..registry import Refused, converts
from .reductions import place_of_extreme


def _each(setting: Any, spatial: int, default: Sequence[int] = ()) -> list[int]:
    values = [setting] if isinstance(setting, int) else list(setting)
    if not values:
        values = list(default)
    if not all(isinstance(value, int) for value in values):
        raise Refused("windows whose settings are known only at run time")
    return values * spatial if len(values) == 1 else values


def _inside(k: Kernel, at: Sequence[Any], sizes: Sequence[Any]) -> Num:
    found: Any = tirx.const(True, "bool")
    for place, size in zip(at, sizes):
        found = tirx.And(found, tirx.And(tirx.GE(place, k.size(0)), tirx.LT(place, k.size(size))))
    return Num(found, torch.bool)


def _first_within(k: Kernel, starts: Sequence[Any], far: Sequence[int]) -> list[Any]:
    """The first place of a window that is not before the tensor: steps of `far` from its start."""
    found = []
    for start, step in zip(starts, far):
        before = tirx.max(k.size(0) - start, k.size(0))
        found.append(start + tirx.floordiv(before + k.size(step - 1), k.size(step)) * k.size(step))
    return found


@converts("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(
    k: Kernel, x: Value, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Value, Value | None]:
    spatial = 3 if "3d" in k.operator else 2
    if not x.dtype.is_floating_point:
        raise Refused("extremes of windows of whole numbers")
    size = _each(kernel, spatial)
    steps, pads, far = _each(stride, spatial, size), _each(padding, spatial), _each(dilation, spatial)
    own = x.shape[x.rank - spatial :]
    lead = x.rank - spatial
    kind = computing(x.dtype)

    def where(places: Any, window: Any) -> list[Any]:
        at = places[lead:]
        return [p * k.size(s) + w * k.size(d) - k.size(q) for p, s, w, d, q in zip(at, steps, window, far, pads)]

    def beyond(*at: Any) -> Num:
        inner = [place - k.size(pad) for place, pad in zip(at[lead:], pads)]
        return guarded(_inside(k, inner, own), x.at((*at[:lead], *inner)), number(float("-inf"), kind))

    # As wide as the last window reaches: with ceil_mode, beyond the padding.
    reach = [(n - 1) * s + (w - 1) * d + 1 for n, s, w, d in zip(k.result[0].shape[lead:], steps, size, far)]
    padded = k.make([*k.sizes(x.shape[:lead]), *k.sizes(reach)], kind, beyond, "pad")

    def read(places: Any, window: Any) -> Num:
        at = [p * k.size(s) + w * k.size(d) for p, s, w, d in zip(places[lead:], steps, window, far)]
        return padded.at((*places[:lead], *at))

    fake = k.result[0]
    placed, valued = place_of_extreme(k, k.sizes(fake.shape), k.sizes(size), read, True, x.dtype, last_nan=True)

    def position(*places: Any) -> Num:
        found = placed.at(places).expr
        window = []
        for extent in reversed(size):
            window.append(tirx.floormod(found, k.size(extent)))
            found = tirx.floordiv(found, k.size(extent))
        found_at = where(places, list(reversed(window)))
        if any(pads):  # beside padding only if nothing greater is there: then the first place within counts
            inside = _inside(k, found_at, own).expr
            first = _first_within(k, where(places, [k.size(0)] * spatial), far)
            found_at = [tirx.Select(inside, one, other) for one, other in zip(found_at, first)]
        total = k.size(0)
        for place, extent in zip(found_at, own):
            total = total * k.size(extent) + place
        return Num(total, torch.int64)

    return k.compute(lambda *places: valued.at(places), 0), k.compute(position, 1) if k.wanted(1) else None


@converts("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    k: Kernel,
    x: Value,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    spatial = int(k.operator.split("pool")[1][0])
    if not x.dtype.is_floating_point:
        raise Refused("averages of windows of whole numbers")
    size = _each(kernel, spatial)
    steps, pads = _each(stride, spatial, size), _each(padding, spatial)
    lead = x.rank - spatial
    own = x.shape[lead:]
    wide = torch.float64

    def inner(places: Any, window: Any) -> Num:
        at = [p * k.size(s) + w - k.size(q) for p, s, w, q in zip(places[lead:], steps, window, pads)]
        return guarded(_inside(k, at, own), x.at((*places[:lead], *at)).to(wide), number(0, wide))

    sums = k.sum(k.sizes(k.result.shape), k.sizes(size), inner, wide)

    def element(*places: Any) -> Num:
        if divisor_override:
            return sums.at(places) / divisor_override
        count = k.size(1)
        for p, s, n, q, extent in zip(places[lead:], steps, size, pads, own):
            first = p * k.size(s) - k.size(q)
            last = tirx.min(first + k.size(n), k.size(extent) + k.size(q))
            if not count_include_pad:
                first, last = tirx.max(first, k.size(0)), tirx.min(last, k.size(extent))
            count = count * (last - first)
        return sums.at(places) / Num(count, torch.int64).to(wide)

    return k.compute(element)


@converts("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default", "aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool(k: Kernel, x: Value, output: Any) -> Value:
    """Windows from floor(i n / m) to ceil((i + 1) n / m)."""
    spatial = int(k.operator.split("pool")[1][0])
    lead = x.rank - spatial
    own, new = x.shape[lead:], k.result.shape[lead:]
    if not all(isinstance(size, int) for size in (*own, *new)) or 0 in (*own, *new):
        raise Refused("windows of sizes that are known only at run time, or of none")
    widest = [max(-(-((i + 1) * n) // m) - i * n // m for i in range(m)) for n, m in zip(own, new)]
    wide = torch.float64

    def bounds(places: Any) -> list[tuple[Any, Any]]:
        found = []
        for place, n, m in zip(places[lead:], own, new):
            first = tirx.floordiv(place * k.size(n), k.size(m))
            last = tirx.floordiv((place + 1) * k.size(n) + k.size(m - 1), k.size(m))
            found.append((first, last))
        return found

    def inner(places: Any, window: Any) -> Num:
        at, inside = [], tirx.const(True, "bool")
        for (first, last), step in zip(bounds(places), window):
            at.append(first + step)
            inside = tirx.And(inside, tirx.LT(first + step, last))
        return guarded(Num(inside, torch.bool), x.at((*places[:lead], *at)).to(wide), number(0, wide))

    sums = k.sum(k.sizes(k.result.shape), k.sizes(widest), inner, wide)

    def element(*places: Any) -> Num:
        count = k.size(1)
        for first, last in bounds(places):
            count = count * (last - first)
        return sums.at(places) / Num(count, torch.int64).to(wide)

    return k.compute(element)
