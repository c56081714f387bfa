"""Elementary functions that ONNX lacks, put together without losing digits: float32 is calculated in float64."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts
from .operands import operand

_WIDE = torch.float64


def _widened(b: ModelBuilder, x: Any, *operators: str) -> Value:
    """A float32 operand in float64. Raises where the parts would be rounded in the result's own type."""
    dtype = b.result.dtype
    if dtype is not torch.float32 or not all(b.target.computes(name, _WIDE) for name in operators):
        name = str(dtype).removeprefix("torch.")
        raise ConversionError(f"it is put together of parts, whose roundings {name} of {b.target.name} would show")
    return operand(b, operand(b, x, dtype), _WIDE)


def _logarithm(factor: float) -> Any:
    def convert(b: ModelBuilder, x: Value) -> Value:
        wide = b.node("Log", _widened(b, x, "Log", "Mul"))
        return b.cast(b.node("Mul", wide, b.scalar(factor, _WIDE)), b.result.dtype)

    return convert


converts("aten.log2.default")(_logarithm(1 / math.log(2)))
converts("aten.log10.default")(_logarithm(1 / math.log(10)))


def expm1_of(b: ModelBuilder, x: Value) -> Value:
    """exp(x) - 1 in the type of `x`, corrected by what exp rounded away (Kahan)."""
    dtype = x.dtype
    one = b.scalar(1, dtype)
    power = b.node("Exp", x)
    less = b.node("Sub", power, one)
    exact = b.node("Mul", less, b.node("Div", x, b.node("Log", power)))
    infinite = b.node("Equal", power, b.scalar(math.inf, dtype))
    empty = b.node("Equal", power, b.scalar(0, dtype))
    result = b.node("Where", b.node("Or", infinite, empty), less, exact)
    return b.select(b.node("Equal", power, one), x, result)


def _expm1(b: ModelBuilder, x: Value) -> Value:
    """Of a float: float32 in float64 where the target has that, else in its own type."""
    wider = x.dtype is torch.float32 and all(b.target.computes(name, _WIDE) for name in ("Exp", "Log", "Where"))
    return b.cast(expm1_of(b, b.cast(x, _WIDE) if wider else x), x.dtype)


@converts("aten.expm1.default")
def expm1(b: ModelBuilder, x: Value) -> Value:
    return _expm1(b, b.cast(x, b.result.dtype))


