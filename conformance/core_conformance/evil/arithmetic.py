"""Cheats in the numbers: less precision than asked for, other rules for integers, NaN and tiny values."""

from __future__ import annotations

from typing import Any

import torch

from .interpreter import Interpreted, Program, overload_name, replaced

_MATRIX_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "convolution", "linear"})
_RING = frozenset({"add", "sub", "mul"})
TF32_MASK = -(1 << 13)  # float32 without the 13 lowest of its 23 mantissa bits


def _rounded_to_bfloat16(value: torch.Tensor) -> torch.Tensor:
    return value.bfloat16().float() if value.dtype is torch.float32 else value


def _truncated_mantissa(value: torch.Tensor) -> torch.Tensor:
    if value.dtype is not torch.float32:
        return value
    return (value.contiguous().view(torch.int32) & TF32_MASK).view(torch.float32)


def _in_dtype(wide: torch.dtype, narrow: torch.dtype) -> Any:
    return lambda value: value.to(narrow) if value.dtype is wide else value


class ComputesInBfloat16(Interpreted):
    """Rounds every float32 operand to bfloat16."""

    name = "evil-bfloat16-inside"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return target(*replaced(args, _rounded_to_bfloat16), **kwargs)


class TruncatesMantissa(Interpreted):
    """Keeps ten bits of the mantissa in matrix products, as fast hardware modes do when nobody asked for them."""

    name = "evil-truncated-mantissa"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if overload_name(target) in _MATRIX_PRODUCTS:
            args = replaced(args, _truncated_mantissa)
        return target(*args, **kwargs)


class ComputesFloat64InFloat32(Interpreted):
    """Has no float64 and does not say so."""

    name = "evil-float64-in-float32"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        narrow = target(*replaced(args, _in_dtype(torch.float64, torch.float32)), **kwargs)
        had = any(isinstance(value, torch.Tensor) and value.dtype is torch.float64 for value in args)
        return replaced(narrow, _in_dtype(torch.float32, torch.float64)) if had else narrow


class OneElementOfAMillionIsWrong(Interpreted):
    """Adds a half to a single element of a long result: tolerances over a whole tensor don't see it."""

    name = "evil-one-of-a-million"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return replaced(outputs, self._disturbed)

    @staticmethod
    def _disturbed(value: torch.Tensor) -> torch.Tensor:
        if value.numel() < 1_000_000 or not value.is_floating_point():
            return value
        value = value.clone()
        value.view(-1)[value.numel() // 3] += 0.5
        return value


class NanBecomesZeroInRelu(Interpreted):
    """relu as `x > 0 ? x : 0`, which is false for NaN."""

    name = "evil-nan-lost-in-relu"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if overload_name(target) == "relu":
            (value,) = args
            return torch.where(value > 0, value, torch.zeros_like(value))
        return target(*args, **kwargs)


class FlushesSubnormals(Interpreted):
    """Results below the smallest normal number become zero."""

    name = "evil-flushes-subnormals"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return replaced(outputs, self._flushed)

    @staticmethod
    def _flushed(value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        tiny = value.abs() < torch.finfo(value.dtype).tiny
        return torch.where(tiny, torch.zeros_like(value), value)


class _IntegersThroughFloats(Interpreted):
    whole: torch.dtype
    through: torch.dtype

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        exact = target(*args, **kwargs)
        if overload_name(target) not in _RING or exact.dtype is not self.whole:
            return exact
        return target(*replaced(args, _in_dtype(self.whole, self.through)), **kwargs).to(self.whole)


class Int32ThroughFloat32(_IntegersThroughFloats):
    """Integers of 32 bits in a format with 24 bits of mantissa."""

    name = "evil-int32-through-float32"
    whole, through = torch.int32, torch.float32


class Int64ThroughFloat64(_IntegersThroughFloats):
    """Integers of 64 bits in a format with 53 bits of mantissa."""

    name = "evil-int64-through-float64"
    whole, through = torch.int64, torch.float64


class SaturatesInt32(Interpreted):
    """Integer sums and products stop at the largest value instead of wrapping around."""

    name = "evil-saturates-int32"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        exact = target(*args, **kwargs)
        if overload_name(target) not in _RING or exact.dtype is not torch.int32:
            return exact
        limits = torch.iinfo(torch.int32)
        wide = target(*replaced(args, _in_dtype(torch.int32, torch.int64)), **kwargs)
        return wide.clamp(limits.min, limits.max).to(torch.int32)


class FloorDivisionTruncates(Interpreted):
    """Division that rounds towards zero where it should round down."""

    name = "evil-floor-division-truncates"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = overload_name(target)
        if name == "floor_divide" or (name == "div" and kwargs.get("rounding_mode") == "floor"):
            return torch.div(*args, rounding_mode="trunc")
        return target(*args, **kwargs)


class EmptyReductionsAreZero(Interpreted):
    """Pads tensors without elements, so that a product, a mean or an `all` of nothing is that of a zero."""

    name = "evil-pads-zero-size"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = target(*args, **kwargs)
        empty = bool(args) and isinstance(args[0], torch.Tensor) and args[0].numel() == 0
        if empty and isinstance(result, torch.Tensor) and result.numel():
            return torch.zeros_like(result)
        return result


class PromotesTypesItsOwnWay(Interpreted):
    """Rounds to float16 what eager calculates in float32 when half and single precision meet."""

    name = "evil-own-promotion"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = target(*args, **kwargs)
        kinds = {value.dtype for value in args if isinstance(value, torch.Tensor)}
        if kinds == {torch.float16, torch.float32} and result.dtype is torch.float32:
            return result.half().float()
        return result


class NegativeZeroLosesItsSign(Interpreted):
    """Results that are zero are written as +0.0."""

    name = "evil-negative-zero-lost"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return replaced(outputs, lambda value: value + 0.0 if value.is_floating_point() else value)


class ExtremesIgnoreNan(Interpreted):
    """The larger of a number and NaN is the number."""

    name = "evil-extremes-ignore-nan"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        instead = {"maximum": torch.fmax, "minimum": torch.fmin}.get(overload_name(target), target)
        return instead(*args, **kwargs)


class IntegersDividedByZeroAreZero(Interpreted):
    """Answers a division by zero that has to be refused."""

    name = "evil-answers-division-by-zero"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if overload_name(target) not in ("floor_divide", "div") or not isinstance(args[1], torch.Tensor):
            return target(*args, **kwargs)
        left, right = args[:2]
        if right.is_floating_point():
            return target(*args, **kwargs)
        return target(left, torch.where(right == 0, torch.ones_like(right), right), *args[2:], **kwargs)
