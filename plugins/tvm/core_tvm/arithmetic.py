"""Num: one number of a tensor expression with its torch dtype, and arithmetic on it that is torch's.

TVM simplifies expressions as if they were of real numbers: `x - x` becomes 0, `x * 0` becomes 0, `x == x` becomes
true, `not (x < y)` becomes `y <= x`. NaN, infinities and the sign of zero would be lost. So the operands
of every operation on floats are hidden from the simplifier behind casts of their bits, which LLVM takes away again, the
right one behind twice as many, so that `(x + y) - y` is not seen either; and a truth value is turned around as an
integer.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tvm import tirx

from .registry import Refused

# TVM keeps values of bfloat16 within a function in float32 and leaves casts out: it is given their bits.
NAMES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "uint16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
}
# Unsigned: TVM widens signed constants in conditions, where it takes them for parts of indices.
_BITS = {torch.float32: ("uint32", "<I", "<f"), torch.float64: ("uint64", "<Q", "<d")}
_NARROW = (torch.float16, torch.bfloat16)


def type_name(dtype: torch.dtype) -> str:
    """TVM's name of a dtype. Raises Refused for those that are not taken, as complex numbers."""
    found = NAMES.get(dtype)
    if found is None:
        raise Refused(f"values of {str(dtype).removeprefix('torch.')} are left to the fallback")
    return found


