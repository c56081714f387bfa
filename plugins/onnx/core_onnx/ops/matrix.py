"""Products of matrices."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts
from .operands import operand


@converts("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default")
def matmul(b: ModelBuilder, x: Value, other: Value) -> Value:
    if _empty(x) or _empty(other):
        return _zeros(b)
    return b.node("MatMul", x, other)


def _empty(value: Value) -> bool:
    return any(isinstance(size, int) and size == 0 for size in value.shape)


def _zeros(b: ModelBuilder) -> Value:
    """What a sum of no products is; a runtime may leave such a result unwritten."""
    return b.node("Expand", b.scalar(0, b.result.dtype), b.flat_shape_of(b.result))


def _weighted(b: ModelBuilder, value: Value, factor: Any) -> Value:
    return value if factor == 1 else b.node("Mul", value, operand(b, factor, value.dtype))


@converts("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default")
def addmm(b: ModelBuilder, bias: Value, x: Value, other: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    plain = bias.rank <= 2 and x.rank == 2 and other.rank == 2 and isinstance(beta, (int, float))
    if plain and isinstance(alpha, (int, float)) and x.dtype.is_floating_point and beta != 0 and not _empty(x):
        if not _empty(other):
            return b.node("Gemm", x, other, bias, alpha=float(alpha), beta=float(beta))
    product = _weighted(b, matmul(b, x, other), alpha)
    if beta == 0:  # then NaN in the bias does not count
        return b.node("Identity", product)
    return b.node("Add", _weighted(b, b.cast(bias, b.result.dtype), beta), product)


@converts("aten.addbmm.default")
def addbmm(b: ModelBuilder, bias: Value, x: Value, other: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """The sum of the products is one product: batches side by side."""
    if _empty(x) or _empty(other):
        product = _zeros(b)
    elif not all(isinstance(size, int) for size in (*x.shape, *other.shape)):
        raise ConversionError("a sum of products of symbolic sizes")
    else:
        rows = b.reshape(b.node("Transpose", x, perm=[1, 0, 2]), [x.shape[1], -1])
        product = b.node("MatMul", rows, b.reshape(other, [-1, other.shape[2]]))
    product = _weighted(b, product, alpha)
    if beta == 0:
        return b.node("Identity", product)
    return b.node("Add", _weighted(b, b.cast(bias, b.result.dtype), beta), product)


@converts("aten.linear.default")
def linear(b: ModelBuilder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    product = matmul(b, x, b.node("Transpose", weight, perm=[1, 0]))
    return b.node("Add", product, bias) if bias is not None else product


@converts("aten.outer.default")
def outer(b: ModelBuilder, x: Value, other: Value) -> Value:
    dtype: torch.dtype = b.result.dtype
    return b.node("Mul", b.reshape(b.cast(x, dtype), [-1, 1]), b.reshape(b.cast(other, dtype), [1, -1]))
