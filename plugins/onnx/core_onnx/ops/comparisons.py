"""Comparisons of tensors and numbers."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..registry import CONVERTERS
from .operands import common_dtype, operand

_NAMES = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def _compare(name: str, *, negated: bool = False) -> Any:
    def convert(b: ModelBuilder, x: Value, other: Any) -> Value:
        dtype = common_dtype(x, other)
        if not dtype.is_floating_point and isinstance(other, (int, float)) and not isinstance(other, bool):
            dtype = torch.int64  # the number may not fit the tensor's own type
        result = b.node(name, operand(b, x, dtype), operand(b, other, dtype))
        return b.node("Not", result) if negated else result

    return convert


for _aten, _onnx in _NAMES.items():
    for _kind in ("Tensor", "Scalar"):
        CONVERTERS[f"aten.{_aten}.{_kind}"] = _compare(_onnx)
for _kind in ("Tensor", "Scalar"):
    CONVERTERS[f"aten.ne.{_kind}"] = _compare("Equal", negated=True)
