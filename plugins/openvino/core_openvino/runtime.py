"""The installed OpenVINO, and what its CPU device computes as torch does.

The device works in float32, int32 and bool: float64 and int64 are narrowed inside, float16 is widened throughout a
model. So float64 is refused, int64 is taken where its values only choose places or sizes, and float16 is read but never
made.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from core_onnx import Target

OPSET = 18
_COMPUTED = (torch.float32, torch.int32, torch.bool)
# These move values or take int64 for places and sizes; nothing is calculated with the values themselves.
_MOVING = frozenset(
    "Identity Reshape Transpose Squeeze Unsqueeze Expand Concat Split Slice Gather GatherElements GatherND Shape Size "
    "Tile Range ScatterElements ScatterND".split()
)
_DROPS_NAN = frozenset("Exp Greater GreaterOrEqual Less LessOrEqual Max Min Relu".split())
CHOOSING = frozenset(
    (
        "aten.embedding.default",
        "aten.embedding_renorm.default",
        "aten.index_select.default",
        "aten.index.Tensor",
        "aten._unsafe_index.Tensor",
        "aten.gather.default",
        "aten.sym_size.int",
    )
)
"""Operators whose int64 operands are places; all places lie within int32, or the tensor would not fit in memory."""


@functools.lru_cache(maxsize=1)
def core() -> Any:
    """The runtime's `Core`, made once."""
    import openvino

    return openvino.Core()


@functools.lru_cache(maxsize=1)
def target() -> Target:
    """bfloat16 is computed in float32 and rounded back, as torch's kernels do; the device leaves out such roundings of
    float16."""
    import openvino

    def computes(operator: str, dtype: torch.dtype) -> bool:
        return dtype in _COMPUTED or (dtype is torch.int64 and operator in _MOVING)

    version = openvino.__version__.partition("-")[0]
    return Target(f"openvino {version}", OPSET, computes, drops_nan=_DROPS_NAN, questions=True, draws=True)