def computing(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of another are calculated: of 16-bit floats torch rounds only the result."""
    return torch.float32 if dtype in _NARROW else dtype


@dataclass(frozen=True)
class Num:
    """A number: `expr` is TVM's expression of it, of the dtype `dtype`."""

    expr: Any
    dtype: torch.dtype

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Num:
        return self._with(other, lambda x, y: x + y)

    def __radd__(self, other: Any) -> Num:
        return number(other, self.dtype) + self

    def __sub__(self, other: Any) -> Num:
        return self._with(other, lambda x, y: x - y)

    def __rsub__(self, other: Any) -> Num:
        return number(other, self.dtype) - self

    def __mul__(self, other: Any) -> Num:
        return self._with(other, lambda x, y: x * y)

    def __rmul__(self, other: Any) -> Num:
        return number(other, self.dtype) * self

    def __truediv__(self, other: Any) -> Num:
        assert self.dtype.is_floating_point
        return self._with(other, tirx.div)

    def __rtruediv__(self, other: Any) -> Num:
        return number(other, self.dtype) / self

    def __neg__(self) -> Num:
        if self.dtype in _BITS:  # 0 - x would make 0 of 0
            return self * -1
        return number(0, self.dtype) - self

    # -- comparisons ---------------------------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> Num:
        return self._compared(other, tirx.LT)

    def __le__(self, other: Any) -> Num:
        return self._compared(other, tirx.LE)

    def __gt__(self, other: Any) -> Num:
        return self._compared(other, tirx.GT)

    def __ge__(self, other: Any) -> Num:
        return self._compared(other, tirx.GE)

    def equals(self, other: Any) -> Num:
        """== of torch."""
        return self._compared(other, tirx.EQ)

    def differs(self, other: Any) -> Num:
        """!= of torch: true of NaN. TVM's own is ordered."""
        return ~self.equals(other)

    # -- truth values and bits -----------------------------------------------------------------------------------------

    def __invert__(self) -> Num:
        if self.dtype is torch.bool:
            turned = tirx.bitwise_xor(tirx.Cast("uint8", self.expr), tirx.const(1, "uint8"))
            return Num(tirx.Cast("bool", turned), torch.bool)
        return Num(tirx.bitwise_not(self.expr), self.dtype)

    def __and__(self, other: Any) -> Num:
        return self._bitwise(other, tirx.And, tirx.bitwise_and)

    def __or__(self, other: Any) -> Num:
        return self._bitwise(other, tirx.Or, tirx.bitwise_or)

    def __xor__(self, other: Any) -> Num:
        if self.dtype is torch.bool:
            turned = tirx.bitwise_xor(self.to(torch.uint8).expr, number(other, torch.bool).to(torch.uint8).expr)
            return Num(tirx.Cast("bool", turned), torch.bool)
        return self._bitwise(other, tirx.bitwise_xor, tirx.bitwise_xor)

    def is_nan(self) -> Num:
        """True of NaN, looked for in the bits."""
        if not self.dtype.is_floating_point:
            return number(False, torch.bool)
        wide = self.to(computing(self.dtype))
        name, _, _ = _BITS[wide.dtype]
        bits = tirx.reinterpret(name, wide.expr)
        top = tirx.const((1 << (int(name[4:]) - 1)) - 1, name)
        infinite = {"uint32": 0x7F800000, "uint64": 0x7FF0000000000000}[name]
        return Num(tirx.GT(tirx.bitwise_and(bits, top), tirx.const(infinite, name)), torch.bool)

    # -- types ---------------------------------------------------------------------------------------------------------

    def to(self, dtype: torch.dtype) -> Num:
        """The number in another dtype, rounded or cut off as torch does."""
        if dtype is self.dtype:
            return self
        if dtype in _NARROW and self.dtype is not torch.float32:
            return self.to(torch.float32).to(dtype)
        if self.dtype in _NARROW and dtype is not torch.float32:
            return self.to(torch.float32).to(dtype)
        if dtype is torch.bool and self.dtype.is_floating_point:
            return self.differs(0)
        if self.dtype.is_floating_point and dtype in (torch.int8, torch.int16, torch.uint8):
            return self.to(torch.int64).to(dtype)  # torch cuts the bits of a wider integer off
        if dtype is torch.bfloat16:
            return Num(tirx.Cast("uint16", _upper_half(self)), dtype)
        if self.dtype is torch.bfloat16:
            bits = tirx.Cast("uint32", self.expr)
            return Num(tirx.reinterpret("float32", tirx.shift_left(bits, tirx.const(16, "uint32"))), dtype)
        return Num(tirx.Cast(type_name(dtype), self.expr), dtype)

    def hidden(self) -> Num:
        """The same number, of which the simplifier knows nothing."""
        wide = self.dtype
        if wide not in _BITS:
            return self
        name = _BITS[wide][0]
        return Num(tirx.reinterpret(NAMES[wide], tirx.reinterpret(name, self.expr)), wide)

    def _with(self, other: Any, operation: Callable[[Any, Any], Any]) -> Num:
        assert self.dtype not in _NARROW, "16-bit floats are calculated wide"
        return Num(operation(self.hidden().expr, self._right(other).expr), self.dtype)

    def _right(self, other: Any) -> Num:
        right = number(other, self.dtype) if not isinstance(other, Num) else other
        if right.dtype is not self.dtype:
            raise AssertionError(f"{right.dtype} beside {self.dtype}")
        return right.hidden().hidden()  # otherwise than the left side, or x - x would be seen

    def _compared(self, other: Any, operation: Callable[[Any, Any], Any]) -> Num:
        if self.dtype is torch.bool:
            return Num(operation(self.to(torch.int32).expr, number(other, torch.bool).to(torch.int32).expr), torch.bool)
        return Num(operation(self.hidden().expr, self._right(other).expr), torch.bool)

    def _bitwise(self, other: Any, of_bools: Callable[..., Any], of_integers: Callable[..., Any]) -> Num:
        right = number(other, self.dtype)
        return Num((of_bools if self.dtype is torch.bool else of_integers)(self.expr, right.expr), self.dtype)


def number(value: Any, dtype: torch.dtype) -> Num:
    """A Num, or a number of Python, as a Num of `dtype`."""
    if isinstance(value, Num):
        return value.to(dtype)
    if dtype in _NARROW:
        return number(value, torch.float32).to(dtype)
    if dtype in _BITS:
        return Num(_hidden_constant(float(value), dtype), dtype)
    if dtype is torch.bool:
        return Num(tirx.const(bool(value), "bool"), dtype)
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused("an infinity or NaN as a whole number")
    info = torch.iinfo(dtype)
    wrapped = (int(value) - info.min) % (info.max - info.min + 1) + info.min
    return Num(tirx.const(wrapped, type_name(dtype)), dtype)


def _hidden_constant(value: float, dtype: torch.dtype) -> Any:
    name = NAMES[dtype]
    integer, whole, floating = _BITS[dtype]
    if value == 0:  # its bits are those of no pointer, TVM says
        sign = tirx.const(math.copysign(1.0, value), name)
        suffix = "f32" if dtype is torch.float32 else "f64"
        return tirx.call_llvm_pure_intrin(name, f"llvm.copysign.{suffix}", tirx.const(0.0, name), sign)
    try:
        packed = struct.pack(floating, value)
    except OverflowError:
        packed = struct.pack(floating, math.copysign(math.inf, value))
    return tirx.reinterpret(name, tirx.const(struct.unpack(whole, packed)[0], integer))


def choose(condition: Num, one: Num, two: Num) -> Num:
    """`one` where the condition holds, else `two`; both are computed."""
    assert one.dtype is two.dtype
    return Num(tirx.Select(condition.expr, one.expr, two.expr), one.dtype)


def guarded(condition: Num, one: Num, two: Num) -> Num:
    """As choose, but only the side that is chosen is computed: reads outside of a tensor stand behind this."""
    assert one.dtype is two.dtype
    return Num(tirx.if_then_else(condition.expr, one.expr, two.expr), one.dtype)


def library(name: str, *operands: Num) -> Num:
    """A function of C's mathematical library, in the operands' own precision."""
    dtype = operands[0].dtype
    suffix = "f" if dtype is torch.float32 else ""
    return Num(tirx.call_pure_extern(NAMES[dtype], name + suffix, *[one.expr for one in operands]), dtype)


def intrinsic(name: str, *operands: Num) -> Num:
    """An intrinsic of LLVM, as "sqrt", which is exact and vectorised."""
    dtype = operands[0].dtype
    suffix = "f32" if dtype is torch.float32 else "f64"
    return Num(
        tirx.call_llvm_pure_intrin(NAMES[dtype], f"llvm.{name}.{suffix}", *[one.expr for one in operands]), dtype
    )


def larger(one: Num, two: Num) -> Num:
    """The maximum; NaN where one is NaN, the first of equal ones, as zeros of both signs are."""
    if not one.dtype.is_floating_point:
        return choose(one > two, one, two)
    return choose(one.is_nan() | (one >= two), one, two)


def smaller(one: Num, two: Num) -> Num:
    """The minimum; NaN where one is NaN, the first of equal ones."""
    if not one.dtype.is_floating_point:
        return choose(one < two, one, two)
    return choose(one.is_nan() | (one <= two), one, two)


def absolute(one: Num) -> Num:
    """The absolute value."""
    if one.dtype.is_floating_point:
        return intrinsic("fabs", one)
    return one if one.dtype in (torch.uint8, torch.bool) else choose(one < 0, -one, one)


def rounded(one: Num, dtype: torch.dtype) -> Num:
    """A number rounded to a narrower dtype and brought back."""
    return one.to(dtype).to(one.dtype)


def _upper_half(one: Num) -> Any:
    """The bits of bfloat16 for a float32, rounded to the nearest."""
    bits = tirx.reinterpret("uint32", one.expr)
    last = tirx.bitwise_and(tirx.shift_right(bits, tirx.const(16, "uint32")), tirx.const(1, "uint32"))
    nearest = tirx.shift_right(bits + tirx.const(0x7FFF, "uint32") + last, tirx.const(16, "uint32"))
    return tirx.Select(one.is_nan().expr, tirx.const(0x7FC0, "uint32"), nearest)


def extremes(dtype: torch.dtype) -> tuple[Any, Any]:
    """The least and the greatest value."""
    if dtype.is_floating_point:
        return -math.inf, math.inf
    if dtype is torch.bool:
        return False, True
    info = torch.iinfo(dtype)
    return info.min, info.max
