"""Element by element: arithmetic, elementary functions, activations, selection."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import CONVERTERS, converts
from ..types import range_of
from .operands import operand

_UNARY = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "log": "Log",
    "neg": "Neg",
    "reciprocal": "Reciprocal",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "tan": "Tan",
    "tanh": "Tanh",
}
_ROUNDING = {"ceil": "Ceil", "floor": "Floor", "round": "Round"}


def _unary(name: str) -> Any:
    def convert(b: ModelBuilder, x: Value) -> Value:
        return b.node(name, b.cast(x, b.result.dtype))

    return convert


def _rounded(name: str) -> Any:
    def convert(b: ModelBuilder, x: Value) -> Value:
        return b.node(name, x) if x.dtype.is_floating_point else b.node("Identity", x)

    return convert


for _aten, _onnx in _UNARY.items():
    CONVERTERS[f"aten.{_aten}.default"] = _unary(_onnx)
for _aten, _onnx in _ROUNDING.items():
    CONVERTERS[f"aten.{_aten}.default"] = _rounded(_onnx)


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _scaled(b: ModelBuilder, other: Any, alpha: Any, dtype: torch.dtype) -> Value:
    if not isinstance(other, Value):
        return b.scalar(other * alpha if alpha != 1 else other, dtype)
    value = b.cast(other, dtype)
    return value if alpha == 1 else b.node("Mul", value, operand(b, alpha, dtype))


@converts("aten.add.Tensor", "aten.add.Scalar")
def add(b: ModelBuilder, x: Value, other: Any, alpha: Any = 1) -> Value:
    dtype = b.result.dtype
    if dtype is torch.bool:
        if isinstance(alpha, Value):
            raise ConversionError("a sum of bools with a symbolic factor")
        return b.node("Or", operand(b, x, dtype), operand(b, other, dtype)) if alpha else b.node("Identity", x)
    return b.node("Add", operand(b, x, dtype), _scaled(b, other, alpha, dtype))


@converts("aten.sub.Tensor", "aten.sub.Scalar")
def sub(b: ModelBuilder, x: Value, other: Any, alpha: Any = 1) -> Value:
    dtype = b.result.dtype
    return b.node("Sub", operand(b, x, dtype), _scaled(b, other, alpha, dtype))


@converts("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(b: ModelBuilder, x: Value, other: Any, alpha: Any = 1) -> Value:
    dtype = b.result.dtype
    return b.node("Sub", operand(b, other, dtype), _scaled(b, x, alpha, dtype))


@converts("aten.mul.Tensor", "aten.mul.Scalar")
def mul(b: ModelBuilder, x: Value, other: Any) -> Value:
    dtype = b.result.dtype
    name = "And" if dtype is torch.bool else "Mul"
    return b.node(name, operand(b, x, dtype), operand(b, other, dtype))


@converts("aten.div.Tensor", "aten.div.Scalar")
def div(b: ModelBuilder, x: Value, other: Any) -> Value:
    dtype = b.result.dtype
    return b.node("Div", operand(b, x, dtype), operand(b, other, dtype))


@converts("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(b: ModelBuilder, x: Value, other: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(b, x, other)
    dtype = b.result.dtype
    one, two = operand(b, x, dtype), operand(b, other, dtype)
    if not dtype.is_floating_point:
        return _integer_quotient(b, one, two, other, floor=rounding_mode == "floor")
    if rounding_mode == "trunc":
        return trunc(b, b.node("Div", one, two))
    return floor_divide(b, one, two)


@converts("aten.floor_divide.default")
def floor_divide(b: ModelBuilder, x: Value, other: Any) -> Value:
    """Python's: the quotient of what is left when the remainder is taken away, and x / 0 where other is 0."""
    dtype = b.result.dtype
    one, two = operand(b, x, dtype), operand(b, other, dtype)
    if not dtype.is_floating_point:
        return _integer_quotient(b, one, two, other, floor=True)
    zero, unit = b.scalar(0, dtype), b.scalar(1, dtype)
    left = b.node("Mod", one, two, fmod=1)
    quotient = b.node("Div", b.node("Sub", one, left), two)
    signs_differ = b.node("Xor", b.node("Less", left, zero), b.node("Less", two, zero))
    lower = b.node("And", b.node("Not", b.node("Equal", left, zero)), signs_differ)
    quotient = b.node("Where", lower, b.node("Sub", quotient, unit), quotient)
    floored = b.node("Floor", quotient)
    short = b.node("Greater", b.node("Sub", quotient, floored), b.scalar(0.5, dtype))
    result = b.node("Where", short, b.node("Add", floored, unit), floored)
    plain = b.node("Div", one, two)
    signed_zero = b.node("Mul", plain, zero)
    result = b.node("Where", b.node("Equal", quotient, zero), signed_zero, result)
    return b.node("Where", b.node("Equal", two, zero), plain, result)


