"""Activation functions and their derivatives: formulas over the operations of the IR.

The order of operations is eager's, so that float32 results differ from it only by the error of one transcendental.
"""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from ..ir.body import BodyBuilder
from ..ir.dtypes import FLOATING
from ..ir.nodes import View
from .pointwise import elementwise
from .promotion import dtype_name
from .registry import lowers


class Formula:
    """Arithmetic on the values of one body with literals allowed on either side."""

    def __init__(self, body: BodyBuilder, dtype: str) -> None:
        self.body = body
        self.dtype = dtype

    def value(self, v: Any) -> int:
        return self.body.const(v, self.dtype) if isinstance(v, float) else v

    def op(self, name: str, *args: Any) -> int:
        return self.body.op(name, *(self.value(a) for a in args))

    def add(self, a: Any, b: Any) -> int:
        return self.op("add", a, b)

    def sub(self, a: Any, b: Any) -> int:
        return self.op("sub", a, b)

    def mul(self, a: Any, b: Any) -> int:
        return self.op("mul", a, b)

    def div(self, a: Any, b: Any) -> int:
        return self.op("div", a, b)

    def compare(self, name: str, a: Any, b: Any) -> int:
        return self.body.compare(name, self.value(a), self.value(b))

    def where(self, c: int, a: Any, b: Any) -> int:
        return self.body.where(c, self.value(a), self.value(b))

    def within(self, a: int, low: float, high: float) -> int:
        """a, or the bound that it is beyond; -0.0 is not below 0.0, and NaN stays."""
        a = self.where(self.compare("lt", a, low), low, a)
        return self.where(self.compare("gt", a, high), high, a)


def activation(lowering: Any, node: fx.Node, formula: Any, *operands: Any) -> Any:
    """An elementwise node of a floating type."""
    if dtype_name(node.meta["val"].dtype) not in FLOATING:
        return NotImplemented

    def build(body: BodyBuilder, *values: int) -> int:
        return formula(Formula(body, body.dtype(values[0])), *values)

    return elementwise(lowering, node, build, operands)


@lowers("relu")
def relu(lowering: Any, node: fx.Node, x: View) -> Any:
    """0 where x < 0, else x; NaN stays NaN."""
    return elementwise(lowering, node, lambda body, a: body.op("relu", a), (x,))


@lowers("threshold_backward")
def threshold_backward(lowering: Any, node: fx.Node, grad: View, x: View, threshold: Any) -> Any:
    """grad where x > threshold (or x is NaN), else 0."""
    return activation(lowering, node, lambda f, g, a: f.where(f.compare("le", a, float(threshold)), 0.0, g), grad, x)


SQRT1_2 = math.sqrt(0.5)
TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
GELU_BETA = math.sqrt(2.0) * TWO_OVER_SQRT_PI * 0.5
GELU_KAPPA = 0.044715
GELU_WAYS = ("none", "tanh")


@lowers("gelu")
def gelu(lowering: Any, node: fx.Node, x: View, approximate: str = "none") -> Any:
    """x * Phi(x), exact or by tanh. A way that there is not is left to torch, which says so when it runs."""
    if approximate not in GELU_WAYS:
        return NotImplemented
    return activation(lowering, node, _gelu_tanh if approximate == "tanh" else _gelu, x)


def _gelu(f: Formula, x: int) -> int:
    return f.mul(f.mul(x, 0.5), f.add(f.op("erf_beside_one", f.mul(x, SQRT1_2)), 1.0))


def _gelu_inner(f: Formula, x: int) -> int:
    cube = f.mul(f.mul(x, x), x)
    return f.mul(f.add(x, f.mul(cube, GELU_KAPPA)), GELU_BETA)


def _gelu_tanh(f: Formula, x: int) -> int:
    return f.mul(f.mul(x, 0.5), f.add(f.op("tanh", _gelu_inner(f, x)), 1.0))


@lowers("gelu_backward")
def gelu_backward(lowering: Any, node: fx.Node, grad: View, x: View, approximate: str = "none") -> Any:
    """grad * d gelu(x) / dx."""
    if approximate not in GELU_WAYS:
        return NotImplemented
    return activation(lowering, node, _gelu_tanh_grad if approximate == "tanh" else _gelu_grad, grad, x)


