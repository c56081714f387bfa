"""Torch's dtypes in ONNX's numbering, and what is wide enough to compute another."""

from __future__ import annotations

import torch
from onnx import TensorProto

from .errors import ConversionError

ELEMENT_TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float64: TensorProto.DOUBLE,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
    torch.int64: TensorProto.INT64,
    torch.int32: TensorProto.INT32,
    torch.int16: TensorProto.INT16,
    torch.int8: TensorProto.INT8,
    torch.uint8: TensorProto.UINT8,
    torch.bool: TensorProto.BOOL,
}
WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.int8: torch.int32,
    torch.uint8: torch.int32,
    torch.int16: torch.int32,
    torch.bool: torch.int32,
}
"""The type that holds every value of another, in which a target may compute it and cast the result back."""


def element_type(dtype: torch.dtype) -> int:
    """ONNX's number of a dtype. Raises ConversionError for one that ONNX lacks, as complex64 in most operators."""
    found = ELEMENT_TYPES.get(dtype)
    if found is None:
        raise ConversionError(f"ONNX models of this kind have no {str(dtype).removeprefix('torch.')}")
    return int(found)


def range_of(dtype: torch.dtype) -> tuple[float | int, float | int]:
    """The least and the greatest value; infinities for floating dtypes."""
    if dtype.is_floating_point:
        return float("-inf"), float("inf")
    if dtype is torch.bool:
        return 0, 1
    info = torch.iinfo(dtype)
    return info.min, info.max
