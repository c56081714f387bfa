"""Activations, and the derivatives of those that graphs of training keep whole."""

from __future__ import annotations

import math
from typing import Any

from ..arithmetic import Num, absolute, choose, larger, library, number, smaller
from ..kernel import Kernel, Value
from ..registry import converts
from .elementary import logistic


def kept_if_nan(x: Num, result: Num) -> Num:
    """NaN where x is NaN, which comparisons would drop."""
    return choose(x.is_nan(), x, result)


@converts("aten.relu.default")
def relu(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: larger(one, number(0, one.dtype)), x)


@converts("aten.relu6.default")
def relu6(k: Kernel, x: Value) -> Value:
    return hardtanh(k, x, 0.0, 6.0)


@converts("aten.hardtanh.default")
def hardtanh(k: Kernel, x: Value, low: Any = -1.0, high: Any = 1.0) -> Value:
    return k.pointwise(
        lambda one: kept_if_nan(one, smaller(larger(one, number(low, one.dtype)), number(high, one.dtype))), x
    )


@converts("aten.leaky_relu.default")
def leaky_relu(k: Kernel, x: Value, slope: Any = 0.01) -> Value:
    return k.pointwise(lambda one: choose(one > 0, one, one * number(slope, one.dtype)), x)


@converts("aten._prelu_kernel.default", "aten.prelu.default")
def prelu(k: Kernel, x: Value, weight: Value) -> Value:
    return k.pointwise(lambda one, slope: choose(one > 0, one, one * slope), x, weight)


@converts("aten.elu.default")
def elu(k: Kernel, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    def element(one: Num) -> Num:
        low = library("expm1", one * number(input_scale, one.dtype)) * number(alpha * scale, one.dtype)
        return choose(one < 0, low, one * number(scale, one.dtype))

    return k.pointwise(element, x)


@converts("aten.gelu.default")
def gelu(k: Kernel, x: Value, approximate: str = "none") -> Value:
    def element(one: Num) -> Num:
        if approximate == "tanh":
            inner = (one + one * one * one * 0.044715) * math.sqrt(2 / math.pi)
            return one * 0.5 * (1 + library("tanh", inner))
        return one * 0.5 * (1 + library("erf", one * math.sqrt(0.5)))

    return k.pointwise(element, x)


@converts("aten.silu.default")
def silu(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: one / (1 + library("exp", -one)), x)


@converts("aten.mish.default")
def mish(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: one * library("tanh", library("log1p", library("exp", one))), x)


@converts("aten.hardsigmoid.default")
def hardsigmoid(k: Kernel, x: Value) -> Value:
    return k.pointwise(_hard, x)


def _hard(one: Num) -> Num:
    bounded = smaller(larger(one + 3, number(0, one.dtype)), number(6, one.dtype))
    return kept_if_nan(one, bounded / 6)


@converts("aten.hardswish.default")
def hardswish(k: Kernel, x: Value) -> Value:
    def element(one: Num) -> Num:
        return one * smaller(larger(one + 3, number(0, one.dtype)), number(6, one.dtype)) / 6

    return k.pointwise(element, x)


@converts("aten.softplus.default")
def softplus(k: Kernel, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    def element(one: Num) -> Num:
        scaled = one * number(beta, one.dtype)
        soft = library("log1p", library("exp", scaled)) / number(beta, one.dtype)
        return choose(scaled > number(threshold, one.dtype), one, soft)

    return k.pointwise(element, x)


@converts("aten.log_sigmoid_forward.default")
def log_sigmoid(k: Kernel, x: Value) -> tuple[Value, Value | None]:
    def element(*places: Any) -> Num:
        one = x.at(places)
        least = smaller(one, number(0, one.dtype))
        return kept_if_nan(one, least - library("log1p", library("exp", -absolute(one))))

    buffer = k.compute(lambda *_: number(0, x.dtype), 1) if k.wanted(1) else None
    return k.compute(element, 0), buffer


@converts("aten.threshold.default")
def threshold(k: Kernel, x: Value, least: Any, value: Any) -> Value:
    return k.pointwise(lambda one: choose(one <= number(least, one.dtype), number(value, one.dtype), one), x)


@converts("aten.hardshrink.default")
def hardshrink(k: Kernel, x: Value, lambd: Any = 0.5) -> Value:
    def element(one: Num) -> Num:
        inside = (one >= number(-lambd, one.dtype)) & (one <= number(lambd, one.dtype))
        return choose(inside, number(0, one.dtype), one)

    return k.pointwise(element, x)


# -- derivatives -------------------------------------------------------------------------------------------------------


@converts("aten.threshold_backward.default")
def threshold_backward(k: Kernel, grad: Value, x: Value, least: Any) -> Value:
    return k.pointwise(lambda g, one: choose(one <= number(least, one.dtype), number(0, g.dtype), g), grad, x)


@converts("aten.tanh_backward.default")
def tanh_backward(k: Kernel, grad: Value, result: Value) -> Value:
    return k.pointwise(lambda g, y: g * (1 - y * y), grad, result)


@converts("aten.sigmoid_backward.default")
def sigmoid_backward(k: Kernel, grad: Value, result: Value) -> Value:
    return k.pointwise(lambda g, y: g * (1 - y) * y, grad, result)


@converts("aten.silu_backward.default")
def silu_backward(k: Kernel, grad: Value, x: Value) -> Value:
    def element(g: Num, one: Num) -> Num:
        share = logistic(one)
        return g * share * (1 + one * (1 - share))

    return k.pointwise(element, grad, x)


@converts("aten.gelu_backward.default")
def gelu_backward(k: Kernel, grad: Value, x: Value, approximate: str = "none") -> Value:
    def element(g: Num, one: Num) -> Num:
        if approximate == "tanh":
            factor = math.sqrt(2 / math.pi)
            tangent = library("tanh", (one + one * one * one * 0.044715) * factor)
            slope = (1 - tangent * tangent) * (1 + one * one * (3 * 0.044715)) * factor
            return g * (0.5 * (1 + tangent) + 0.5 * one * slope)
        share = 0.5 * (1 + library("erf", one * math.sqrt(0.5)))
        density = library("exp", one * one * -0.5) * (1 / math.sqrt(2 * math.pi))
        return g * (share + one * density)

    return k.pointwise(element, grad, x)


@converts("aten.leaky_relu_backward.default")
def leaky_relu_backward(k: Kernel, grad: Value, x: Value, slope: Any, from_result: bool) -> Value:
    return k.pointwise(lambda g, one: choose(one > 0, g, g * number(slope, g.dtype)), grad, x)


@converts("aten.hardtanh_backward.default")
def hardtanh_backward(k: Kernel, grad: Value, x: Value, low: Any, high: Any) -> Value:
    def element(g: Num, one: Num) -> Num:
        outside = (one <= number(low, one.dtype)) | (one >= number(high, one.dtype))
        return choose(outside, number(0, g.dtype), g)

    return k.pointwise(element, grad, x)