def _divisor(b: ModelBuilder, two: Value, other: Any) -> tuple[Value, Value | None]:
    """The divisor of an integer division, 1 in place of what a processor stops at: zero, for which eager raises, and
    -1, which the least integer has no quotient by. Second: where it is -1, None for nowhere."""
    dtype = two.dtype
    if not isinstance(other, Value):
        if int(other) % 2 ** (8 * dtype.itemsize) == 0:  # a number that does not fit wraps
            raise ConversionError("an integer division by zero raises in eager")
        back = int(other) == -1 and dtype is not torch.uint8  # whose -1 is 255
        return (b.scalar(1, dtype), b.scalar(True, torch.bool)) if back else (two, None)
    nothing = b.node("Equal", two, b.scalar(0, dtype))
    b.raise_where(nothing, "ZeroDivisionError", "an integer is divided by zero")
    minus = b.node("Equal", two, b.scalar(-1, dtype)) if dtype is not torch.uint8 else None
    unusual = nothing if minus is None else b.node("Or", nothing, minus)
    return b.node("Where", unusual, b.scalar(1, dtype), two), minus


def _integer_quotient(b: ModelBuilder, one: Value, two: Value, other: Any, *, floor: bool) -> Value:
    divisor, minus = _divisor(b, two, other)
    quotient = b.node("Div", one, divisor)
    if floor:
        zero = b.scalar(0, one.dtype)
        left = b.node("Sub", one, b.node("Mul", quotient, divisor))
        apart = b.node("Xor", b.node("Less", left, zero), b.node("Less", divisor, zero))
        lower = b.node("And", b.node("Not", b.node("Equal", left, zero)), apart)
        quotient = b.node("Where", lower, b.node("Sub", quotient, b.scalar(1, one.dtype)), quotient)
    return quotient if minus is None else b.node("Where", minus, b.node("Neg", one), quotient)


@converts("aten.remainder.Tensor", "aten.remainder.Scalar")
def remainder(b: ModelBuilder, x: Value, other: Any) -> Value:
    dtype = b.result.dtype
    one, two = operand(b, x, dtype), operand(b, other, dtype)
    if not dtype.is_floating_point:
        return b.node("Mod", one, _divisor(b, two, other)[0])
    zero = b.scalar(0, dtype)
    left = b.node("Mod", one, two, fmod=1)
    signs_differ = b.node("Xor", b.node("Less", left, zero), b.node("Less", two, zero))
    wrong = b.node("And", b.node("Not", b.node("Equal", left, zero)), signs_differ)
    return b.node("Where", wrong, b.node("Add", left, two), left)


