"""Softmax and the normalisations, whole, forward and backward.

Each is a few folds and pointwise nodes over one iteration space; the scheduler makes one loop nest of them. Keeping
them whole until here (instead of decomposing at record time) keeps graphs small and the formula eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from ..ir import expr
from ..ir.body import BodyBuilder
from ..ir.dtypes import FLOATING, HALF
from ..ir.expr import Index
from ..ir.nodes import View, loop_vars
from .pointwise import broadcast_index
from .promotion import dtype_name
from .reduce import accumulator, fold, moments, squeezed
from .registry import lowers
from .view import compose, reshape

Build = Callable[..., int]


def mapped(lowering: Any, node: fx.Node, sizes: Sequence[Index], dtype: str, formula: Build, *views: View) -> View:
    """A pointwise node of `sizes` from broadcast operands, each widened to the compute type of `dtype`."""

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        values = [body.widen(body.load_view(v, broadcast_index(v.sizes, variables)), dtype) for v in views]
        return formula(body, *values)

    return lowering.pointwise_of(tuple(sizes), dtype, build, origin=node)


def stored(lowering: Any, node: fx.Node, fake: Any, compute: str, formula: Build, *views: View) -> View:
    """A pointwise node of the recorded shape, strides and dtype, computed in `compute`."""

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        values = [body.widen(body.load_view(v, broadcast_index(v.sizes, variables)), compute) for v in views]
        return formula(body, *values)

    return lowering.pointwise(fake, build, origin=node)


def row_sum(lowering: Any, node: fx.Node, x: View, dims: Sequence[int], compute: str) -> View:
    """Sum over dims, kept as size 1."""
    return fold(lowering, node, x, dims, "sum", compute, keepdim=True, compute=compute)


# --- softmax ---------------------------------------------------------------------------------------------------------


@lowers("_softmax", "_log_softmax", "_safe_softmax")
def softmax(lowering: Any, node: fx.Node, x: View, dim: int, half_to_float: Any = False) -> Any:
    """exp(x - max) / sum, or its logarithm."""
    name = node.target._schema.name
    fake = node.meta["val"]
    if not x.sizes or dtype_name(fake.dtype) not in FLOATING or x.sizes[dim] == 0 or name == "aten::_safe_softmax":
        return NotImplemented
    dtype = accumulator(dtype_name(fake.dtype))
    largest = fold(lowering, node, x, [dim], "amax", dtype, keepdim=True, compute=dtype)

    def shifted(body: BodyBuilder, a: int, m: int) -> int:
        return body.op("sub", a, m)

    def exponential(body: BodyBuilder, a: int, m: int) -> int:
        return body.op("exp_beside_one", shifted(body, a, m))

    powers = mapped(lowering, node, x.sizes, dtype, exponential, x, largest)
    total = row_sum(lowering, node, powers, [dim], dtype)
    if name == "aten::_softmax":

        def inverse(body: BodyBuilder, s: int) -> int:
            return body.op("div", body.const(1.0, dtype), s)

        share = mapped(lowering, node, total.sizes, dtype, inverse, total)
        return stored(lowering, node, fake, dtype, lambda body, e, s: body.op("mul", e, s), powers, share)

    def logarithm(body: BodyBuilder, a: int, m: int, s: int) -> int:
        return body.op("sub", shifted(body, a, m), body.op("log", s))

    return stored(lowering, node, fake, dtype, logarithm, x, largest, total)


@lowers("_softmax_backward_data")
def softmax_backward(lowering: Any, node: fx.Node, grad: View, y: View, dim: int, input_dtype: Any) -> Any:
    """y * (grad - sum(grad * y))."""
    fake = node.meta["val"]
    if not y.sizes:
        return NotImplemented
    dtype = accumulator(y.dtype)
    weighted = mapped(lowering, node, y.sizes, dtype, lambda body, g, a: body.op("mul", g, a), grad, y)
    total = row_sum(lowering, node, weighted, [dim], dtype)

    def formula(body: BodyBuilder, g: int, a: int, s: int) -> int:
        return body.op("mul", a, body.op("sub", g, s))

    return stored(lowering, node, fake, dtype, formula, grad, y, total)


@lowers("_log_softmax_backward_data")
def log_softmax_backward(lowering: Any, node: fx.Node, grad: View, y: View, dim: int, input_dtype: Any) -> Any:
    """grad - exp(y) * sum(grad)."""
    fake = node.meta["val"]
    if not y.sizes:
        return NotImplemented
    dtype = accumulator(y.dtype)
    total = row_sum(lowering, node, grad, [dim], dtype)

    def formula(body: BodyBuilder, g: int, a: int, s: int) -> int:
        return body.op("sub", g, body.op("mul", body.op("exp", a), s))

    return stored(lowering, node, fake, dtype, formula, grad, y, total)


# --- layer norm, rms norm --------------------------------------------------------------------------------------------


def _plus(body: BodyBuilder, value: int, addend: float) -> int:
    return body.op("add", value, body.const(addend, body.dtype(value)))


def inverse_deviation(lowering: Any, node: fx.Node, spread: View, count: Index, eps: float, dtype: str) -> View:
    """1 / sqrt(spread / count + eps)."""

    def formula(body: BodyBuilder, s: int) -> int:
        average = body.op("div", s, body.widen(body.index(count), dtype))
        return body.op("rsqrt", _plus(body, average, eps))

    return mapped(lowering, node, spread.sizes, dtype, formula, spread)


def _scale_shift(body: BodyBuilder, value: int, rest: Sequence[int], has_weight: bool, has_bias: bool) -> int:
    operands = iter(rest)
    if has_weight:
        value = body.op("mul", value, next(operands))
    if has_bias:
        value = body.op("add", value, next(operands))
    return value


@lowers("native_layer_norm")
def layer_norm(
    lowering: Any, node: fx.Node, x: View, shape: Sequence[Any], weight: View | None, bias: View | None, eps: float
) -> Any:
    """((x - mean) * rstd * weight + bias, mean, rstd)."""
    fake_out, fake_mean, fake_rstd = node.meta["val"]
    rank = len(shape)
    dims = list(range(len(x.sizes) - rank, len(x.sizes)))
    dtype = accumulator(x.dtype)
    count = expr.product(x.sizes[d] for d in dims)
    if count == 0:
        return NotImplemented
    average, spread = moments(lowering, node, x, dims, keepdim=True)
    rstd = inverse_deviation(lowering, node, spread, count, eps, dtype)
    parameters = [p for p in (weight, bias) if p is not None]

    def formula(body: BodyBuilder, a: int, m: int, r: int, *rest: int) -> int:
        value = body.op("mul", body.op("sub", a, m), r)
        return _scale_shift(body, value, rest, weight is not None, bias is not None)

    out = stored(lowering, node, fake_out, dtype, formula, x, average, rstd, *parameters)
    return out, _as(lowering, node, fake_mean, average), _as(lowering, node, fake_rstd, rstd)


def _as(lowering: Any, node: fx.Node, fake: Any, value: View) -> View:
    """`value` in the recorded shape and dtype: a reshape where the dtype is the same."""
    sizes = lowering.sizes(fake)
    view = value if value.sizes == sizes else reshape(value, sizes)
    if view.dtype == dtype_name(fake.dtype):
        return view
    return stored(lowering, node, fake, value.dtype, lambda body, a: a, view)


@lowers("native_layer_norm_backward")
def layer_norm_backward(
    lowering: Any,
    node: fx.Node,
    grad: View,
    x: View,
    shape: Sequence[Any],
    mean: View,
    rstd: View,
    weight: View | None,
    bias: View | None,
    mask: Sequence[bool],
) -> Any:
    """Gradients of input, weight and bias, those that `mask` asks for."""
    fakes = node.meta["val"]
    dtype = accumulator(x.dtype)
    rank = len(x.sizes)
    inner = list(range(rank - len(shape), rank))
    outer = list(range(rank - len(shape)))
    count = expr.product(x.sizes[d] for d in inner)
    if count == 0:
        return NotImplemented

    def normal(body: BodyBuilder, a: int, m: int, r: int) -> int:
        return body.op("mul", body.op("sub", a, m), r)

    results: list[View | None] = [None, None, None]
    if mask[0]:
        results[0] = _norm_input_grad(
            lowering, node, fakes[0], grad, x, mean, rstd, weight, inner, count, dtype, normal
        )
    if mask[1]:
        product = mapped(
            lowering,
            node,
            x.sizes,
            dtype,
            lambda body, g, a, m, r: body.op("mul", g, normal(body, a, m, r)),
            grad,
            x,
            mean,
            rstd,
        )
        results[1] = _outer_sum(lowering, node, fakes[1], product, outer, dtype)
    if mask[2]:
        results[2] = _outer_sum(lowering, node, fakes[2], grad, outer, dtype)
    return tuple(results)


def _outer_sum(lowering: Any, node: fx.Node, fake: Any, x: View, outer: Sequence[int], dtype: str) -> View:
    if not outer:
        return _as(lowering, node, fake, x)
    return fold(lowering, node, x, outer, "sum", dtype_name(fake.dtype), compute=dtype)


def _norm_input_grad(
    lowering: Any,
    node: fx.Node,
    fake: Any,
    grad: View,
    x: View,
    mean: View | None,
    rstd: View,
    weight: View | None,
    inner: Sequence[int],
    count: Index,
    dtype: str,
    normal: Build,
) -> View:
    """rstd * (w*g - mean(w*g) - xhat * mean(w*g*xhat)); without `mean` the middle term is absent (rms norm)."""
    statistics = [v for v in (mean, rstd) if v is not None]
    weights = [weight] if weight is not None else []

    def weighted(body: BodyBuilder, g: int, rest: Sequence[int]) -> int:
        return body.op("mul", g, rest[0]) if weights else g

    scaled = mapped(lowering, node, x.sizes, dtype, lambda body, g, *w: weighted(body, g, w), grad, *weights)
    projected = mapped(
        lowering,
        node,
        x.sizes,
        dtype,
        lambda body, s, a, *stats: body.op("mul", s, normal(body, a, *stats)),
        scaled,
        x,
        *statistics,
    )
    along = row_sum(lowering, node, projected, inner, dtype)
    sums = [along] if mean is None else [along, row_sum(lowering, node, scaled, inner, dtype)]

    def formula(body: BodyBuilder, s: int, a: int, *rest: int) -> int:
        stats, folded = rest[: len(statistics)], rest[len(statistics) :]
        n = body.widen(body.index(count), dtype)
        value = body.op("sub", s, body.op("mul", normal(body, a, *stats), body.op("div", folded[0], n)))
        if len(folded) > 1:
            value = body.op("sub", value, body.op("div", folded[1], n))
        return body.op("mul", value, stats[-1])

    return stored(lowering, node, fake, dtype, formula, scaled, x, *statistics, *sums)


@lowers("_fused_rms_norm")
def rms_norm(
    lowering: Any, node: fx.Node, x: View, shape: Sequence[Any], weight: View | None, eps: float | None
) -> Any:
    """(x * rstd * weight, rstd) with rstd = 1 / sqrt(mean(x * x) + eps)."""
    fake_out, fake_rstd = node.meta["val"]
    dtype = accumulator(x.dtype)
    rank = len(x.sizes)
    dims = list(range(rank - len(shape), rank))
    count = expr.product(x.sizes[d] for d in dims)
    if eps is None or count == 0:
        return NotImplemented

    def square(body: BodyBuilder, value: int, index: Any) -> int:
        value = body.widen(value, dtype)
        return body.op("mul", value, value)

    spread = fold(lowering, node, x, dims, "sum", dtype, keepdim=True, compute=dtype, prepare=square)
    rstd = inverse_deviation(lowering, node, spread, count, eps, dtype)
    parameters = [weight] if weight is not None else []

    def formula(body: BodyBuilder, a: int, r: int, *rest: int) -> int:
        return _scale_shift(body, body.op("mul", a, r), rest, weight is not None, False)

    out = stored(lowering, node, fake_out, dtype, formula, x, rstd, *parameters)
    return out, _as(lowering, node, fake_rstd, rstd)


@lowers("_fused_rms_norm_backward")
def rms_norm_backward(
    lowering: Any,
    node: fx.Node,
    grad: View,
    x: View,
    shape: Sequence[Any],
    rstd: View,
    weight: View | None,
    mask: Sequence[bool],
) -> Any:
    """Gradients of input and weight."""
    fakes = node.meta["val"]
    dtype = accumulator(x.dtype)
    rank = len(x.sizes)
    inner = list(range(rank - len(shape), rank))
    count = expr.product(x.sizes[d] for d in inner)
    if count == 0 or len(rstd.sizes) != rank:
        return NotImplemented

    def normal(body: BodyBuilder, a: int, r: int) -> int:
        return body.op("mul", a, r)

    results: list[View | None] = [None, None]
    if mask[0]:
        results[0] = _norm_input_grad(
            lowering, node, fakes[0], grad, x, None, rstd, weight, inner, count, dtype, normal
        )
    if mask[1] and weight is not None:
        product = mapped(
            lowering,
            node,
            x.sizes,
            dtype,
            lambda body, g, a, r: body.op("mul", g, normal(body, a, r)),
            grad,
            x,
            rstd,
        )
        results[1] = _outer_sum(lowering, node, fakes[1], product, list(range(rank - len(shape))), dtype)
    return tuple(results)


# --- group norm, batch norm ------------------------------------------------------------------------------------------


@lowers("native_group_norm")
def group_norm(
    lowering: Any,
    node: fx.Node,
    x: View,
    weight: View | None,
    bias: View | None,
    batch: Any,
    channels: Any,
    area: Any,
    groups: int,
    eps: float,
) -> Any:
    """(normalised by group, mean [N, groups], rstd [N, groups])."""
    fake_out, fake_mean, fake_rstd = node.meta["val"]
    dtype = accumulator(x.dtype)
    width = expr.exact_quotient(x.sizes[1], groups)
    if width is None or any(s == 0 for s in x.sizes) or not all(isinstance(s, int) for s in x.sizes[1:]):
        return NotImplemented
    rest = x.sizes[2:]
    grouped = reshape(x, (x.sizes[0], groups, width, *rest))
    dims = list(range(2, len(grouped.sizes)))
    count = expr.product(grouped.sizes[d] for d in dims)
    average, spread = moments(lowering, node, grouped, dims, keepdim=True)
    rstd = inverse_deviation(lowering, node, spread, count, eps, dtype)

    def per_channel(view: View) -> View:
        """[N, groups, 1, ...] read at [N, C, ...]."""
        sizes = (x.sizes[0], x.sizes[1]) + (1,) * len(rest)
        variables = loop_vars(tuple(sizes))
        index = [variables[0], expr.floordiv(variables[1], width)] + [0] * (len(rest) + 1)
        return compose(view, sizes, index)

    parameters = [_along_channels(p, len(x.sizes)) for p in (weight, bias) if p is not None]

    def formula(body: BodyBuilder, a: int, m: int, r: int, *others: int) -> int:
        value = body.op("mul", body.op("sub", a, m), r)
        return _scale_shift(body, value, others, weight is not None, bias is not None)

    out = stored(lowering, node, fake_out, dtype, formula, x, per_channel(average), per_channel(rstd), *parameters)
    return out, _as(lowering, node, fake_mean, average), _as(lowering, node, fake_rstd, rstd)


def _along_channels(parameter: View, rank: int) -> View:
    """A [C] tensor as [C, 1, 1, ...] for broadcasting against [N, C, ...]."""
    sizes = parameter.sizes + (1,) * (rank - 2)
    return compose(parameter, sizes, loop_vars(tuple(sizes))[:1])


@lowers("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    lowering: Any,
    node: fx.Node,
    x: View,
    weight: View | None,
    bias: View | None,
    mean: View,
    var: View,
    momentum: float,
    eps: float,
) -> Any:
    """(x normalised by the running statistics, empty, empty)."""
    fake_out, fake_mean, fake_rstd = node.meta["val"]
    out = _batch_normalised(lowering, node, fake_out, x, weight, bias, mean, var, eps)
    return out, _empty(lowering, node, fake_mean), _empty(lowering, node, fake_rstd)


@lowers("native_batch_norm", "_native_batch_norm_legit")
def batch_norm(
    lowering: Any,
    node: fx.Node,
    x: View,
    weight: View | None,
    bias: View | None,
    mean: View | None,
    var: View | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """By running statistics, or by the batch's own; running statistics that are to be written are ATen's."""
    if mean is None and var is None:
        return batch_norm_alone(lowering, node, x, weight, bias, training, momentum, eps)
    if training or mean is None or var is None:
        return NotImplemented
    return batch_norm_inference(lowering, node, x, weight, bias, mean, var, momentum, eps)


def _empty(lowering: Any, node: fx.Node, fake: Any) -> View:
    return lowering.pointwise(fake, lambda body, variables: body.const(0, dtype_name(fake.dtype)), origin=node)


def _batch_normalised(
    lowering: Any,
    node: fx.Node,
    fake: Any,
    x: View,
    weight: View | None,
    bias: View | None,
    mean: View,
    var: View,
    eps: float,
) -> View:
    dtype = accumulator(x.dtype)
    rank = len(x.sizes)
    parameters = [_along_channels(p, rank) for p in (weight, bias) if p is not None]

    def formula(body: BodyBuilder, a: int, m: int, v: int, *rest: int) -> int:
        # One multiplication and one addition an element: scale and shift depend on the channel only.
        scale = body.op("div", body.const(1, dtype), body.op("sqrt", _plus(body, v, eps)))
        operands = iter(rest)
        if weight is not None:
            scale = body.op("mul", scale, next(operands))
        m = body.op("neg", m)
        shift = body.op("mul", m, scale) if bias is None else body.op("fma", m, scale, next(operands))
        return body.op("fma", a, scale, shift)

    channels = [_along_channels(v, rank) for v in (mean, var)]
    return stored(lowering, node, fake, dtype, formula, x, *channels, *parameters)


@lowers("_native_batch_norm_legit.no_stats")
def batch_norm_alone(
    lowering: Any,
    node: fx.Node,
    x: View,
    weight: View | None,
    bias: View | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """(out, batch mean, batch rstd), where no running statistics are kept."""
    if any(not isinstance(s, int) or s == 0 for s in x.sizes) or x.dtype in HALF:
        return NotImplemented
    return _by_batch(lowering, node, node.meta["val"], x, weight, bias, eps)[:3]


def _by_batch(
    lowering: Any,
    node: fx.Node,
    fakes: Sequence[Any],
    x: View,
    weight: View | None,
    bias: View | None,
    eps: float,
) -> tuple[View, View, View, View, View]:
    """(out, mean, rstd, mean in the type computed in, sum of squared distances from it) over all but the channels."""
    dtype = accumulator(x.dtype)
    rank = len(x.sizes)
    dims = [k for k in range(rank) if k != 1]
    average, spread = moments(lowering, node, x, dims, keepdim=True)
    rstd = inverse_deviation(lowering, node, spread, expr.product(x.sizes[d] for d in dims), eps, dtype)
    parameters = [_along_channels(p, rank) for p in (weight, bias) if p is not None]

    def formula(body: BodyBuilder, a: int, m: int, r: int, *rest: int) -> int:
        value = body.op("mul", body.op("sub", a, m), r)
        return _scale_shift(body, value, rest, weight is not None, bias is not None)

    out = stored(lowering, node, fakes[0], dtype, formula, x, average, rstd, *parameters)
    return out, _as(lowering, node, fakes[1], average), _as(lowering, node, fakes[2], rstd), average, spread


@lowers("_native_batch_norm_legit_functional")
def batch_norm_functional(
    lowering: Any,
    node: fx.Node,
    x: View,
    weight: View | None,
    bias: View | None,
    running_mean: View,
    running_var: View,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """(out, batch mean, batch rstd, new running mean, new running variance)."""
    fakes = node.meta["val"]
    if not training or any(s == 0 for s in x.sizes):
        return NotImplemented
    dtype = accumulator(x.dtype)
    rank = len(x.sizes)
    dims = [k for k in range(rank) if k != 1]
    count = expr.product(x.sizes[d] for d in dims)
    out, mean, rstd, average, spread = _by_batch(lowering, node, fakes, x, weight, bias, eps)
    channels = set(dims)

    def blend(body: BodyBuilder, old: int, new: int) -> int:
        keep = body.op("mul", body.const(1.0 - momentum, dtype), old)
        return body.op("add", body.op("mul", body.const(momentum, dtype), new), keep)

    def blend_variance(body: BodyBuilder, old: int, folded: int) -> int:
        n = body.widen(body.index(expr.sub(count, 1)), dtype)
        return blend(body, old, body.op("div", folded, n))

    flat_mean, flat_spread = squeezed(average, channels), squeezed(spread, channels)
    return (
        out,
        mean,
        rstd,
        stored(lowering, node, fakes[3], dtype, blend, running_mean, flat_mean),
        stored(lowering, node, fakes[4], dtype, blend_variance, running_var, flat_spread),
    )
