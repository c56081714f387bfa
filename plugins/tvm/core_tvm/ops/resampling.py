"""Images of another size."""

from __future__ import annotations

from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, choose, computing, intrinsic, number
from ..kernel import Kernel, Value
from ..registry import Refused, converts


@converts("aten.upsample_nearest1d.default", "aten.upsample_nearest2d.default", "aten.upsample_nearest3d.default")
def nearest(k: Kernel, x: Value, size: Any, *scales: Any) -> Value:
    spatial = x.rank - 2
    given = [*scales, *[None] * spatial][:spatial]

    def element(*places: Any) -> Num:
        at = list(places[:2])
        for axis in range(spatial):
            old, new = x.shape[2 + axis], k.result.shape[2 + axis]
            if not isinstance(old, int) or not isinstance(new, int):
                raise Refused("an image whose size is known only at run time")
            factor = 1 / given[axis] if given[axis] else old / new
            place = Num(places[2 + axis], torch.int64).to(torch.float32) * torch.tensor(factor).item()
            found = intrinsic("floor", place).to(torch.int64).expr
            at.append(tirx.min(found, k.size(old - 1)))
        return x.at(at)

    return k.compute(element)


@converts("aten.upsample_bilinear2d.default")
def bilinear(k: Kernel, x: Value, size: Any, corners: bool, scale_h: Any = None, scale_w: Any = None) -> Value:
    kind = computing(x.dtype)
    if not x.dtype.is_floating_point:
        raise Refused("images of whole numbers")

    def weights(place: Any, axis: int, scale: Any) -> tuple[Any, Any, Num]:
        old, new = x.shape[axis], k.result.shape[axis]
        if not isinstance(old, int) or not isinstance(new, int):
            raise Refused("an image whose size is known only at run time")
        at = Num(place, torch.int64).to(kind)
        if corners:
            source = at * ((old - 1) / (new - 1) if new > 1 else 0.0)
        else:
            source = (at + 0.5) * (1 / scale if scale else old / new) - 0.5
            source = choose(source < 0, number(0, kind), source)
        first = intrinsic("floor", source).to(torch.int64).expr
        first = tirx.min(first, k.size(old - 1))
        share = source - Num(first, torch.int64).to(kind)
        return first, tirx.min(first + 1, k.size(old - 1)), choose(share > 1, number(1, kind), share)

    def element(batch: Any, channel: Any, row: Any, column: Any) -> Num:
        top, bottom, down = weights(row, 2, scale_h)
        left, right, across = weights(column, 3, scale_w)

        def value(r: Any, c: Any) -> Num:
            return x.at((batch, channel, r, c))

        upper = value(top, left) * (1 - across) + value(top, right) * across
        lower = value(bottom, left) * (1 - across) + value(bottom, right) * across
        return upper * (1 - down) + lower * down

    return k.compute(element)