@converts("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(b: ModelBuilder, x: Value, other: Any) -> Value:
    dtype = b.result.dtype
    two = operand(b, other, dtype)
    if not dtype.is_floating_point:
        two = _divisor(b, two, other)[0]
    return b.node("Mod", operand(b, x, dtype), two, fmod=1)


@converts("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(b: ModelBuilder, x: Any, exponent: Any) -> Value:
    dtype = b.result.dtype
    base = operand(b, x, dtype)
    if not isinstance(exponent, Value):
        if exponent == 1:
            return b.node("Identity", base)
        if exponent == 2:
            return b.node("Mul", base, base)
        if exponent == 3:
            return b.node("Mul", b.node("Mul", base, base), base)
        if not dtype.is_floating_point and 0 <= exponent <= 64:
            return _repeated(b, base, int(exponent))
        if dtype.is_floating_point and exponent == 0.5:
            return b.node("Sqrt", base)
        if dtype.is_floating_point and exponent in (-1, -0.5):
            return b.node("Reciprocal", base if exponent == -1 else b.node("Sqrt", base))
        if not dtype.is_floating_point and exponent < 0:
            raise ConversionError("an integer to a negative power raises in eager")
        if not dtype.is_floating_point:
            raise ConversionError("runtimes raise integers to powers as doubles, which don't wrap")
    elif not dtype.is_floating_point:
        raise ConversionError("eager raises on integers to negative powers, which a tensor may hold")
    return b.node("Pow", base, operand(b, exponent, dtype))


def _repeated(b: ModelBuilder, base: Value, exponent: int) -> Value:
    """An integer power by squaring: products wrap as torch's do."""
    result = None
    while exponent:
        if exponent & 1:
            result = base if result is None else b.node("Mul", result, base)
        exponent >>= 1
        if exponent:
            base = b.node("Mul", base, base)
    if result is None:
        return b.node("Expand", b.scalar(1, base.dtype), b.node("Shape", base))
    return b.node("Identity", result)


@converts("aten.addcmul.default")
def addcmul(b: ModelBuilder, x: Value, one: Value, two: Value, value: Any = 1) -> Value:
    dtype = b.result.dtype
    product = b.node("Mul", b.cast(one, dtype), b.cast(two, dtype))
    return b.node("Add", b.cast(x, dtype), product if value == 1 else b.node("Mul", product, operand(b, value, dtype)))


@converts("aten.addcdiv.default")
def addcdiv(b: ModelBuilder, x: Value, one: Value, two: Value, value: Any = 1) -> Value:
    dtype = b.result.dtype
    quotient = b.node("Div", b.cast(one, dtype), b.cast(two, dtype))
    return b.node(
        "Add", b.cast(x, dtype), quotient if value == 1 else b.node("Mul", quotient, operand(b, value, dtype))
    )


@converts("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(b: ModelBuilder, start: Value, end: Value, weight: Any) -> Value:
    """From the nearer end, as torch does: exact at both."""
    dtype = b.result.dtype
    first, last, share = b.cast(start, dtype), b.cast(end, dtype), operand(b, weight, dtype)
    step = b.node("Sub", last, first)
    low = b.node("Add", first, b.node("Mul", share, step))
    high = b.node("Sub", last, b.node("Mul", step, b.node("Sub", b.scalar(1, dtype), share)))
    return b.node("Where", b.node("Less", b.node("Abs", share), b.scalar(0.5, dtype)), low, high)


# -- elementary functions of several nodes -----------------------------------------------------------------------------


@converts("aten.rsqrt.default")
def rsqrt(b: ModelBuilder, x: Value) -> Value:
    return b.node("Reciprocal", b.node("Sqrt", b.cast(x, b.result.dtype)))


@converts("aten.square.default")
def square(b: ModelBuilder, x: Value) -> Value:
    return b.node("Mul", x, x)


@converts("aten.sign.default", "aten.sgn.default")
def sign(b: ModelBuilder, x: Value) -> Value:
    if x.dtype is torch.bool:
        return b.node("Identity", x)
    result = b.node("Sign", x)
    return b.node("Where", b.node("IsNaN", x), b.scalar(0, x.dtype), result) if x.dtype.is_floating_point else result


@converts("aten.trunc.default", "aten.fix.default")
def trunc(b: ModelBuilder, x: Value) -> Value:
    if not x.dtype.is_floating_point:
        return b.node("Identity", x)
    negative = b.node("Less", x, b.scalar(0, x.dtype))
    return b.select(negative, b.node("Ceil", x), b.node("Floor", x))


@converts("aten.frac.default")
def frac(b: ModelBuilder, x: Value) -> Value:
    return b.node("Sub", x, trunc(b, x))


@converts("aten.exp2.default")
def exp2(b: ModelBuilder, x: Value) -> Value:
    dtype = b.result.dtype
    return b.node("Pow", b.scalar(2, dtype), b.cast(x, dtype))


@converts("aten.log1p.default")
def log1p(b: ModelBuilder, x: Value) -> Value:
    """log(1 + x) corrected by what the sum rounded away (Kahan): right to the last digits near 0."""
    dtype = b.result.dtype
    small, one = b.cast(x, dtype), b.scalar(1, dtype)
    total = b.node("Add", small, one)
    corrected = b.node("Mul", b.node("Log", total), b.node("Div", small, b.node("Sub", total, one)))
    near_zero = b.node("Where", b.node("Equal", total, one), small, corrected)
    infinite = b.node("Equal", small, b.scalar(math.inf, dtype))
    return b.node("Where", infinite, small, near_zero)


@converts("aten.logical_not.default", "aten.bitwise_not.default")
def logical_not(b: ModelBuilder, x: Value) -> Value:
    if b.result.dtype is torch.bool:
        return b.node("Not", b.cast(x, torch.bool))
    return b.node("Sub", b.scalar(-1, x.dtype), x)  # two's complement


def _logical(name: str, *, bits: bool = False) -> Any:
    def convert(b: ModelBuilder, x: Value, other: Any) -> Value:
        dtype = b.result.dtype
        if bits and dtype is not torch.bool:
            return b.node(f"Bitwise{name}", operand(b, x, dtype), operand(b, other, dtype))
        return b.node(name, operand(b, x, torch.bool), operand(b, other, torch.bool))

    return convert


for _aten, _onnx in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    CONVERTERS[f"aten.logical_{_aten}.default"] = _logical(_onnx)
    for _kind in ("Tensor", "Scalar"):
        CONVERTERS[f"aten.bitwise_{_aten}.{_kind}"] = _logical(_onnx, bits=True)


# -- choice ------------------------------------------------------------------------------------------------------------


@converts("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(b: ModelBuilder, condition: Value, x: Any, other: Any) -> Value:
    dtype = b.result.dtype
    return b.select(b.cast(condition, torch.bool), operand(b, x, dtype), operand(b, other, dtype))


@converts("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(b: ModelBuilder, x: Value, mask: Value, value: Any) -> Value:
    return b.select(b.cast(mask, torch.bool), operand(b, value, x.dtype), x)


def _keep_nan(b: ModelBuilder, x: Value, result: Value) -> Value:
    """Runtimes are free to drop NaN in comparisons; torch keeps it."""
    return b.node("Where", b.node("IsNaN", x), x, result) if x.dtype.is_floating_point else result


def _extreme(b: ModelBuilder, one: Value, two: Value, comparison: str) -> Value:
    """The greater or lesser of two, NaN where either is."""
    name = "Max" if comparison == "Greater" else "Min"
    if name not in b.target.drops_nan:
        return b.node(name, one, two)
    chosen = b.node("Where", b.node(comparison, one, two), one, two)
    return _keep_nan(b, one, chosen)  # a comparison with NaN is false: `two`, which is the NaN or is not


@converts("aten.maximum.default", "aten.max.other")
def maximum(b: ModelBuilder, x: Value, other: Value) -> Value:
    dtype = b.result.dtype
    if dtype is torch.bool:
        return b.node("Or", b.cast(x, dtype), b.cast(other, dtype))
    return _extreme(b, b.cast(x, dtype), b.cast(other, dtype), "Greater")


@converts("aten.minimum.default", "aten.min.other")
def minimum(b: ModelBuilder, x: Value, other: Value) -> Value:
    dtype = b.result.dtype
    if dtype is torch.bool:
        return b.node("And", b.cast(x, dtype), b.cast(other, dtype))
    return _extreme(b, b.cast(x, dtype), b.cast(other, dtype), "Less")


@converts("aten.clamp.default", "aten.clamp.Tensor")
def clamp(b: ModelBuilder, x: Value, low: Any = None, high: Any = None) -> Value:
    """min(max(x, low), high): the upper bound wins where they cross. NaN, in x or in a bound, stays."""
    dtype = b.result.dtype
    value = b.cast(x, dtype)
    if low is not None:
        value = _extreme(b, value, operand(b, low, dtype), "Greater")
    if high is not None:
        value = _extreme(b, value, operand(b, high, dtype), "Less")
    return value


@converts("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(b: ModelBuilder, x: Value, low: Any) -> Value:
    return clamp(b, x, low)


@converts("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(b: ModelBuilder, x: Value, high: Any) -> Value:
    return clamp(b, x, None, high)


# -- activations -------------------------------------------------------------------------------------------------------


@converts("aten.relu.default")
def relu(b: ModelBuilder, x: Value) -> Value:
    zero = b.scalar(0, x.dtype)
    if not x.dtype.is_floating_point:
        return _extreme(b, x, zero, "Greater")
    return b.node("Where", b.node("Less", x, zero), zero, x) if "Relu" in b.target.drops_nan else b.node("Relu", x)


@converts("aten.relu6.default")
def relu6(b: ModelBuilder, x: Value) -> Value:
    return clamp(b, x, 0, 6)


@converts("aten.hardtanh.default")
def hardtanh(b: ModelBuilder, x: Value, low: Any = -1, high: Any = 1) -> Value:
    return clamp(b, x, low, high)


@converts("aten.leaky_relu.default")
def leaky_relu(b: ModelBuilder, x: Value, negative_slope: float = 0.01) -> Value:
    if x.dtype is torch.float64:  # the operator's slope is a float32
        return b.node(
            "Where", b.node("Greater", x, b.scalar(0, x.dtype)), x, b.node("Mul", x, b.scalar(negative_slope, x.dtype))
        )
    return b.node("LeakyRelu", x, alpha=float(negative_slope))


@converts("aten._prelu_kernel.default", "aten.prelu.default")
def prelu(b: ModelBuilder, x: Value, weight: Value) -> Value:
    return b.node("Where", b.node("Greater", x, b.scalar(0, x.dtype)), x, b.node("Mul", weight, x))


@converts("aten.gelu.default")
def gelu(b: ModelBuilder, x: Value, approximate: str = "none") -> Value:
    dtype = x.dtype
    half, one = b.scalar(0.5, dtype), b.scalar(1, dtype)
    if approximate == "none":
        inner = b.node("Erf", b.node("Div", x, b.scalar(math.sqrt(2), dtype)))
    else:
        cube = b.node("Mul", b.node("Mul", x, x), x)
        inside = b.node("Add", x, b.node("Mul", b.scalar(0.044715, dtype), cube))
        inner = b.node("Tanh", b.node("Mul", b.scalar(math.sqrt(2 / math.pi), dtype), inside))
    return b.node("Mul", b.node("Mul", x, b.node("Add", inner, one)), half)


@converts("aten.sigmoid.default")
def sigmoid(b: ModelBuilder, x: Value) -> Value:
    """1 / (1 + exp(-x)): runtimes' own operator is wrong by parts in ten thousand where it is small."""
    one, value = b.scalar(1, b.result.dtype), b.cast(x, b.result.dtype)
    return b.node("Reciprocal", b.node("Add", b.node("Exp", b.node("Neg", value)), one))


@converts("aten.silu.default")
def silu(b: ModelBuilder, x: Value) -> Value:
    one = b.scalar(1, x.dtype)
    return b.node("Div", x, b.node("Add", b.node("Exp", b.node("Neg", x)), one))


@converts("aten.hardsigmoid.default")
def hardsigmoid(b: ModelBuilder, x: Value) -> Value:
    shifted = clamp(b, b.node("Add", x, b.scalar(3, x.dtype)), 0, 6)
    return b.node("Div", shifted, b.scalar(6, x.dtype))


@converts("aten.hardswish.default")
def hardswish(b: ModelBuilder, x: Value) -> Value:
    shifted = clamp(b, b.node("Add", x, b.scalar(3, x.dtype)), 0, 6)
    return b.node("Div", b.node("Mul", x, shifted), b.scalar(6, x.dtype))


@converts("aten.threshold_backward.default")
def threshold_backward(b: ModelBuilder, gradient: Value, x: Value, threshold: Any) -> Value:
    below = b.node("LessOrEqual", x, operand(b, threshold, x.dtype))
    return b.node("Where", below, b.scalar(0, gradient.dtype), gradient)


@converts("aten.tanh_backward.default")
def tanh_backward(b: ModelBuilder, gradient: Value, output: Value) -> Value:
    rest = b.node("Sub", b.scalar(1, output.dtype), b.node("Mul", output, output))
    return b.node("Mul", gradient, rest)


@converts("aten.sigmoid_backward.default")
def sigmoid_backward(b: ModelBuilder, gradient: Value, output: Value) -> Value:
    rest = b.node("Sub", b.scalar(1, output.dtype), output)
    return b.node("Mul", gradient, b.node("Mul", rest, output))


@converts("aten.silu_backward.default")
def silu_backward(b: ModelBuilder, gradient: Value, x: Value) -> Value:
    one, gate = b.scalar(1, x.dtype), sigmoid(b, x)
    inner = b.node("Add", one, b.node("Mul", x, b.node("Sub", one, gate)))
    return b.node("Mul", gradient, b.node("Mul", gate, inner))


@converts("aten.gelu_backward.default")
def gelu_backward(b: ModelBuilder, gradient: Value, x: Value, approximate: str = "none") -> Value:
    dtype = x.dtype
    half, one = b.scalar(0.5, dtype), b.scalar(1, dtype)
    if approximate == "none":
        share = b.node("Mul", half, b.node("Add", one, b.node("Erf", b.node("Div", x, b.scalar(math.sqrt(2), dtype)))))
        squared = b.node("Mul", b.node("Mul", x, x), b.scalar(-0.5, dtype))
        density = b.node("Mul", b.node("Exp", squared), b.scalar(1 / math.sqrt(2 * math.pi), dtype))
        return b.node("Mul", gradient, b.node("Add", share, b.node("Mul", x, density)))
    beta, kappa = b.scalar(math.sqrt(2 / math.pi), dtype), b.scalar(0.044715, dtype)
    squared = b.node("Mul", x, x)
    inside = b.node("Mul", beta, b.node("Add", x, b.node("Mul", kappa, b.node("Mul", squared, x))))
    gate = b.node("Tanh", inside)
    left = b.node("Mul", half, b.node("Add", one, gate))
    slope = b.node("Mul", beta, b.node("Add", one, b.node("Mul", b.scalar(3 * 0.044715, dtype), squared)))
    rest = b.node("Sub", one, b.node("Mul", gate, gate))
    right = b.node("Mul", b.node("Mul", half, x), b.node("Mul", rest, slope))
    return b.node("Mul", gradient, b.node("Add", left, right))


@converts("aten.nan_to_num.default")
def nan_to_num(b: ModelBuilder, x: Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    if not x.dtype.is_floating_point:
        return b.node("Identity", x)
    info = torch.finfo(x.dtype)
    least, greatest = range_of(x.dtype)
    value = b.node("Where", b.node("IsNaN", x), b.scalar(nan or 0, x.dtype), x)
    high = b.scalar(info.max if posinf is None else posinf, x.dtype)
    low = b.scalar(info.min if neginf is None else neginf, x.dtype)
    value = b.node("Where", b.node("Equal", value, b.scalar(greatest, x.dtype)), high, value)
    return b.node("Where", b.node("Equal", value, b.scalar(least, x.dtype)), low, value)


@converts("aten.isnan.default")
def isnan(b: ModelBuilder, x: Value) -> Value:
    return b.node("Not", b.node("Equal", x, x))


@converts("aten.isinf.default")
def isinf(b: ModelBuilder, x: Value) -> Value:
    if not x.dtype.is_floating_point:
        return b.node("Not", b.node("Equal", x, x))
    return b.node("Equal", b.node("Abs", x), b.scalar(math.inf, x.dtype))


@converts("aten.logit.default")
def rounds_away(b: ModelBuilder, *args: Any, **kwargs: Any) -> Value:
    raise ConversionError("ONNX has no operator for it, and its parts lose digits near 0 or overflow")
