"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, choose, computing, larger, library, number
from ..kernel import Kernel, Value
from ..registry import Refused, converts
from .matrix import product
from .reductions import level


@converts("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    k: Kernel,
    query: Value,
    key: Value,
    value: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, Value | None]:
    """softmax(q k^T scale + mask) v; rows that are masked as a whole give 0. The second result: log of the sums."""
    if dropout_p:
        raise Refused("attention with dropout draws random numbers")
    if scale is None:
        if not isinstance(query.shape[-1], int):
            raise Refused("attention over heads of symbolic width")
        scale = 1 / math.sqrt(query.shape[-1])
    kind, wide = computing(query.dtype), torch.float64
    heads, shared = query.shape[1], key.shape[1]
    if heads != shared and not (isinstance(heads, int) and isinstance(shared, int)):
        raise Refused("attention over a symbolic number of heads")
    together = 1 if heads == shared else heads // shared  # heads in a row that share keys and values

    def source(head: Any) -> Any:
        return head if together == 1 else tirx.floordiv(head, together)

    sizes = k.sizes([query.shape[0], heads, query.shape[2], key.shape[2]])
    raw = product(
        k,
        sizes,
        k.size(query.shape[3]),
        lambda at, s: query.at((at[0], at[1], at[2], s)),
        lambda at, s: key.at((at[0], source(at[1]), at[3], s)),
        query.dtype,
    )
    factor = scale

    def score(*at: Any) -> Num:
        found = raw.at(at) * factor
        if is_causal:
            found = choose(Num(tirx.LE(at[3], at[2]), torch.bool), found, number(-math.inf, kind))
        if attn_mask is not None:
            if attn_mask.dtype is torch.bool:
                found = choose(k.broadcast(attn_mask, at, torch.bool), found, number(-math.inf, kind))
            else:
                found = found + k.broadcast(attn_mask, at, kind)
        return found

    scores = k.make(sizes, kind, score, "scores")
    rows = sizes[:3]
    top = k.reduce(rows, sizes[3:], lambda at, s: scores.at((*at, *s)), larger, -math.inf, kind, "top")

    def power(at: Any, s: Any) -> Num:
        return library("exp", scores.at((*at, *s)).to(wide) - level(top, at))

    sums = k.sum(rows, sizes[3:], power, wide)

    def weight(*at: Any) -> Num:
        total = sums.at(at[:3])
        share = power(at[:3], at[3:]) / total
        return choose(total.equals(0), number(0, wide), share)

    weights = k.make(sizes, kind, weight, "weights")
    mixed = product(
        k,
        k.sizes(k.result[0].shape),
        sizes[3],
        lambda at, s: weights.at((at[0], at[1], at[2], s)),
        lambda at, s: value.at((at[0], source(at[1]), s, at[3])),
        query.dtype,
    )
    logs = None
    if k.wanted(1):

        def log(*at: Any) -> Num:  # of a row that is masked as a whole eager keeps 0
            total = sums.at(at)
            return choose(total.equals(0), number(0, wide), library("log", total) + level(top, at))

        logs = k.compute(log, 1)
    return k.compute(lambda *at: mixed.at(at), 0), logs
