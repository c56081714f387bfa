"""Reductions: sums, products, extremes, their positions, variances and norms.

16-bit floats are folded in float32, integers in int64. Variance is two folds (mean, then squared distances), which the
scheduler keeps in one kernel where the reduced elements stay in cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ..ir import expr
from ..ir.body import BodyBuilder
from ..ir.dtypes import FLOATING, HALF, compute_type
from ..ir.expr import Index
from ..ir.nodes import View, loop_vars
from ..ir.symbols import may_be_zero
from .pointwise import operand
from .promotion import dtype_name
from .registry import lowers
from .view import compose, reshape


def all_dims(x: View) -> list[int]:
    """Every dimension."""
    return list(range(len(x.sizes)))


def reduced_dims(x: View, dim: Any) -> list[int]:
    """The `dim` argument as a list; None and [] mean all."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return all_dims(x)
    return [dim] if isinstance(dim, int) else list(dim)


def fold(
    lowering: Any,
    node: fx.Node,
    x: View,
    dims: Sequence[int],
    kind: str,
    dtype: str,
    *,
    keepdim: bool = False,
    compute: str | None = None,
    prepare: Any = None,
) -> View:
    """A Reduce node, or a pointwise one where nothing is folded."""
    rank = len(x.sizes)
    chosen = {d % rank for d in dims} if rank else set()
    if all(x.sizes[d] == 1 for d in chosen):
        return _unfolded(lowering, node, x, chosen, kind, dtype, keepdim, compute, prepare)
    return lowering.reduce(
        x, sorted(chosen), kind, dtype, keepdim=keepdim, compute=compute, prepare=prepare, origin=node
    )


def _unfolded(
    lowering: Any,
    node: fx.Node,
    x: View,
    dims: set[int],
    kind: str,
    dtype: str,
    keepdim: bool,
    compute: str | None,
    prepare: Any,
) -> View:
    sizes = tuple(s for k, s in enumerate(x.sizes) if keepdim or k not in dims)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        if kind in ("argmax", "argmin"):
            return body.const(0, "int64")
        rest = iter(v for k, v in enumerate(variables) if not keepdim or k not in dims)
        index = tuple(0 if k in dims else next(rest) for k in range(len(x.sizes)))
        value = body.load_view(x, index)
        if prepare is not None:
            value = prepare(body, value, index)
        value = body.widen(value, compute) if compute else value
        if kind == "sum" and compute in FLOATING:  # sums begin with 0, and 0 + -0.0 is 0
            value = body.op("add", body.const(0.0, compute), value)
        return value

    return lowering.pointwise_of(sizes, dtype, build, origin=node)


def accumulator(dtype: str) -> str:
    """The type in which a sum of `dtype` is folded."""
    return compute_type(dtype) if dtype in FLOATING else "int64"