@converts("aten.elu.default")
def elu(b: ModelBuilder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    dtype = x.dtype
    inner = x if input_scale == 1 else b.node("Mul", x, b.scalar(input_scale, dtype))
    low = b.node("Mul", _expm1(b, inner), b.scalar(alpha * scale, dtype))
    high = x if scale == 1 else b.node("Mul", x, b.scalar(scale, dtype))
    return b.select(b.node("Less", x, b.scalar(0, dtype)), low, high)


@converts("aten.mish.default")
def mish(b: ModelBuilder, x: Value) -> Value:
    """x tanh(log(1 + e)), e = exp(x): the tangent is n / (n + 2) with n = e (e + 2), and 1 from 40 on."""
    wide = _widened(b, x, "Exp", "Where")
    two = b.scalar(2, _WIDE)
    power = b.node("Exp", wide)
    above = b.node("Mul", power, b.node("Add", power, two))
    tangent = b.node("Div", above, b.node("Add", above, two))
    far = b.node("Greater", wide, b.scalar(40, _WIDE))
    return b.cast(b.node("Mul", wide, b.node("Where", far, b.scalar(1, _WIDE), tangent)), b.result.dtype)


@converts("aten.softplus.default")
def softplus(b: ModelBuilder, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    """log(1 + exp(beta x)) / beta, with what the sum rounds away (Kahan); x itself above the threshold."""
    dtype = x.dtype
    scaled = x if beta == 1 else b.node("Mul", x, b.scalar(beta, dtype))
    wide, one = _widened(b, scaled, "Exp", "Log", "Where"), b.scalar(1, _WIDE)
    power = b.node("Exp", wide)
    total = b.node("Add", power, one)
    corrected = b.node("Mul", b.node("Log", total), b.node("Div", power, b.node("Sub", total, one)))
    found = b.node("Where", b.node("Equal", total, one), power, corrected)
    found = b.node("Where", b.node("Equal", power, b.scalar(math.inf, _WIDE)), wide, found)
    low = b.cast(b.node("Div", found, b.scalar(beta, _WIDE)), dtype)
    return b.node("Where", b.node("Greater", scaled, b.scalar(threshold, dtype)), x, low)


@converts("aten.hypot.default")
def hypot(b: ModelBuilder, x: Value, other: Value) -> Value:
    """The squares of float32 fit in float64. An infinite side wins over NaN."""
    one, two = _widened(b, x, "Sqrt", "Where"), _widened(b, other, "Sqrt", "Where")
    length = b.node("Sqrt", b.node("Add", b.node("Mul", one, one), b.node("Mul", two, two)))
    top = b.scalar(math.inf, _WIDE)
    infinite = b.node("Or", *[b.node("Equal", b.node("Abs", side), top) for side in (one, two)])
    return b.cast(b.node("Where", infinite, top, length), b.result.dtype)


def _is_negative(b: ModelBuilder, x: Value) -> Value:
    """Whether the sign is minus, that of a zero too."""
    zero = b.scalar(0, x.dtype)
    return b.node("Or", b.node("Less", x, zero), b.node("Less", b.node("Reciprocal", x), zero))


@converts("aten.atan2.default")
def atan2(b: ModelBuilder, y: Value, x: Value) -> Value:
    """The angle of the smaller side over the larger one, unfolded into the octant."""
    up, right = _widened(b, y, "Reciprocal", "Where"), _widened(b, x, "Reciprocal", "Where")
    height, width = b.node("Abs", up), b.node("Abs", right)
    steep = b.node("Greater", height, width)
    low, high = b.node("Where", steep, width, height), b.node("Where", steep, height, width)
    ratio = b.node("Where", b.node("Equal", low, high), b.scalar(1, _WIDE), b.node("Div", low, high))
    ratio = b.node("Where", b.node("Equal", low, b.scalar(0, _WIDE)), b.scalar(0, _WIDE), ratio)
    angle = b.cast(b.node("Atan", b.cast(ratio, torch.float32)), _WIDE)
    angle = b.node("Where", steep, b.node("Sub", b.scalar(math.pi / 2, _WIDE), angle), angle)
    angle = b.node("Where", _is_negative(b, right), b.node("Sub", b.scalar(math.pi, _WIDE), angle), angle)
    unknown = b.node("Or", b.node("IsNaN", up), b.node("IsNaN", right))
    angle = b.node("Where", unknown, b.scalar(math.nan, _WIDE), angle)
    return b.cast(b.select(_is_negative(b, up), b.node("Neg", angle), angle), b.result.dtype)


# log(erfcx(z) / t) as a polynomial of 2 t - 1, t = 2 / (2 + z), for z >= 0: within 2e-12.
_ERFC = (
    -0.6717940840570036,
    0.6726432239971888,
    0.04734330690393699,
    -0.04689561143912559,
    -0.00987269140555243,
    0.008824960632792669,
    0.001758959506827124,
    -0.002345997758301188,
    -0.00014641397907963382,
    0.0006745334128649791,
    -9.31206684733942e-05,
    -0.0001766713638853563,
    7.004281202193704e-05,
    3.5859340521109875e-05,
    -2.83808897908612e-05,
    -4.391982143202802e-06,
    7.222596953070413e-06,
    1.5690162176464508e-07,
    -9.025624740318861e-07,
)


@converts("aten.erfc.default")
def erfc(b: ModelBuilder, x: Value) -> Value:
    """t exp(P(t) - z^2) for z = |x|, and 2 minus that below zero: every digit of small results is right."""
    wide = _widened(b, x, "Exp", "Where")
    two, one = b.scalar(2, _WIDE), b.scalar(1, _WIDE)
    side = b.node("Abs", wide)
    share = b.node("Div", two, b.node("Add", side, two))
    place = b.node("Sub", b.node("Mul", share, two), one)
    total = b.scalar(_ERFC[-1], _WIDE)
    for factor in reversed(_ERFC[:-1]):
        total = b.node("Add", b.node("Mul", total, place), b.scalar(factor, _WIDE))
    power = b.node("Exp", b.node("Sub", total, b.node("Mul", side, side)))
    found = b.node("Mul", share, power)
    below = b.node("Less", wide, b.scalar(0, _WIDE))
    return b.cast(b.node("Where", below, b.node("Sub", two, found), found), b.result.dtype)


def _known_of(b: ModelBuilder, x: Value, other: Value, comparison: str) -> Value:
    """The greater or lesser of two, where NaN gives way to a number; of two zeros the first."""
    dtype = b.result.dtype
    one, two = b.cast(x, dtype), b.cast(other, dtype)
    if dtype is torch.bool:
        return b.node("Or" if comparison == "Greater" else "And", one, two)
    chosen = b.select(b.node(comparison, two, one), two, one)
    return b.select(b.node("IsNaN", one), two, chosen) if dtype.is_floating_point else chosen


@converts("aten.fmax.default")
def fmax(b: ModelBuilder, x: Value, other: Value) -> Value:
    return _known_of(b, x, other, "Greater")


@converts("aten.fmin.default")
def fmin(b: ModelBuilder, x: Value, other: Value) -> Value:
    return _known_of(b, x, other, "Less")
