"""Normalisation and softmax, calculated in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, intrinsic, library, number
from ..kernel import Kernel, Value
from ..registry import Refused, converts
from .reductions import axes_of, moments, shifted_sums

WIDE = torch.float64


@converts("aten._softmax.default", "aten.softmax.int", "aten._safe_softmax.default")
def softmax(k: Kernel, x: Value, dim: int, *args: Any) -> Value:
    return _soft(k, x, dim, logarithm=False)


@converts("aten._log_softmax.default", "aten.log_softmax.int")
def log_softmax(k: Kernel, x: Value, dim: int, *args: Any) -> Value:
    return _soft(k, x, dim, logarithm=True)


def _soft(k: Kernel, x: Value, dim: int, logarithm: bool) -> Value:
    if str(k.operator).startswith("aten._safe"):
        raise Refused("a softmax that makes 0 of rows without values")
    if not x.dtype.is_floating_point:
        raise Refused("a softmax of whole numbers")
    axes = axes_of(dim, x.rank) or []
    top, sums = shifted_sums(k, x, axes, _shift)

    def element(*places: Any) -> Num:
        kept = [place for axis, place in enumerate(places) if axis not in axes]
        away = x.at(places).to(WIDE) - _shift(top, kept)
        if logarithm:
            return away - library("log", sums.at(kept))
        return library("exp", away) / sums.at(kept)

    return k.compute(element)


def _shift(top: Any, kept: Any) -> Num:
    """The greatest value, infinite or not: of a row that holds an infinity, or nothing else, eager makes NaN."""
    return top.at(kept).to(WIDE)


@converts("aten.native_layer_norm.default")
def native_layer_norm(
    k: Kernel, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value | None, ...]:
    axes = list(range(x.rank - len(shape), x.rank))
    means, squares, count = moments(k, x, axes)
    lead = k.sizes([x.shape[axis] for axis in range(x.rank) if axis not in axes])
    scale = k.make(lead, WIDE, lambda *at: 1 / intrinsic("sqrt", squares.at(at) / count + eps), "scale")

    def element(*places: Any) -> Num:
        at, inner = places[: len(lead)], places[len(lead) :]
        found = (x.at(places).to(WIDE) - means.at(at)) * scale.at(at)
        return _affine(found, weight, bias, inner)

    def statistic(made: Any, index: int) -> Value | None:
        return k.compute(lambda *places: made.at(places[: len(lead)]), index) if k.wanted(index) else None

    return k.compute(element, 0), statistic(means, 1), statistic(scale, 2)


def _affine(found: Num, weight: Value | None, bias: Value | None, at: Sequence[Any]) -> Num:
    if weight is not None:
        found = found * weight.at(at).to(WIDE)
    if bias is not None:
        found = found + bias.at(at).to(WIDE)
    return found


@converts("aten.native_group_norm.default")
def native_group_norm(
    k: Kernel, x: Value, weight: Value | None, bias: Value | None, n: Any, c: Any, hxw: Any, groups: int, eps: float
) -> tuple[Value | None, ...]:
    if not isinstance(c, int):
        raise Refused("groups of channels whose number is known only at run time")
    if any(size == 0 for size in x.shape):
        raise Refused("statistics of no values")
    each = k.size(c // groups)
    inner = k.sizes(x.shape[2:])
    over = [each, *inner]
    sizes = [k.size(x.shape[0]), k.size(groups)]
    count = Num(k.count(x.shape[2:]) * each, torch.int64).to(WIDE)

    def value(places: Any, reduced: Any) -> Num:
        return x.at((places[0], places[1] * each + reduced[0], *reduced[1:])).to(WIDE)

    sums = k.sum(sizes, over, value, WIDE)
    means = k.make(sizes, WIDE, lambda *at: sums.at(at) / count, "mean")

    def squared(places: Any, reduced: Any) -> Num:
        away = value(places, reduced) - means.at(places)
        return away * away

    squares = k.sum(sizes, over, squared, WIDE)
    scale = k.make(sizes, WIDE, lambda *at: 1 / intrinsic("sqrt", squares.at(at) / count + eps), "scale")

    def element(*places: Any) -> Num:
        at = (places[0], tirx.floordiv(places[1], each))
        return _affine((x.at(places).to(WIDE) - means.at(at)) * scale.at(at), weight, bias, places[1:2])

    def statistic(made: Any, index: int) -> Value | None:
        return k.compute(lambda *places: made.at(places), index) if k.wanted(index) else None

    return k.compute(element, 0), statistic(means, 1), statistic(scale, 2)


@converts("aten._native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    k: Kernel, x: Value, weight: Value | None, bias: Value | None, mean: Value, variance: Value, momentum: Any, eps: Any
) -> tuple[Value | None, ...]:
    def element(*places: Any) -> Num:
        at = places[1:2]
        scale = 1 / intrinsic("sqrt", variance.at(at).to(WIDE) + eps)
        return _affine((x.at(places).to(WIDE) - mean.at(at).to(WIDE)) * scale, weight, bias, at)

    for index in (1, 2):
        if k.wanted(index) and k.result[index].numel():
            raise Refused("statistics that inference does not make")
    nothing = [
        k.compute(lambda *_, _at=at: number(0, k.result[_at].dtype), at) if k.wanted(at) else None for at in (1, 2)
    ]
    return k.compute(element, 0), *nothing


@converts("aten.native_batch_norm.default")
def native_batch_norm(
    k: Kernel, x: Value, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: Any, eps: Any
) -> tuple[Value | None, ...]:
    if training:
        if mean is not None:
            raise Refused("statistics of the batch that are written to in place")
        return batch_norm_training(k, x, weight, bias, x, x, True, momentum, eps)[:3]
    if mean is None:
        raise Refused("inference without statistics")
    return batch_norm_inference(k, x, weight, bias, mean, variance, momentum, eps)


@converts("aten._native_batch_norm_legit_functional.default")
def batch_norm_training(
    k: Kernel, x: Value, weight: Any, bias: Any, mean: Value, variance: Value, training: bool, momentum: Any, eps: Any
) -> tuple[Value | None, ...]:
    """By the statistics of the batch; the running ones are moved towards them."""
    if any(size == 0 for size in x.shape) or not training:
        raise Refused("statistics of no values")
    axes = [axis for axis in range(x.rank) if axis != 1]
    means, squares, count = moments(k, x, axes)
    channels = [k.size(x.shape[1])]
    scale = k.make(channels, WIDE, lambda at: 1 / intrinsic("sqrt", squares.at((at,)) / count + eps), "scale")

    def element(*places: Any) -> Num:
        at = places[1:2]
        return _affine((x.at(places).to(WIDE) - means.at(at)) * scale.at(at), weight, bias, at)

    def moved(old: Value, new: Any, index: int) -> Value | None:
        if index >= len(k.result) or not k.wanted(index):
            return None
        return k.compute(lambda at: old.at((at,)).to(WIDE) * (1 - momentum) + new(at) * momentum, index)

    saved = [
        k.compute(lambda at, _m=made: _m.at((at,)), i) if k.wanted(i) else None for i, made in ((1, means), (2, scale))
    ]
    return (
        k.compute(element, 0),
        *saved,
        moved(mean, lambda at: means.at((at,)), 3),
        moved(variance, lambda at: squares.at((at,)) / (count - 1), 4),
    )


@converts("aten._native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    k: Kernel, x: Value, weight: Any, bias: Any, training: bool, momentum: Any, eps: Any
) -> tuple[Value | None, ...]:
    """By the statistics of the batch, of which none are kept."""
    return batch_norm_training(k, x, weight, bias, x, x, training, momentum, eps)[:3]


@converts("aten._softmax_backward_data.default")
def softmax_backward(k: Kernel, grad: Value, result: Value, dim: int, dtype: Any) -> Value:
    def term(at: Any) -> Num:
        return grad.at(at).to(WIDE) * result.at(at).to(WIDE)

    axes = axes_of(dim, result.rank)
    sums = _sums(k, result, axes, term)

    def element(*places: Any) -> Num:
        kept = [place for axis, place in enumerate(places) if axis not in axes]
        return (grad.at(places).to(WIDE) - sums.at(kept)) * result.at(places).to(WIDE)

    return k.compute(element)


@converts("aten._log_softmax_backward_data.default")
def log_softmax_backward(k: Kernel, grad: Value, result: Value, dim: int, dtype: Any) -> Value:
    axes = axes_of(dim, result.rank)
    sums = _sums(k, result, axes, lambda at: grad.at(at).to(WIDE))

    def element(*places: Any) -> Num:
        kept = [place for axis, place in enumerate(places) if axis not in axes]
        return grad.at(places).to(WIDE) - library("exp", result.at(places).to(WIDE)) * sums.at(kept)

    return k.compute(element)


def _sums(k: Kernel, like: Value, axes: Sequence[int], term: Any) -> Any:
    kept = [axis for axis in range(like.rank) if axis not in axes]

    def inner(places: Any, reduced: Any) -> Num:
        at = dict(zip(kept, places)) | dict(zip(axes, reduced))
        return term([at[axis] for axis in range(like.rank)])

    sizes = k.sizes([like.shape[axis] for axis in kept])
    return k.sum(sizes, k.sizes([like.shape[axis] for axis in axes]), inner, WIDE)
