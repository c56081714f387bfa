"""Whole layers that torch computes by one operator: recurrent ones, and one of a transformer's encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import converts
from .norms import native_layer_norm
from .pointwise import gelu, relu

_LSTM = 2  # as oneDNN counts its kinds of layers
LONGEST = 128
"""Steps of a layer that are written one by one; runtimes' own operator turns NaN into a number."""


@converts("aten.mkldnn_rnn_layer.default")
def recurrent_layer(
    b: ModelBuilder,
    x: Value,
    of_input: Value,
    of_state: Value,
    input_bias: Value,
    state_bias: Value,
    hidden: Value,
    cell: Value,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    *rest: bool,
) -> tuple[Value, Value, Value, None]:
    """One direction of an LSTM. x: [steps, batch, features]; gates lie as input, forget, cell, output."""
    steps = x.shape[0]
    if mode != _LSTM or batch_sizes or not isinstance(steps, int) or steps > LONGEST or x.dtype is not torch.float32:
        raise ConversionError(f"a recurrent layer other than an LSTM of at most {LONGEST} steps")
    gates = b.node("MatMul", x, b.node("Transpose", of_input, perm=[1, 0]))
    if has_biases:
        gates = b.node("Add", gates, b.node("Add", input_bias, state_bias))
    turned = b.node("Transpose", of_state, perm=[1, 0])
    made: list[Value] = []
    for step in reversed(range(steps)) if reverse else range(steps):
        here = b.node("Gather", gates, b.scalar(step, torch.int64), axis=0)
        both = b.node("Add", here, b.node("MatMul", hidden, turned))
        parts = b.nodes_of("Split", 4, both, b.ints([hidden_size] * 4), axis=1)
        taken, kept, given = (_gate(b, parts[at]) for at in (0, 1, 3))
        cell = b.node("Add", b.node("Mul", kept, cell), b.node("Mul", taken, b.node("Tanh", parts[2])))
        hidden = b.node("Mul", given, b.node("Tanh", cell))
        made.append(b.node("Unsqueeze", hidden, b.ints([0])))
    ordered = made[::-1] if reverse else made
    return b.node("Concat", *ordered, axis=0), hidden, cell, None


def _gate(b: ModelBuilder, x: Value) -> Value:
    one = b.scalar(1, x.dtype)
    return b.node("Reciprocal", b.node("Add", b.node("Exp", b.node("Neg", x)), one))


@converts("aten._transformer_encoder_layer_fwd.default")
def encoder_layer(
    b: ModelBuilder,
    x: Value,
    width: int,
    heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    out_weight: Value,
    out_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    scale1: Value,
    shift1: Value,
    scale2: Value,
    shift2: Value,
    up_weight: Value,
    up_bias: Value,
    down_weight: Value,
    down_bias: Value,
    mask: Value | None = None,
    mask_type: int | None = None,
) -> Value:
    """Attention over x, then two products at each place; what goes into either is added to its result."""
    if mask is not None:
        raise ConversionError("a layer of an encoder with a mask")

    def normal(value: Value, scale: Value, shift: Value) -> Value:
        return native_layer_norm(b, value.like(x.fake), [width], scale, shift, eps)[0]

    def attended(value: Value) -> Value:
        mixed = _attention(b, value.like(x.fake), width, heads, qkv_weight, qkv_bias)
        return _product(b, mixed, out_weight, out_bias)

    def fed(value: Value) -> Value:
        inside = _product(b, value, up_weight, up_bias)
        return _product(b, gelu(b, inside) if use_gelu else relu(b, inside), down_weight, down_bias)

    read, b.read = b.read, frozenset((0,))  # of a normalization inside its value alone is read
    try:
        if norm_first:
            x = b.node("Add", x, attended(normal(x, scale1, shift1))).like(x.fake)
            return b.node("Add", x, fed(normal(x, scale2, shift2)))
        x = normal(b.node("Add", x, attended(x)), scale1, shift1).like(x.fake)
        return normal(b.node("Add", x, fed(x)), scale2, shift2)
    finally:
        b.read = read


def _product(b: ModelBuilder, x: Value, weight: Value, bias: Value) -> Value:
    return b.node("Add", b.node("MatMul", x, b.node("Transpose", weight, perm=[1, 0])), bias)


def _attention(b: ModelBuilder, x: Value, width: int, heads: int, weight: Value, bias: Value) -> Value:
    batch, length = b.size_of(x, 0), b.size_of(x, 1)
    each = width // heads
    projected = b.nodes_of("Split", 3, _product(b, x, weight, bias), b.ints([width] * 3), axis=2)

    def by_head(value: Value, order: Sequence[int]) -> Value:
        return b.node("Transpose", b.reshape(value, [batch, length, heads, each]), perm=list(order))

    query = b.node("Mul", by_head(projected[0], (0, 2, 1, 3)), b.scalar(1 / math.sqrt(each), x.dtype))
    weights = b.node("Softmax", b.node("MatMul", query, by_head(projected[1], (0, 2, 3, 1))), axis=-1)
    mixed = b.node("MatMul", weights, by_head(projected[2], (0, 2, 1, 3)))
    return b.reshape(b.node("Transpose", mixed, perm=[0, 2, 1, 3]), [batch, length, width])
