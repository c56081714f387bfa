"""Arithmetic, comparisons, bits, selection and casts, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, absolute, choose, intrinsic, larger, library, number, rounded, smaller
from ..kernel import Kernel, Value
from ..registry import CONVERTERS, Refused, converts


def promoted(*operands: Any) -> torch.dtype:
    """The dtype in which torch computes an operation of these tensors and numbers."""
    plain = [_plain(operand) for operand in operands]
    if len(plain) == 1:
        return operands[0].dtype
    result = torch.result_type(plain[0], plain[1])
    for other in plain[2:]:
        result = torch.result_type(torch.empty((), dtype=result, device="meta"), other)
    return result


def _plain(operand: Any) -> Any:
    if isinstance(operand, Value):
        return operand.fake
    return 1 if isinstance(operand, (torch.SymInt, Num)) else operand


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _scaled(x: Num, alpha: Any) -> Num:
    return x if isinstance(alpha, (int, float)) and alpha == 1 else x * number(alpha, x.dtype)


@converts("aten.add.Tensor", "aten.add.Scalar")
def add(k: Kernel, x: Any, other: Any, alpha: Any = 1) -> Value:
    if k.result.dtype is torch.bool:
        return k.pointwise(lambda one, two: one | (two if alpha else number(False, torch.bool)), x, other)
    factor = _factor(k, alpha)
    return k.pointwise(lambda one, two: one + _scaled(two, factor), x, other)


@converts("aten.sub.Tensor", "aten.sub.Scalar")
def sub(k: Kernel, x: Any, other: Any, alpha: Any = 1) -> Value:
    factor = _factor(k, alpha)
    return k.pointwise(lambda one, two: one - _scaled(two, factor), x, other)


@converts("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(k: Kernel, x: Any, other: Any, alpha: Any = 1) -> Value:
    factor = _factor(k, alpha)
    return k.pointwise(lambda one, two: two - _scaled(one, factor), x, other)


def _factor(k: Kernel, alpha: Any) -> Any:
    return k.number(alpha, torch.int64) if isinstance(alpha, torch.SymInt) else alpha


@converts("aten.mul.Tensor", "aten.mul.Scalar")
def mul(k: Kernel, x: Any, other: Any) -> Value:
    if k.result.dtype is torch.bool:
        return k.pointwise(lambda one, two: one & two, x, other)
    return k.pointwise(lambda one, two: one * two, x, other)


@converts("aten.div.Tensor", "aten.div.Scalar")
def div(k: Kernel, x: Any, other: Any) -> Value:
    return k.pointwise(lambda one, two: one / two, x, other)


@converts("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(k: Kernel, x: Any, other: Any, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return div(k, x, other)
    if not k.result.dtype.is_floating_point:
        divisor = _divisor(other)
        form = tirx.floordiv if rounding_mode == "floor" else tirx.truncdiv
        return k.pointwise(lambda one: Num(form(one.expr, number(divisor, one.dtype).expr), one.dtype), x)
    if rounding_mode == "floor":
        return floor_divide(k, x, other)
    narrow = _rounded_between(k)
    return k.pointwise(lambda one, two: intrinsic("trunc", narrow(one / two)), x, other)


def _rounded_between(k: Kernel) -> Callable[[Num], Num]:
    """Torch rounds the quotient of 16-bit floats before it cuts it off."""
    dtype = k.result.dtype
    return lambda x: rounded(x, dtype)


def _divisor(other: Any) -> int:
    """Raises Refused for what may be zero, on which the processor would stop the program."""
    if isinstance(other, bool) or not isinstance(other, int) or other in (0, -1):
        raise Refused("whole numbers are divided only by a number that is known and not 0 or -1")
    return other


@converts("aten.floor_divide.default")
def floor_divide(k: Kernel, x: Any, other: Any) -> Value:
    """The quotient of what is left when the remainder is taken away; x / 0 where other is 0."""
    if not k.result.dtype.is_floating_point:
        return div_mode(k, x, other, rounding_mode="floor")

    def element(one: Num, two: Num) -> Num:
        left = library("fmod", one, two)
        quotient = (one - left) / two
        uneven = left.differs(0) & ((two < 0) ^ (left < 0))
        quotient = choose(uneven, quotient - 1, quotient)
        below = intrinsic("floor", quotient)
        whole = choose((quotient - below) > 0.5, below + 1, below)
        zero = intrinsic("copysign", number(0.0, one.dtype), one / two)
        return choose(two.equals(0), one / two, choose(quotient.equals(0), zero, whole))

    return k.pointwise(element, x, other)


@converts("aten.remainder.Tensor", "aten.remainder.Scalar")
def remainder(k: Kernel, x: Any, other: Any) -> Value:
    """What is left of a division that rounds down: it has the divisor's sign."""
    if not k.result.dtype.is_floating_point:
        divisor = _divisor(other)
        return k.pointwise(lambda one: Num(tirx.floormod(one.expr, number(divisor, one.dtype).expr), one.dtype), x)

    def element(one: Num, two: Num) -> Num:
        left = library("fmod", one, two)
        return choose(left.differs(0) & ((two < 0) ^ (left < 0)), left + two, left)

    return k.pointwise(element, x, other)