@lowers("sum.dim_IntList", "sum")
def sum_(lowering: Any, node: fx.Node, x: View, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> View:
    """The sum over dimensions."""
    out = dtype_name(node.meta["val"].dtype)
    return fold(lowering, node, x, reduced_dims(x, dim), "sum", out, keepdim=keepdim, compute=accumulator(out))


@lowers("mean.dim", "mean")
def mean(lowering: Any, node: fx.Node, x: View, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum divided by the count."""
    out = dtype_name(node.meta["val"].dtype)
    if out not in FLOATING:
        return NotImplemented
    dims = reduced_dims(x, dim)
    summed = fold(lowering, node, x, dims, "sum", accumulator(out), keepdim=keepdim, compute=accumulator(out))
    return divided(lowering, node, node.meta["val"], summed, count_of(x, dims))


def count_of(x: View, dims: Sequence[int]) -> Index:
    """The number of elements folded into one."""
    return expr.product(x.sizes[d] for d in {d % len(x.sizes) for d in dims}) if x.sizes else 1


def divided(lowering: Any, node: fx.Node, fake: Any, x: View, count: Index) -> View:
    """x / count in the dtype of `fake`."""
    dtype = dtype_name(fake.dtype)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        value = operand(body, x, variables, dtype)
        return body.op("div", value, body.widen(body.index(count), dtype))

    return lowering.pointwise(fake, build, origin=node)


@lowers("prod", "prod.dim_int")
def prod(lowering: Any, node: fx.Node, x: View, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> View:
    """The product over dimensions."""
    out = dtype_name(node.meta["val"].dtype)
    if out in HALF:
        return NotImplemented  # eager rounds after each factor
    return fold(lowering, node, x, reduced_dims(x, dim), "prod", out, keepdim=keepdim, compute=accumulator(out))


def _extreme(kind: str) -> Any:
    def lower(lowering: Any, node: fx.Node, x: View, dim: Any = None, keepdim: bool = False) -> Any:
        if may_be_zero(count_of(x, reduced_dims(x, dim))):
            return NotImplemented  # ATen raises what eager raises for an extreme of nothing
        compute = "uint8" if x.dtype == "bool" else compute_type(x.dtype)
        return fold(lowering, node, x, reduced_dims(x, dim), kind, x.dtype, keepdim=keepdim, compute=compute)

    return lower


lowers("amax", "max")(_extreme("amax"))
lowers("amin", "min")(_extreme("amin"))


def _positions(lowering: Any, node: fx.Node, x: View, dims: Sequence[int], kind: str, keepdim: bool) -> View:
    """Where an extreme first stands among the elements folded: the smallest position of an element equal to it.

    Both folds are plain ones, which have vectors; where a NaN is the extreme, so is any NaN.
    """
    compute = "uint8" if x.dtype == "bool" else compute_type(x.dtype)
    if lowering.device != "cpu":
        return fold(lowering, node, x, dims, f"arg{kind[1:]}", "int64", keepdim=keepdim, compute=compute)
    best = fold(lowering, node, x, dims, kind, compute, keepdim=True, compute=compute)
    rank = len(x.sizes)
    chosen = sorted({d % rank for d in dims}) if rank else []
    count = count_of(x, dims)
    narrow = "int32" if isinstance(count, int) and count < 2**31 - 1 else "int64"
    nowhere = 2**31 - 1 if narrow == "int32" else 2**63 - 1

    def prepare(body: BodyBuilder, value: int, index: tuple[Index, ...]) -> int:
        at = tuple(0 if k in chosen else i for k, i in enumerate(index))
        value = body.widen(value, compute)
        found = body.compare("eq", value, body.load_view(best, at))
        if compute in FLOATING:
            found = body.op("bitwise_or", found, body.compare("ne", value, value))
        position = expr.linear([index[d] for d in chosen], expr.row_major([x.sizes[d] for d in chosen]))
        return body.where(found, body.widen(body.index(position), narrow), body.const(nowhere, narrow))

    first = fold(lowering, node, x, dims, "amin", narrow, keepdim=keepdim, compute=narrow, prepare=prepare)
    return first if narrow == "int64" else _widened(lowering, node, first)


def _widened(lowering: Any, node: fx.Node, x: View) -> View:
    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        return body.widen(body.load_view(x, variables), "int64")

    return lowering.pointwise_of(x.sizes, "int64", build, origin=node)


def _extreme_and_position(kind: str) -> Any:
    def lower(lowering: Any, node: fx.Node, x: View, dim: int, keepdim: bool = False) -> Any:
        if may_be_zero(count_of(x, [dim])):
            return NotImplemented
        compute = "uint8" if x.dtype == "bool" else compute_type(x.dtype)
        values = fold(lowering, node, x, [dim], kind, x.dtype, keepdim=keepdim, compute=compute)
        return values, _positions(lowering, node, x, [dim], kind, keepdim)

    return lower


lowers("max.dim")(_extreme_and_position("amax"))
lowers("min.dim")(_extreme_and_position("amin"))


def _position(kind: str) -> Any:
    def lower(lowering: Any, node: fx.Node, x: View, dim: Any = None, keepdim: bool = False) -> Any:
        dims = reduced_dims(x, dim)
        if (dim is None and keepdim) or may_be_zero(count_of(x, dims)):
            return NotImplemented
        return _positions(lowering, node, x, dims, kind, keepdim)

    return lower


lowers("argmax")(_position("amax"))
lowers("argmin")(_position("amin"))


def _truth(kind: str) -> Any:
    def lower(lowering: Any, node: fx.Node, x: View, dim: Any = None, keepdim: bool = False) -> Any:
        dtype = dtype_name(node.meta["val"].dtype)
        return fold(lowering, node, x, reduced_dims(x, dim), kind, dtype, keepdim=keepdim, compute="bool")

    return lower


lowers("any", "any.dim", "any.dims")(_truth("any"))
lowers("all", "all.dim", "all.dims")(_truth("all"))


# --- moments ---------------------------------------------------------------------------------------------------------


def moments(lowering: Any, node: fx.Node, x: View, dims: Sequence[int], *, keepdim: bool) -> tuple[View, View]:
    """(mean, sum of squared distances from it) in the accumulation type, dimensions of size 1 kept when asked."""
    dtype = accumulator(x.dtype)
    summed = fold(lowering, node, x, dims, "sum", dtype, keepdim=True, compute=dtype)
    count = count_of(x, dims)

    def average(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        return body.op("div", body.load_view(summed, variables), body.widen(body.index(count), dtype))

    average_view = lowering.pointwise_of(summed.sizes, dtype, average, origin=node)
    rank = len(x.sizes)
    chosen = {d % rank for d in dims} if rank else set()

    def squared(body: BodyBuilder, value: int, index: tuple[Index, ...]) -> int:
        at = tuple(0 if k in chosen else i for k, i in enumerate(index))
        distance = body.op("sub", body.widen(value, dtype), body.load_view(average_view, at))
        return body.op("mul", distance, distance)

    spread = fold(lowering, node, x, dims, "sum", dtype, keepdim=True, compute=dtype, prepare=squared)
    if keepdim:
        return average_view, spread
    return squeezed(average_view, chosen), squeezed(spread, chosen)


def squeezed(view: View, dims: set[int]) -> View:
    """The view without some dimensions of size 1."""
    sizes = tuple(s for k, s in enumerate(view.sizes) if k not in dims)
    variables = iter(loop_vars(sizes))
    return compose(view, sizes, [0 if k in dims else next(variables) for k in range(len(view.sizes))])


def _divisor(body: BodyBuilder, count: Index, correction: float, dtype: str) -> int:
    if isinstance(count, int):
        return body.const(max(count - correction, 0.0), dtype)
    plain = body.op("sub", body.widen(body.index(count), dtype), body.const(correction, dtype))
    return body.op("maximum", plain, body.const(0.0, dtype))


def variance(
    lowering: Any, node: fx.Node, fake: Any, x: View, dim: Any, correction: Any, keepdim: bool, *, root: bool = False
) -> tuple[View, View] | Any:
    """(variance or its root, mean in the accumulation type)."""
    if x.dtype not in FLOATING:
        return NotImplemented
    dims = reduced_dims(x, dim)
    correction = 1.0 if correction is None else correction
    if not isinstance(correction, (int, float)):
        return NotImplemented
    dtype = accumulator(x.dtype)
    average, spread = moments(lowering, node, x, dims, keepdim=keepdim)
    count = count_of(x, dims)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        value = body.op("div", body.load_view(spread, variables), _divisor(body, count, float(correction), dtype))
        return body.op("sqrt", value) if root else value

    return lowering.pointwise(fake, build, origin=node), average


@lowers("var.correction")
def var(
    lowering: Any, node: fx.Node, x: View, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    """Mean squared distance from the mean."""
    result = variance(lowering, node, node.meta["val"], x, dim, correction, keepdim)
    return result if result is NotImplemented else result[0]


@lowers("std.correction")
def std(
    lowering: Any, node: fx.Node, x: View, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    """Square root of the variance."""
    result = variance(lowering, node, node.meta["val"], x, dim, correction, keepdim, root=True)
    return result if result is NotImplemented else result[0]


@lowers("var_mean.correction")
def var_mean(
    lowering: Any, node: fx.Node, x: View, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> Any:
    """(variance, mean)."""
    fake_var, fake_mean = node.meta["val"]
    result = variance(lowering, node, fake_var, x, dim, correction, keepdim)
    if result is NotImplemented:
        return result
    spread, average = result
    if average.dtype != dtype_name(fake_mean.dtype):
        source = average

        def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
            return body.load_view(source, variables)

        average = lowering.pointwise(fake_mean, build, origin=node)
    return spread, average


@lowers("linalg_vector_norm")
def vector_norm(
    lowering: Any, node: fx.Node, x: View, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """The 2-, 1- or maximum norm."""
    out = dtype_name(node.meta["val"].dtype)
    if out not in FLOATING or ord not in (1, 2, float("inf")):
        return NotImplemented
    compute = accumulator(out)

    def prepare(body: BodyBuilder, value: int, index: tuple[Index, ...]) -> int:
        value = body.widen(value, compute)
        return body.op("mul", value, value) if ord == 2 else body.op("abs", value)

    kind = "amax" if ord == float("inf") else "sum"
    if kind == "amax" and any(x.sizes[d] == 0 for d in reduced_dims(x, dim)):
        return NotImplemented
    folded = fold(
        lowering, node, x, reduced_dims(x, dim), kind, compute, keepdim=keepdim, compute=compute, prepare=prepare
    )

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        value = body.load_view(folded, variables)
        return body.op("sqrt", value) if ord == 2 else value

    return lowering.pointwise(node.meta["val"], build, origin=node)


__all__ = ["accumulator", "count_of", "fold", "moments", "reduced_dims", "reshape", "squeezed", "variance"]
