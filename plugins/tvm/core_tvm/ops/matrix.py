"""Products of matrices. Sums run along the shared size one after another, as a processor's fused multiply-adds do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..arithmetic import Num, computing, number
from ..kernel import Kernel, Made, Value, added
from ..registry import converts


def product(
    k: Kernel,
    sizes: Sequence[Any],
    shared: Any,
    left: Callable[..., Num],
    right: Callable[..., Num],
    dtype: torch.dtype,
) -> Made:
    """sum over s of left(places, s) * right(places, s)."""
    kind = computing(dtype) if dtype.is_floating_point else dtype
    if kind is torch.bool:
        kind = torch.int32

    def inner(places: Any, reduced: Any) -> Num:
        return left(places, reduced[0]).to(kind) * right(places, reduced[0]).to(kind)

    return k.reduce(sizes, [shared], inner, added, 0, kind, "product")


def _matrices(k: Kernel, one: Value, two: Value) -> Made:
    fake = one.fake
    lead = [] if one.rank == 2 else [fake.shape[0]]
    sizes = k.sizes([*lead, fake.shape[-2], two.shape[-1]])
    return product(
        k,
        sizes,
        k.size(fake.shape[-1]),
        lambda at, s: one.at((*at[:-2], at[-2], s)),
        lambda at, s: two.at((*at[:-2], s, at[-1])),
        one.dtype,
    )


@converts("aten.mm.default", "aten.bmm.default")
def mm(k: Kernel, one: Value, two: Value) -> Value:
    made = _matrices(k, one, two)
    return k.compute(lambda *places: made.at(places))


@converts("aten.mv.default")
def mv(k: Kernel, one: Value, two: Value) -> Value:
    made = _vector(k, one, two)
    return k.compute(lambda *places: made.at(places))


def _vector(k: Kernel, one: Value, two: Value) -> Made:
    kind = torch.float64 if one.dtype.is_floating_point else one.dtype

    def inner(places: Any, reduced: Any) -> Num:
        return one.at((*places, reduced[0])).to(kind) * two.at(reduced).to(kind)

    lead = k.sizes(one.shape[:-1])
    return k.reduce(lead, k.sizes(one.shape[-1:]), inner, added, 0, kind, "product")


@converts("aten.dot.default", "aten.vdot.default")
def dot(k: Kernel, one: Value, two: Value) -> Value:
    made = _vector(k, one, two)
    return k.compute(lambda: made.at(()))


@converts("aten.outer.default")
def outer(k: Kernel, one: Value, two: Value) -> Value:
    kind = computing(k.result.dtype)
    return k.compute(lambda row, column: one.at((row,)).to(kind) * two.at((column,)).to(kind))


def _added(k: Kernel, x: Value, made: Made, beta: Any, alpha: Any) -> Value:
    kind = made.dtype

    def element(*places: Any) -> Num:
        found = made.at(places)
        if alpha != 1:
            found = found * number(alpha, kind)
        if beta == 0:
            return found
        own = k.broadcast(x, places, kind)
        return found + (own if beta == 1 else own * number(beta, kind))

    return k.compute(element)


@converts("aten.addmm.default", "aten.baddbmm.default")
def addmm(k: Kernel, x: Value, one: Value, two: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _added(k, x, _matrices(k, one, two), beta, alpha)


@converts("aten.addmv.default")
def addmv(k: Kernel, x: Value, one: Value, two: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _added(k, x, _vector(k, one, two), beta, alpha)


@converts("aten.addbmm.default")
def addbmm(k: Kernel, x: Value, one: Value, two: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    kind = computing(one.dtype)

    def inner(places: Any, reduced: Any) -> Num:
        batch, shared = reduced
        return one.at((batch, places[0], shared)).to(kind) * two.at((batch, shared, places[1])).to(kind)

    sizes = k.sizes([one.shape[1], two.shape[2]])
    over = k.sizes([one.shape[0], one.shape[2]])
    return _added(k, x, k.reduce(sizes, over, inner, added, 0, kind, "product"), beta, alpha)


@converts("aten.linear.default")
def linear(k: Kernel, x: Value, weight: Value, bias: Value | None = None) -> Value:
    sizes = k.sizes(k.result.shape)
    made = product(
        k,
        sizes,
        k.size(x.shape[-1]),
        lambda at, s: x.at((*at[:-1], s)),
        lambda at, s: weight.at((at[-1], s)),
        x.dtype,
    )
    if bias is None:
        return k.compute(lambda *places: made.at(places))
    return k.compute(lambda *places: made.at(places) + bias.at(places[-1:]).to(made.dtype))
