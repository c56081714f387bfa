"""What TensorRT computes, as its ONNX parser and builder answer for one operator at a time.

float64 is narrowed to float32 on the way in without a word, and 8- and 16-bit integers exist for quantisation only, so
values of these types are refused. int64 is computed as int64.
"""

from __future__ import annotations

from typing import Any

import torch
from core_onnx import Target, unsupported_reason

OPSET = 18
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64)
TAKEN = (*FLOATS, *INTEGERS, torch.bool)

_FLOAT_ONLY = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Conv ConvTranspose Cos Cosh Erf Exp Floor "
    "Gemm IsInf IsNaN LayerNormalization LeakyRelu Log LogSoftmax MatMul MaxPool Reciprocal ReduceLogSumExp ReduceMean "
    "Relu Round Sin Sinh Softmax Sqrt Tan Tanh".split()
)
_NUMBERS = frozenset(
    "Abs Add ArgMax ArgMin CumSum Div Greater GreaterOrEqual Less LessOrEqual Max Min Mul Neg Pow Range ReduceMax "
    "ReduceMin ReduceProd ReduceSum Sign Sub TopK".split()
)
_BOOL_ONLY = frozenset("And Not Or Xor".split())
_MOVING = frozenset(
    "Cast Concat Equal Expand Gather GatherElements GatherND Identity OneHot Pad Reshape ScatterElements ScatterND "
    "Shape Size Slice Split Squeeze Tile Transpose Trilu Unsqueeze Where".split()
)
OPERATORS = frozenset((*_FLOAT_ONLY, *_NUMBERS, *_BOOL_ONLY, *_MOVING, "Mod"))
"""Every operator that is taken; what is not here goes to the fallback."""


def computes(operator: str, dtype: torch.dtype) -> bool:
    """Whether there is a kernel of an ONNX operator for values of a dtype."""
    if operator in _MOVING:
        return dtype in TAKEN
    if operator in _BOOL_ONLY:
        return dtype is torch.bool
    if operator in _FLOAT_ONLY:
        return dtype in FLOATS
    if operator == "Mod":
        return dtype in INTEGERS
    return operator in _NUMBERS and dtype in (*FLOATS, *INTEGERS)


_ADDING = frozenset(
    "aten.scatter_add.default aten.embedding_dense_backward.default aten._embedding_bag.default "
    "aten._embedding_bag_forward_only.default".split()
)
_ORDERING = frozenset(
    "aten.argmax.default aten.argmin.default aten.max.dim aten.min.dim aten.sort.default aten.sort.stable "
    "aten.topk.default".split()
)
MOST_ORDERED = 3840
"""The most values of one row that the library's TopK layer keeps."""
TARGET = Target(
    "TensorRT", OPSET, computes, drops_nan=frozenset(("GreaterOrEqual", "LessOrEqual", "Max", "Min", "Relu"))
)


def refusal(node: Any) -> str:
    """Why a node is not taken, or "": a type that would be narrowed, values made of none, no form in ONNX."""
    for value in (node, *node.all_input_nodes):
        fake = value.meta.get("val")
        several = isinstance(fake, (tuple, list))
        for one in fake if several else (fake,):
            if isinstance(one, (float, torch.SymFloat)):
                return "a float that is known at run time only would be narrowed to float32"
            if not isinstance(one, torch.Tensor):
                continue
            if one.dtype not in TAKEN:
                return f"TensorRT has no exact {str(one.dtype).removeprefix('torch.')}"
            if not several and 0 in one.shape:  # one of several results is empty where nobody reads it
                return "tensors without elements are not taken"
    return _missing_kind(node) or str(unsupported_reason(node, TARGET))


def _missing_kind(node: Any) -> str:
    """What the parser refuses of an operator that it has: scattering that adds, the order of a vector's values."""
    name = str(node.target)
    accumulate = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
    if name in _ADDING or (name in ("aten.index_put.default", "aten._unsafe_index_put.default") and accumulate):
        return "the ONNX parser has no scattering that adds"
    if name in _ORDERING:
        flat = name.startswith("aten.arg") and (node.args[1] if len(node.args) > 1 else None) is None
        if flat or node.args[0].meta["val"].dim() < 2:
            return "values of a vector are not put in order"
        if not name.startswith(("aten.arg", "aten.max", "aten.min")) and _ordered(node) > MOST_ORDERED:
            return f"TensorRT puts {MOST_ORDERED} values in order at most"
    return ""


def _ordered(node: Any) -> int:
    """How many values a sort or topk keeps, 0 for a number that is not known yet."""
    kept = node.meta["val"][0]
    at = {"aten.sort.default": 1, "aten.sort.stable": 2, "aten.topk.default": 2}[str(node.target)]
    dim = node.args[at] if len(node.args) > at else node.kwargs.get("dim", -1)
    size = kept.shape[dim]
    return size if isinstance(size, int) else 0