@converts("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(k: Kernel, x: Any, other: Any) -> Value:
    if not k.result.dtype.is_floating_point:
        divisor = _divisor(other)
        return k.pointwise(lambda one: Num(tirx.truncmod(one.expr, number(divisor, one.dtype).expr), one.dtype), x)
    return k.pointwise(lambda one, two: library("fmod", one, two), x, other)


@converts("aten.pow.Tensor_Tensor")
def power(k: Kernel, x: Any, other: Any) -> Value:
    if not k.result.dtype.is_floating_point:
        raise Refused("powers of whole numbers to a tensor of exponents")
    return k.pointwise(lambda one, two: library("pow", one, two), x, other)


@converts("aten.pow.Scalar")
def power_of_number(k: Kernel, x: Any, exponent: Value) -> Value:
    return power(k, x, exponent)


@converts("aten.pow.Tensor_Scalar")
def power_to_number(k: Kernel, x: Value, exponent: Any) -> Value:
    if not isinstance(exponent, (int, float)):
        raise Refused("a power to a number that is known only at run time")
    if not k.result.dtype.is_floating_point:
        if isinstance(exponent, bool) or not isinstance(exponent, int) or not 0 <= exponent <= 16:
            raise Refused("a power of whole numbers to this exponent")
        return k.pointwise(lambda one: _product([one] * exponent, one.dtype), x)
    known: dict[float, Callable[[Num], Num]] = {
        0.0: lambda one: number(1, one.dtype),
        0.5: lambda one: intrinsic("sqrt", one),
        1.0: lambda one: one,
        2.0: lambda one: one * one,
        3.0: lambda one: one * one * one,
        -0.5: lambda one: 1 / intrinsic("sqrt", one),
        -1.0: lambda one: 1 / one,
        -2.0: lambda one: 1 / (one * one),
    }
    special = known.get(float(exponent))
    return k.pointwise(special or (lambda one: library("pow", one, number(float(exponent), one.dtype))), x)


def _product(factors: list[Num], dtype: torch.dtype) -> Num:
    result = number(1, dtype)
    for factor in factors:
        result = result * factor
    return result


@converts("aten.addcmul.default")
def addcmul(k: Kernel, x: Value, one: Value, two: Value, value: Any = 1) -> Value:
    return k.pointwise(lambda x, y, z: x + number(value, x.dtype) * y * z, x, one, two)


@converts("aten.addcdiv.default")
def addcdiv(k: Kernel, x: Value, one: Value, two: Value, value: Any = 1) -> Value:
    return k.pointwise(lambda x, y, z: x + number(value, x.dtype) * (y / z), x, one, two)


@converts("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(k: Kernel, x: Value, end: Value, weight: Any) -> Value:
    def element(one: Num, two: Num, w: Num) -> Num:
        return choose(absolute(w) < 0.5, one + w * (two - one), two - (two - one) * (1 - w))

    return k.pointwise(element, x, end, weight)


# -- one operand -------------------------------------------------------------------------------------------------------


@converts("aten.neg.default")
def neg(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: -one, x)


@converts("aten.abs.default")
def abs_(k: Kernel, x: Value) -> Value:
    return k.pointwise(absolute, x)


@converts("aten.sign.default", "aten.sgn.default")
def sign(k: Kernel, x: Value) -> Value:
    def element(one: Num) -> Num:
        if one.dtype is torch.bool:
            return one
        up, down = (one > 0).to(torch.int32), (one < 0).to(torch.int32)
        return (up - down).to(one.dtype)  # torch's gives 0 of NaN

    return k.pointwise(element, x)


@converts("aten.reciprocal.default")
def reciprocal(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: 1 / one, x)


@converts("aten.square.default")
def square(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: one * one, x)


_ROUNDINGS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc", "round": "roundeven"}


def _rounded(name: str) -> Callable[..., Value]:
    def convert(k: Kernel, x: Value) -> Value:
        return k.pointwise(lambda one: intrinsic(name, one) if one.dtype.is_floating_point else one, x)

    return convert


for _aten, _llvm in _ROUNDINGS.items():
    CONVERTERS[f"aten.{_aten}.default"] = _rounded(_llvm)


@converts("aten.frac.default")
def frac(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: one - intrinsic("trunc", one), x)


@converts("aten.isnan.default")
def isnan(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: one.is_nan(), x, dtype=x.dtype)


@converts("aten.isinf.default")
def isinf(k: Kernel, x: Value) -> Value:
    def element(one: Num) -> Num:
        return absolute(one).equals(math.inf) if one.dtype.is_floating_point else number(False, torch.bool)

    return k.pointwise(element, x, dtype=x.dtype)


@converts("aten.nan_to_num.default")
def nan_to_num(k: Kernel, x: Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    if not x.dtype.is_floating_point:
        return k.pointwise(lambda one: one, x)
    info = torch.finfo(x.dtype)
    high, low = info.max if posinf is None else posinf, info.min if neginf is None else neginf

    def element(one: Num) -> Num:
        dtype = one.dtype
        bounded = choose(one.equals(math.inf), number(high, dtype), one)
        bounded = choose(one.equals(-math.inf), number(low, dtype), bounded)
        return choose(one.is_nan(), number(nan or 0.0, dtype), bounded)

    return k.pointwise(element, x)


# -- comparisons and truth values --------------------------------------------------------------------------------------

_COMPARISONS: dict[str, Callable[[Num, Num], Num]] = {
    "eq": lambda x, y: x.equals(y),
    "ne": lambda x, y: x.differs(y),
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


def _comparison(function: Callable[[Num, Num], Num]) -> Callable[..., Value]:
    def convert(k: Kernel, x: Any, other: Any) -> Value:
        return k.pointwise(function, x, other, dtype=promoted(x, other))

    return convert


for _aten, _function in _COMPARISONS.items():
    for _kind in ("Tensor", "Scalar"):
        CONVERTERS[f"aten.{_aten}.{_kind}"] = _comparison(_function)

_LOGICAL: dict[str, Callable[[Num, Num], Num]] = {
    "and": lambda x, y: x & y,
    "or": lambda x, y: x | y,
    "xor": lambda x, y: x ^ y,
}


def _truth(k: Kernel, value: Any, places: Any) -> Num:
    kind = value.dtype if isinstance(value, Value) else torch.float64
    dtype = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    return k.broadcast(value, places, dtype).to(torch.bool)


def _logical(function: Callable[[Num, Num], Num]) -> Callable[..., Value]:
    def convert(k: Kernel, x: Any, other: Any) -> Value:
        return k.compute(lambda *places: function(_truth(k, x, places), _truth(k, other, places)))

    return convert


def _bits(function: Callable[[Num, Num], Num]) -> Callable[..., Value]:
    def convert(k: Kernel, x: Any, other: Any) -> Value:
        return k.pointwise(function, x, other)

    return convert


for _aten, _function in _LOGICAL.items():
    CONVERTERS[f"aten.logical_{_aten}.default"] = _logical(_function)
    for _kind in ("Tensor", "Scalar"):
        CONVERTERS[f"aten.bitwise_{_aten}.{_kind}"] = _bits(_function)


@converts("aten.logical_not.default")
def logical_not(k: Kernel, x: Value) -> Value:
    return k.compute(lambda *places: ~_truth(k, x, places))


@converts("aten.bitwise_not.default")
def bitwise_not(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: ~one, x)


# -- selection ---------------------------------------------------------------------------------------------------------


@converts("aten.maximum.default", "aten.max.other")
def maximum(k: Kernel, x: Value, other: Value) -> Value:
    return k.pointwise(_of_bools(lambda x, y: x | y, larger), x, other)


@converts("aten.minimum.default", "aten.min.other")
def minimum(k: Kernel, x: Value, other: Value) -> Value:
    return k.pointwise(_of_bools(lambda x, y: x & y, smaller), x, other)


def _of_bools(of_bools: Callable[..., Num], of_numbers: Callable[..., Num]) -> Callable[..., Num]:
    return lambda x, y: of_bools(x, y) if x.dtype is torch.bool else of_numbers(x, y)


def _ignoring_nan(function: Callable[[Num, Num], Num]) -> Callable[[Num, Num], Num]:
    def element(x: Num, y: Num) -> Num:
        if not x.dtype.is_floating_point:
            return function(x, y)
        return choose(y.is_nan(), x, choose(x.is_nan(), y, function(x, y)))

    return element


@converts("aten.fmax.default")
def fmax(k: Kernel, x: Value, other: Value) -> Value:
    return k.pointwise(_of_bools(lambda x, y: x | y, _ignoring_nan(larger)), x, other)


@converts("aten.fmin.default")
def fmin(k: Kernel, x: Value, other: Value) -> Value:
    return k.pointwise(_of_bools(lambda x, y: x & y, _ignoring_nan(smaller)), x, other)


@converts("aten.clamp.default", "aten.clamp.Tensor")
def clamp(k: Kernel, x: Value, low: Any = None, high: Any = None) -> Value:
    bounds = [bound for bound in (low, high) if bound is not None]

    def element(one: Num, *others: Num) -> Num:
        given = iter(others)
        if low is not None:
            bound = next(given)
            one = choose(one.is_nan(), one, larger(one, bound))
        if high is not None:
            bound = next(given)
            one = choose(one.is_nan(), one, smaller(one, bound))
        return one

    return k.pointwise(element, x, *bounds)


@converts("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(k: Kernel, x: Value, low: Any) -> Value:
    return clamp(k, x, low)


@converts("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(k: Kernel, x: Value, high: Any) -> Value:
    return clamp(k, x, None, high)


@converts("aten.where.self", "aten.where.Scalar", "aten.where.ScalarOther", "aten.where.ScalarSelf")
def where(k: Kernel, condition: Value, one: Any, two: Any) -> Value:
    kind = k.result.dtype

    def element(*places: Any) -> Num:
        chosen = k.broadcast(condition, places, torch.bool)
        return choose(chosen, _exactly(k, one, places, kind), _exactly(k, two, places, kind))

    return k.compute(element)


def _exactly(k: Kernel, value: Any, places: Any, dtype: torch.dtype) -> Num:
    return k.broadcast(value, places, dtype)


@converts("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(k: Kernel, x: Value, mask: Value, value: Any) -> Value:
    return where(k, mask, value, x)


# -- casts and copies --------------------------------------------------------------------------------------------------


@converts("aten._to_copy.default", "prims.convert_element_type.default", "aten.clone.default", "aten.alias.default")
@converts("aten.contiguous.default", "aten.detach.default", "aten.lift_fresh_copy.default", "aten.lift_fresh.default")
def copied(k: Kernel, x: Value, *args: Any, **kwargs: Any) -> Value:
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type != "cpu":
        raise Refused("a copy to another device")
    return k.compute(lambda *places: x.at(places))


@converts("aten.copy.default")
def copy(k: Kernel, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return k.compute(lambda *places: k.broadcast(source, places, source.dtype).to(x.dtype))