def _gelu_grad(f: Formula, grad: int, x: int) -> int:
    density = TWO_OVER_SQRT_PI * SQRT1_2 * 0.5
    cdf = f.mul(f.add(f.op("erf_beside_one", f.mul(x, SQRT1_2)), 1.0), 0.5)
    pdf = f.mul(f.op("exp", f.mul(f.mul(x, x), -0.5)), density)
    return f.mul(grad, f.add(cdf, f.mul(x, pdf)))


def _gelu_tanh_grad(f: Formula, grad: int, x: int) -> int:
    tanh = f.op("tanh", _gelu_inner(f, x))
    left = f.mul(x, 0.5)
    right = f.add(tanh, 1.0)
    slope = f.mul(f.add(f.mul(f.mul(x, x), 3.0 * GELU_KAPPA), 1.0), GELU_BETA)
    tanh_slope = f.sub(1.0, f.mul(tanh, tanh))
    return f.mul(grad, f.add(f.mul(right, 0.5), f.mul(f.mul(left, tanh_slope), slope)))


@lowers("silu")
def silu(lowering: Any, node: fx.Node, x: View) -> Any:
    """x / (1 + exp(-x))."""
    return activation(lowering, node, lambda f, a: f.div(a, f.op("exp_and_one", f.op("neg", a))), x)


@lowers("silu_backward")
def silu_backward(lowering: Any, node: fx.Node, grad: View, x: View) -> Any:
    """grad * s * (1 + x * (1 - s))."""

    def formula(f: Formula, g: int, a: int) -> int:
        s = f.op("sigmoid", a)
        return f.mul(f.mul(g, s), f.add(f.mul(a, f.sub(1.0, s)), 1.0))

    return activation(lowering, node, formula, grad, x)


@lowers("tanh_backward")
def tanh_backward(lowering: Any, node: fx.Node, grad: View, y: View) -> Any:
    """grad * (1 - y * y)."""
    return activation(lowering, node, lambda f, g, a: f.mul(g, f.sub(1.0, f.mul(a, a))), grad, y)


@lowers("sigmoid_backward")
def sigmoid_backward(lowering: Any, node: fx.Node, grad: View, y: View) -> Any:
    """grad * (1 - y) * y."""
    return activation(lowering, node, lambda f, g, a: f.mul(f.mul(g, f.sub(1.0, a)), a), grad, y)


@lowers("hardtanh")
def hardtanh(lowering: Any, node: fx.Node, x: View, min_val: Any = -1.0, max_val: Any = 1.0) -> Any:
    """clamp(x, min_val, max_val)."""
    return activation(lowering, node, lambda f, a: f.within(a, float(min_val), float(max_val)), x)


@lowers("hardtanh_backward")
def hardtanh_backward(lowering: Any, node: fx.Node, grad: View, x: View, min_val: Any, max_val: Any) -> Any:
    """grad strictly inside the bounds."""

    def formula(f: Formula, g: int, a: int) -> int:
        low, high = f.compare("le", a, float(min_val)), f.compare("ge", a, float(max_val))
        return f.where(f.body.op("bitwise_or", low, high), 0.0, g)

    return activation(lowering, node, formula, grad, x)


def _relu6(f: Formula, a: int) -> int:
    return f.within(a, 0.0, 6.0)


@lowers("relu6")
def relu6(lowering: Any, node: fx.Node, x: View) -> Any:
    """clamp(x, 0, 6)."""
    return activation(lowering, node, _relu6, x)


@lowers("hardswish")
def hardswish(lowering: Any, node: fx.Node, x: View) -> Any:
    """x * relu6(x + 3) / 6."""
    return activation(lowering, node, lambda f, a: f.div(f.mul(a, _relu6(f, f.add(a, 3.0))), 6.0), x)


@lowers("hardsigmoid")
def hardsigmoid(lowering: Any, node: fx.Node, x: View) -> Any:
    """relu6(x + 3) / 6."""
    return activation(lowering, node, lambda f, a: f.div(_relu6(f, f.add(a, 3.0)), 6.0), x)


