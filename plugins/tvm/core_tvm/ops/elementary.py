"""Elementary functions: those of C's mathematical library, in the precision of the values."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ..arithmetic import Num, absolute, choose, intrinsic, larger, library, number, smaller
from ..kernel import Kernel, Value
from ..registry import CONVERTERS, Refused, converts

_LIBRARY = (
    "acos acosh asin asinh atan atanh cos cosh erf erfc exp exp2 expm1 log log10 log1p log2 sin sinh tan tanh lgamma"
).split()


def of_library(name: str) -> Callable[..., Value]:
    def convert(k: Kernel, x: Value) -> Value:
        return k.pointwise(lambda one: library(name, one), x)

    return convert


for _name in _LIBRARY:
    CONVERTERS[f"aten.{_name}.default"] = of_library(_name)


@converts("aten.sqrt.default")
def sqrt(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: intrinsic("sqrt", one), x)


@converts("aten.rsqrt.default")
def rsqrt(k: Kernel, x: Value) -> Value:
    return k.pointwise(lambda one: 1 / intrinsic("sqrt", one), x)


@converts("aten.atan2.default")
def atan2(k: Kernel, x: Value, other: Value) -> Value:
    return k.pointwise(lambda one, two: library("atan2", one, two), x, other)


@converts("aten.hypot.default")
def hypot(k: Kernel, x: Value, other: Value) -> Value:
    return k.pointwise(lambda one, two: library("hypot", one, two), x, other)


@converts("aten.logaddexp.default")
def logaddexp(k: Kernel, x: Value, other: Value) -> Value:
    def element(one: Num, two: Num) -> Num:
        top = larger(one, two)
        sums = top + library("log1p", library("exp", -absolute(one - two)))
        return choose(one.equals(two) & absolute(one).equals(math.inf), one, sums)

    return k.pointwise(element, x, other)


@converts("aten.xlogy.Tensor", "aten.xlogy.Scalar_Self", "aten.xlogy.Scalar_Other")
def xlogy(k: Kernel, x: Value, other: Value) -> Value:
    def element(one: Num, two: Num) -> Num:
        product = choose(one.equals(0), number(0, one.dtype), one * library("log", two))
        return choose(two.is_nan(), two, product)

    return k.pointwise(element, x, other)


def logistic(x: Num) -> Num:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + library("exp", -x))


@converts("aten.sigmoid.default")
def sigmoid(k: Kernel, x: Value) -> Value:
    return k.pointwise(logistic, x)


@converts("aten.logit.default")
def logit(k: Kernel, x: Value, eps: float | None = None) -> Value:
    def element(one: Num) -> Num:
        if eps is not None:
            one = choose(one.is_nan(), one, smaller(larger(one, number(eps, one.dtype)), number(1 - eps, one.dtype)))
        return library("log", one / (1 - one))

    return k.pointwise(element, x)


@converts("aten.bernoulli.p", "aten.rand.default", "aten.randn.default", "aten.native_dropout.default")
def drawn(k: Kernel, *args: object, **kwargs: object) -> Value:
    raise Refused("random numbers are drawn by torch")


@converts("aten.nextafter.default")
def nextafter(k: Kernel, x: Value, other: Value) -> Value:
    if k.result.dtype not in (torch.float32, torch.float64):
        raise Refused("the next number of 16 bits")
    return k.pointwise(lambda one, two: library("nextafter", one, two), x, other)


@converts("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(k: Kernel, x: Value, other: Value) -> Value:
    return k.pointwise(lambda one, two: intrinsic("copysign", one, two), x, other)
