"""Operators that ONNX lacks or defines otherwise, against eager: NaN, infinities, signs of zero, integers."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import core

pytest.importorskip("onnxruntime")
pytest.importorskip("core_onnxrt")

SPECIAL = torch.tensor([1.5, math.nan, -0.0, 0.0, -2.0, math.inf, -math.inf, 1e-8, -1e-30, 0.3, 30.0, -90.0])
OTHER = torch.tensor([0.5, 1.0, 0.0, -0.0, math.nan, -math.inf, math.inf, -1.0, 2.0, -0.3, 1e30, -0.0])
IMAGE = torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(0))
HOLED = IMAGE.masked_fill(IMAGE > 1.2, math.nan).masked_fill(IMAGE < -0.8, -math.inf)
WHOLE = torch.tensor([[3, -7, 2**40 + 1], [-(2**63), 2**63 - 1, 3]])
PLACES = torch.tensor([[2, 0, 1], [1, 1, 0]])
MASK = torch.tensor([[True, False, True], [False, False, True]])
PAIRS = [(x, y) for x in (0.0, -0.0, 1.0, -2.0, math.inf, -math.inf, math.nan) for y in (0.0, -0.0, 3.0, -1.0)]
ONE, TWO = (torch.tensor(column) for column in zip(*PAIRS, *[(y, x) for x, y in PAIRS], (math.inf, math.inf)))


def written_behind(x):
    y = x.clone()
    y[:, torch.tensor([2, -3])] = torch.arange(2)
    return y


torch.manual_seed(0)
LSTM = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True)
PLAIN_LSTM = torch.nn.LSTM(3, 4, bias=False, batch_first=True)
ENCODER = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
ENCODER_BEFORE = torch.nn.TransformerEncoderLayer(8, 4, 16, activation="gelu", norm_first=True, batch_first=True).eval()
QUERY, KEY, ROWS = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(9, 4)
TEXT = torch.randn(2, 5, 8)
UNKNOWN = torch.randn(5, 2, 3).index_put((torch.tensor(1), torch.tensor(0), torch.tensor(2)), torch.tensor(math.nan))


def shared(mask, **how):
    return lambda q, k: F.scaled_dot_product_attention(q, k, k + 1, mask, enable_gqa=True, **how)


def bags(mode, x, places, starts):
    return F.embedding_bag(places, x, starts, mode=mode)


CASES = {
    "heads_that_share_keys": (shared(None, is_causal=True), QUERY, KEY),
    "heads_that_share_keys_masked": (shared(torch.ones(5, 5).tril() > 0), QUERY, KEY),
    "lstm": (lambda x: LSTM(x)[0], torch.randn(5, 2, 3)),
    "lstm_states": (lambda x, h: PLAIN_LSTM(x, (h, h + 1))[1], torch.randn(2, 7, 3), torch.randn(1, 2, 4)),
    "lstm_of_nan": (lambda x: LSTM(x)[0], UNKNOWN),
    "encoder_layer": (ENCODER, TEXT),
    "encoder_layer_norm_first": (ENCODER_BEFORE, TEXT),
    "encoder_layer_of_nan": (ENCODER, TEXT.index_fill(0, torch.tensor(1), math.nan)),
    "bags_summed": (partial(bags, "sum"), ROWS, torch.tensor([3, 1, 8, 1]), torch.tensor([0, 1, 1])),
    "bags_averaged": (
        partial(bags, "mean"),
        ROWS,
        torch.tensor([3, 1, 8, 1], dtype=torch.int32),
        torch.tensor([0, 3]).int(),
    ),
    "places_below": (lambda x: torch.tril_indices(3, 5, -1) + x, torch.tensor(0)),
    "places_above": (lambda x: torch.triu_indices(3, 5, 1) + x, torch.tensor(0)),
    "bicubic": (lambda x: F.interpolate(x, (5, 11), mode="bicubic"), IMAGE),
    "bicubic_by_corners": (lambda x: F.interpolate(x, (13, 3), mode="bicubic", align_corners=True), IMAGE),
    "bicubic_by_factors": (lambda x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="bicubic"), IMAGE),
    "sort": (lambda x: x.sort(), SPECIAL),
    "sort_down": (lambda x: x.sort(descending=True, stable=True), SPECIAL),
    "sort_narrow": (lambda x: x.sort(), SPECIAL.bfloat16()),
    "sort_without_places": (lambda x: x.sort()[0], torch.arange(30) % 7),
    "sort_stably": (lambda x: x.sort(stable=True), torch.arange(30).half() % 7),
    "sort_integers": (lambda x: x.sort(0), WHOLE),
    "sort_bools": (lambda x: x.sort(stable=True), MASK),
    "sort_a_number": (lambda x: x.sort(), torch.tensor(2.0)),
    "sort_nothing": (lambda x: x.sort(), torch.ones(2, 0)),
    "argsort": (lambda x: x.argsort(1, descending=True), WHOLE),
    "topk": (lambda x: x.topk(3), OTHER),
    "topk_least": (lambda x: x.topk(2, 0, largest=False), torch.randn(4, 3)),
    "fmax": (torch.fmax, SPECIAL, OTHER),
    "fmin": (torch.fmin, SPECIAL, OTHER),
    "fmax_integers": (torch.fmax, WHOLE, WHOLE.flip(0)),
    "log2": (torch.log2, SPECIAL),
    "log10": (torch.log10, SPECIAL),
    "log2_of_powers": (lambda x: torch.log2(x).floor(), torch.tensor([2.0**n for n in range(-100, 100)])),
    "expm1": (torch.expm1, SPECIAL),
    "expm1_double": (torch.expm1, SPECIAL.double()),
    "expm1_of_integers": (torch.expm1, torch.tensor([0, 1, -5])),
    "elu": (lambda x: F.elu(x, 1.5), SPECIAL),
    "selu": (F.selu, SPECIAL),
    "celu": (lambda x: F.celu(x, 0.7), SPECIAL),
    "mish": (F.mish, SPECIAL),
    "softplus": (lambda x: F.softplus(x, 2, 10), SPECIAL),
    "hypot": (torch.hypot, SPECIAL, OTHER),
    "hypot_large": (torch.hypot, torch.tensor([1e30, 1e-30]), torch.tensor([1e30, 1e-30])),
    "atan2": (torch.atan2, ONE, TWO),
    "erfc": (torch.erfc, torch.cat([SPECIAL, torch.linspace(-5, 10, 101)])),
    "and": (torch.bitwise_and, WHOLE, WHOLE.flip(1)),
    "or": (torch.bitwise_or, WHOLE.to(torch.int8), WHOLE.to(torch.int8).flip(0)),
    "xor": (lambda x: x ^ 5, WHOLE.to(torch.int32)),
    "not": (torch.bitwise_not, WHOLE.to(torch.uint8)),
    "cumprod": (lambda x: x.cumprod(0), SPECIAL),
    "cumprod_integers": (lambda x: x.cumprod(1), WHOLE),
    "cumprod_narrow_integers": (lambda x: x.cumprod(1), WHOLE.to(torch.int32)),
    "norm": (lambda x: torch.linalg.vector_norm(x, 2, 1), WHOLE.float()),
    "norm_overflow": (lambda x: torch.linalg.vector_norm(x), torch.tensor([1e25, 1.0])),
    "norm_of_one": (lambda x: torch.linalg.vector_norm(x, 3, 1), torch.tensor([[1e25], [-2.0]])),
    "norm_nan": (lambda x: torch.linalg.vector_norm(x, math.inf), SPECIAL),
    "norm_zero": (lambda x: torch.linalg.vector_norm(x, 0), SPECIAL),
    "norm_any": (lambda x: torch.linalg.vector_norm(x, 2.5, (1, 2)), IMAGE),
    "norm_narrow": (lambda x: torch.linalg.vector_norm(x, 1, 1), IMAGE.bfloat16()),
    "var_of_one": (lambda x: x.var(1), torch.ones(3, 1)),
    "var_of_few": (lambda x: x.var(1, correction=5), IMAGE[0, 0, :, :3]),
    "std_of_a_number": (lambda x: x.std(), torch.tensor(2.0)),
    "gather_a_number": (lambda x: x.gather(0, torch.tensor(2)), OTHER),
    "gather_from_a_number": (lambda x: x.gather(0, torch.tensor([0, 0])), torch.tensor(2.0)),
    "scatter_multiplied": (lambda x: x.scatter(1, PLACES, x + 1, reduce="multiply"), WHOLE),
    "scatter_added_narrow": (lambda x: x.scatter_add(1, PLACES, x), IMAGE[0, 0, :2, :3].bfloat16()),
    "scatter_product": (lambda x: x.scatter_reduce(1, PLACES, x, "prod"), IMAGE[0, 0, :2, :3]),
    "scatter_to_a_number": (lambda x: x.scatter(0, torch.tensor(0), 3.0), torch.tensor(2.0)),
    "masked_scatter": (lambda x: x.masked_scatter(MASK, torch.arange(6.0)), -torch.ones(2, 3)),
    "masked_write": (lambda x: x.index_put((MASK,), torch.tensor(-0.0)), torch.ones(2, 3)),
    "masked_rows": (lambda x: x.index_put((MASK[:, 0],), torch.arange(3)[None]), WHOLE),
    "masked_sum": (lambda x: x.index_put((MASK,), torch.tensor([2]), accumulate=True), WHOLE),
    "index_put_behind": (written_behind, WHOLE),
    "index_add": (lambda x: x.index_add(1, torch.tensor([0, 0, 2]), x), WHOLE),
    "index_add_narrow": (lambda x: x.index_add(1, torch.tensor([0, 0]), x[:, :2]), IMAGE.bfloat16()),
    "index_fill": (lambda x: x.index_fill(1, torch.tensor([0, 2]), 7), WHOLE),
    "average_rounded_up": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), IMAGE),
    "average_without_padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), IMAGE),
    "average_over": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), IMAGE[0]),
    "average_double": (lambda x: F.avg_pool1d(x, 3, 2, 1), IMAGE[0].double()),
    "adaptive": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), IMAGE),
    "adaptive_line": (lambda x: F.adaptive_avg_pool1d(x, 4), IMAGE[0]),
    "places_of_extremes": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), HOLED),
    "places_of_spread_extremes": (lambda x: F.max_pool2d(x, 2, 1, 0, 2, True, return_indices=True), HOLED[0]),
    "places_on_a_line": (lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), HOLED[0]),
    "bilinear": (lambda x: F.interpolate(x, (5, 11), mode="bilinear"), IMAGE),
    "bilinear_by_corners": (lambda x: F.interpolate(x, (13, 3), mode="bilinear", align_corners=True), IMAGE),
    "bilinear_by_factors": (lambda x: F.interpolate(x, scale_factor=(1.7, 0.6), mode="bilinear"), IMAGE),
    "transposed_far": (
        lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 2, 3), torch.ones(2), 2, 1, (1, 2), 1, 3),
        IMAGE,
    ),
    "addbmm": (lambda x: torch.addbmm(x[0, 0, :, 0], x[0], x[1].mT, beta=0.5, alpha=2), IMAGE),
    "group_norm_of_nothing": (lambda x: F.group_norm(x, 2), torch.ones(0, 4, 3)),
    "instance_norm": (lambda x: F.instance_norm(x, weight=torch.tensor([1.0, -2.0, 3.0]), eps=1e-3), IMAGE),
    "layer_norm_double": (lambda x: F.layer_norm(x, (6,)), IMAGE.double()),
    "batch_norm_double": (
        lambda x: F.batch_norm(x, torch.ones(3).double(), torch.ones(3).double() / 3),
        IMAGE.double(),
    ),
}


def flat(result):
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", CASES)
def test_an_operator_is_computed_by_the_runtime_alone_as_eager_does(name):
    fn, *args = CASES[name]
    core.reset()
    run = core.compile(fn, backend="onnxrt", fullgraph=True, dynamic=False, fallback=())
    with torch.no_grad():
        for _ in range(2):
            got, want = flat(run(*args)), flat(fn(*args))
    for one, other in zip(got, want, strict=True):
        tolerance = {torch.float64: 1e-14, torch.bfloat16: 1e-2}.get(other.dtype, 2e-6)
        smallest = 4e-6 if other.dim() > 3 else 1e-6 if other.dim() > 1 else 1e-40  # sums cancel
        torch.testing.assert_close(one, other, rtol=tolerance, atol=smallest, equal_nan=True)
        if other.is_floating_point():
            zeros = other == 0
            assert torch.equal(one.signbit()[zeros], other.signbit()[zeros])
    stats = core.stats()
    assert stats["kernels"] > 0 and stats["extern_calls"] == 0 and stats["graphs"] == 1


@pytest.mark.parametrize(
    "fn, x",
    [
        (lambda x: torch.log2(x), torch.ones(2, dtype=torch.float64)),
        (lambda x: x.sort(), torch.ones(2, dtype=torch.float64)),
        (lambda x: x.topk(2, sorted=False), torch.ones(3)),
        (lambda x: x.sort(), torch.ones(17, dtype=torch.bfloat16)),
        (lambda x: x.topk(2), torch.tensor([1, 1, 2])),
        (lambda x: x.masked_scatter(MASK, torch.ones(4)), torch.ones(2, 3)),
        (lambda x: x.scatter_reduce(1, PLACES, x, "amax"), torch.ones(2, 3)),
        (lambda x: F.embedding_bag(torch.tensor([1, 1, 0]), x, torch.tensor([0, 2]), mode="max"), ROWS),
        (lambda x: torch.nn.functional.interpolate(x, (2, 2), mode="bicubic", antialias=True), IMAGE),
    ],
)
def test_what_the_parts_would_compute_otherwise_is_left_to_the_fallback(fn, x):
    core.reset()
    run = core.compile(fn, backend="onnxrt", fullgraph=True, fallback=("eager",))
    for got, want in zip(flat(run(x)), flat(fn(x)), strict=True):
        assert torch.equal(got, want)
    assert core.stats()["kernels"] == 0 and core.stats()["extern_calls"] > 0
