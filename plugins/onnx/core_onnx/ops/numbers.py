"""Arithmetic of symbolic sizes, on int64 scalars of the model."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import CONVERTERS, converts
from .operands import operand

_COMPARED = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


@converts("aten.sym_size.int")
def sym_size(b: ModelBuilder, x: Value, dim: int) -> Value:
    return b.node("Identity", b.size_of(x, dim))


@converts("aten.sym_numel.default")
def sym_numel(b: ModelBuilder, x: Value) -> Value:
    return b.node("Size", x)


def _arithmetic(name: str) -> Any:
    def convert(b: ModelBuilder, one: Any, two: Any) -> Value:
        dtype = _number_dtype(b)
        return b.node(name, operand(b, one, dtype), operand(b, two, dtype))

    return convert


def _number_dtype(b: ModelBuilder) -> torch.dtype:
    return torch.float64 if isinstance(b.result, (float, torch.SymFloat)) else torch.int64


for _python, _onnx in {"add": "Add", "sub": "Sub", "mul": "Mul"}.items():
    CONVERTERS[f"operator.{_python}"] = _arithmetic(_onnx)
for _python, _onnx in _COMPARED.items():
    CONVERTERS[f"operator.{_python}"] = lambda b, one, two, _name=_onnx: b.node(
        _name, operand(b, one, torch.int64), operand(b, two, torch.int64)
    )


@converts("operator.neg")
def negative(b: ModelBuilder, number: Value) -> Value:
    return b.node("Neg", number)


@converts("operator.truediv")
def quotient(b: ModelBuilder, one: Any, two: Any) -> Value:
    return b.node("Div", operand(b, one, torch.float64), operand(b, two, torch.float64))


@converts("operator.floordiv")
def floor_quotient(b: ModelBuilder, one: Any, two: Any) -> Value:
    if _number_dtype(b) is not torch.int64 or not isinstance(two, int) or two <= 0:
        raise ConversionError("a floor division that is not of an integer by a positive constant")
    value, divisor, zero = operand(b, one, torch.int64), b.scalar(two, torch.int64), b.scalar(0, torch.int64)
    quotient = b.node("Div", value, divisor)
    left = b.node("Sub", value, b.node("Mul", quotient, divisor))
    return b.node("Where", b.node("Less", left, zero), b.node("Sub", quotient, b.scalar(1, torch.int64)), quotient)


@converts("operator.mod")
def modulus(b: ModelBuilder, one: Any, two: Any) -> Value:
    if _number_dtype(b) is not torch.int64 or not isinstance(two, int) or two <= 0:
        raise ConversionError("a remainder that is not of an integer by a positive constant")
    return b.node("Mod", operand(b, one, torch.int64), operand(b, two, torch.int64))
