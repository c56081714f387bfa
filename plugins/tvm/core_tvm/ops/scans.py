"""Running sums and products. Each element is folded anew over those before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, guarded, number
from ..kernel import Kernel, Value
from ..registry import Refused, converts
from .reductions import accumulating
from .shapes import axis_of, moved

LONGEST = 512
"""Elements of the axis; the work grows with the square."""


def _running(combine: Callable[[Num, Num], Num], start: int) -> Callable[..., Value]:
    def convert(k: Kernel, x: Value, dim: int, *, dtype: Any = None) -> Value:
        if not x.rank:
            return k.compute(lambda: x.at(()))
        axis = axis_of(dim, x.rank)
        if not isinstance(x.shape[axis], int) or x.shape[axis] > LONGEST:
            raise Refused(f"a running fold over more than {LONGEST} elements, or over a size known only at run time")
        kind = accumulating(k.result.dtype)
        result = k.result.dtype

        def inner(places: Any, reduced: Any) -> Num:
            before = Num(tirx.LE(reduced[0], places[axis]), torch.bool)
            return guarded(before, x.at(moved(places, axis, reduced[0])).to(result).to(kind), number(start, kind))

        sizes = k.sizes(x.shape)
        made = k.reduce(sizes, [sizes[axis]], inner, combine, start, kind)
        return k.compute(lambda *places: made.at(places))

    return convert


converts("aten.cumsum.default")(_running(lambda a, b: a + b, 0))
converts("aten.cumprod.default")(_running(lambda a, b: a * b, 1))
