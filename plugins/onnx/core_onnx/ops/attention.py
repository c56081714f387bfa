"""Scaled dot-product attention."""

from __future__ import annotations

import math

import numpy
import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts


@converts("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    b: ModelBuilder,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value | None]:
    """softmax(q k^T * scale + mask) v; rows that are masked as a whole give 0. The second result: log of the sums."""
    if dropout_p:
        raise ConversionError("attention with dropout draws random numbers")
    key, value = _for_each_head(b, key, query), _for_each_head(b, value, query)
    scores = _scores(b, query, key, is_causal, attn_mask, _factor(query, scale))
    weights = b.node("Softmax", scores, axis=-1)
    hidden = None
    if attn_mask is not None:
        top = b.node("ReduceMax", scores, b.ints([-1]), keepdims=1)
        hidden = b.node("Equal", top, b.scalar(-math.inf, query.dtype))
        weights = b.node("Where", hidden, b.scalar(0, query.dtype), weights)
    sums = None
    if b.wanted(1):
        wide = b.cast(scores, torch.float32) if query.dtype in (torch.float16, torch.bfloat16) else scores
        sums = b.node("ReduceLogSumExp", wide, b.ints([-1]), keepdims=0)
        if hidden is not None:  # of a row that is masked as a whole eager keeps 0
            sums = b.node("Where", b.node("Squeeze", hidden, b.ints([-1])), b.scalar(0, sums.dtype), sums)
    return b.node("MatMul", weights, value), sums


def _for_each_head(b: ModelBuilder, shared: Value, query: Value) -> Value:
    """Keys or values for each head of the query, where several in a row share one."""
    have, want = _heads(shared), _heads(query)
    if have == want:
        return shared
    places = b.ints([head * have // want for head in range(want)])
    batch, _, *rest = shared.fake.shape
    return b.node("Gather", shared, places, axis=1).like(shared.fake.new_empty([batch, want, *rest]))


def _for_shared(b: ModelBuilder, gradient: Value, shared: Value, query: Value) -> Value:
    """The gradient of what heads share: the sum of theirs."""
    have, want = _heads(shared), _heads(query)
    if have == want:
        return gradient
    length, width = (b.size_of(shared, axis) for axis in (2, 3))
    apart = b.reshape(gradient, [b.size_of(shared, 0), have, want // have, length, width])
    return b.node("ReduceSum", apart, b.ints([2]), keepdims=0)


def _heads(value: Value) -> int:
    heads = value.shape[1]
    if not isinstance(heads, int):
        raise ConversionError("attention over a symbolic number of heads")
    return heads


def _factor(query: Value, scale: float | None) -> float:
    if scale is not None:
        return scale
    if not isinstance(query.shape[-1], int):
        raise ConversionError("attention over heads of symbolic width")
    return 1 / math.sqrt(query.shape[-1])


def _scores(
    b: ModelBuilder, query: Value, key: Value, is_causal: bool, attn_mask: Value | None, factor: float
) -> Value:
    """What the softmax is taken of."""
    scores = b.node("MatMul", b.node("Mul", query, b.scalar(factor, query.dtype)), _transposed(b, key))
    if is_causal:
        scores = b.node("Where", _causal(b, query, key), scores, b.scalar(-math.inf, query.dtype))
    if attn_mask is None:
        return scores
    if attn_mask.dtype is torch.bool:
        return b.node("Where", attn_mask, scores, b.scalar(-math.inf, query.dtype))
    return b.node("Add", scores, b.cast(attn_mask, query.dtype))


@converts("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    b: ModelBuilder,
    gradient: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    sums: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value, Value]:
    """The gradients of query, key and value; the weights are made again from the scores and the forward's sums."""
    if dropout_p:
        raise ConversionError("attention with dropout draws random numbers")
    factor = _factor(query, scale)
    shared = key, value
    key, value = _for_each_head(b, key, query), _for_each_head(b, value, query)
    scores = _scores(b, query, key, is_causal, attn_mask, factor)
    kept = b.cast(b.node("Unsqueeze", sums, b.ints([-1])), query.dtype)
    weights = b.node("Exp", b.node("Sub", scores, kept))
    of_value = b.node("MatMul", _transposed(b, weights, query.rank), gradient)
    of_weights = b.node("MatMul", gradient, _transposed(b, value))
    total = b.node("ReduceSum", b.node("Mul", gradient, out), b.ints([-1]), keepdims=1)
    of_scores = b.node("Mul", b.node("Mul", weights, b.node("Sub", of_weights, total)), b.scalar(factor, query.dtype))
    of_key = b.node("MatMul", _transposed(b, of_scores, query.rank), query)
    of_both = (_for_shared(b, one, source, query) for one, source in zip((of_key, of_value), shared))
    return b.node("MatMul", of_scores, key), *of_both


@converts(
    "aten._scaled_dot_product_efficient_attention.default",
    "aten._scaled_dot_product_cudnn_attention.default",
)
def cuda_attention(
    b: ModelBuilder,
    query: Value,
    key: Value,
    value: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Value | None, ...]:
    """The same on CUDA, its result alone: the sums and the state of the generator are for a backward."""
    return _on_cuda(b, query, key, value, attn_bias, dropout_p, is_causal, scale), *(None,) * 8


@converts("aten._scaled_dot_product_flash_attention.default")
def cuda_flash_attention(
    b: ModelBuilder,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Value | None, ...]:
    """The same on CUDA, its result alone."""
    return _on_cuda(b, query, key, value, None, dropout_p, is_causal, scale), *(None,) * 8


def _on_cuda(
    b: ModelBuilder,
    query: Value,
    key: Value,
    value: Value,
    bias: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Value:
    if any(b.wanted(place) for place in range(1, 9)):
        raise ConversionError("what attention on CUDA keeps for its backward has no form in ONNX")
    if bias is not None:
        raise ConversionError("attention on CUDA with a bias: what a row that is masked as a whole gives is not known")
    return flash_attention(b, query, key, value, dropout_p, is_causal, scale=scale)[0]


def _transposed(b: ModelBuilder, matrices: Value, rank: int = 0) -> Value:
    """The last two dimensions swapped. rank: of a value in between, whose own is not known."""
    order = list(range(rank or matrices.rank))
    order[-1], order[-2] = order[-2], order[-1]
    return b.node("Transpose", matrices, perm=order)


def _causal(b: ModelBuilder, query: Value, key: Value) -> Value:
    """True where a key is not after its query."""
    rows, columns = query.shape[-2], key.shape[-2]
    start, step = b.scalar(0, torch.int64), b.scalar(1, torch.int64)
    if isinstance(rows, int) and isinstance(columns, int):
        return b.initializer(numpy.tri(rows, columns, dtype=bool).tobytes(), torch.bool, (rows, columns))
    down = b.node("Range", start, b.size_of(query, query.rank - 2), step)
    across = b.node("Range", start, b.size_of(key, key.rank - 2), step)
    return b.node("LessOrEqual", b.node("Unsqueeze", across, b.ints([0])), b.node("Unsqueeze", down, b.ints([1])))