@lowers("hardswish_backward")
def hardswish_backward(lowering: Any, node: fx.Node, grad: View, x: View) -> Any:
    """0 below -3, grad above 3, grad * (x / 3 + 0.5) between."""

    def formula(f: Formula, g: int, a: int) -> int:
        inner = f.mul(g, f.add(f.div(a, 3.0), 0.5))
        above = f.where(f.compare("lt", a, 3.0), inner, g)
        return f.where(f.compare("le", a, -3.0), 0.0, above)

    return activation(lowering, node, formula, grad, x)


@lowers("leaky_relu")
def leaky_relu(lowering: Any, node: fx.Node, x: View, negative_slope: Any = 0.01) -> Any:
    """x above 0, slope * x below."""
    return activation(
        lowering, node, lambda f, a: f.where(f.compare("gt", a, 0.0), a, f.mul(a, float(negative_slope))), x
    )


@lowers("leaky_relu_backward")
def leaky_relu_backward(
    lowering: Any, node: fx.Node, grad: View, x: View, negative_slope: Any, self_is_result: bool
) -> Any:
    """grad above 0, slope * grad below."""
    return activation(
        lowering,
        node,
        lambda f, g, a: f.where(f.compare("gt", a, 0.0), g, f.mul(g, float(negative_slope))),
        grad,
        x,
    )


@lowers("elu")
def elu(lowering: Any, node: fx.Node, x: View, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    """scale * x above 0, scale * alpha * expm1(input_scale * x) below."""

    def formula(f: Formula, a: int) -> int:
        below = f.mul(f.op("expm1", f.mul(a, float(input_scale))), float(alpha) * float(scale))
        return f.where(f.compare("lt", a, 0.0), below, f.mul(a, float(scale)))

    return activation(lowering, node, formula, x)


@lowers("softplus")
def softplus(lowering: Any, node: fx.Node, x: View, beta: Any = 1, threshold: Any = 20) -> Any:
    """log1p(exp(beta * x)) / beta, x itself where beta * x > threshold."""

    def formula(f: Formula, a: int) -> int:
        scaled = f.mul(a, float(beta))
        soft = f.div(f.op("log1p", f.op("exp", scaled)), float(beta))
        return f.where(f.compare("gt", scaled, float(threshold)), a, soft)

    return activation(lowering, node, formula, x)


@lowers("softplus_backward")
def softplus_backward(lowering: Any, node: fx.Node, grad: View, x: View, beta: Any, threshold: Any) -> Any:
    """grad * z / (1 + z) with z = exp(beta * x), grad past the threshold."""

    def formula(f: Formula, g: int, a: int) -> int:
        scaled = f.mul(a, float(beta))
        z = f.op("exp", scaled)
        return f.where(f.compare("gt", scaled, float(threshold)), g, f.div(f.mul(g, z), f.add(z, 1.0)))

    return activation(lowering, node, formula, grad, x)


@lowers("mish")
def mish(lowering: Any, node: fx.Node, x: View) -> Any:
    """x * tanh(log1p(exp(x)))."""
    return activation(lowering, node, lambda f, a: f.mul(a, f.op("tanh", f.op("log1p", f.op("exp", a)))), x)


@lowers("log_sigmoid_forward")
def log_sigmoid_forward(lowering: Any, node: fx.Node, x: View) -> Any:
    """(min(x, 0) - log1p(exp(-|x|)), the exponential): the buffer is computed only where it is read."""
    out, buffer = node.meta["val"]
    if buffer.numel() != out.numel():
        return NotImplemented

    def exponential(body: BodyBuilder, variables: Any) -> int:
        f = Formula(body, body.dtype(value := body.load_view(x, variables)))
        return f.op("exp", f.op("neg", f.op("abs", value)))

    def build(body: BodyBuilder, variables: Any) -> int:
        value = body.load_view(x, variables)
        f = Formula(body, body.dtype(value))
        return f.sub(f.op("minimum", value, 0.0), f.op("log1p", exponential(body, variables)))

    return (lowering.pointwise(out, build, origin=node), lowering.pointwise(buffer, exponential, origin=node))
