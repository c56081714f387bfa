"""Each operator that the backend claims, on samples of torch's own table, by TVM alone against eager."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn

import core
from core.errors import BackendError
from core.events import BackendReported, Partitioned, subscribe

pytest.importorskip("core_tvm")
samples = pytest.importorskip("core_conformance.samples")
profiles = pytest.importorskip("core_conformance.profiles")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="TVM is not installed")

# The first three read the values of a tensor for sizes, the last may draw random numbers.
OF_OTHERS = ("repeat_interleave", "narrow", "nn.functional.one_hot", "nn.functional.scaled_dot_product_attention")
NAMES = [name for name in profiles.load("inference-core").operators if name not in OF_OTHERS]
LARGEST = 4096


def flat(result):
    return [one for part in result for one in flat(part)] if isinstance(result, (tuple, list)) else [result]


def sample_of(op, dtype):
    """The last sample that is small: the first ones are of no dimensions."""
    torch.manual_seed(0)
    return [one for one in op.sample_inputs("cpu", dtype) if largest(one) <= LARGEST][-1]


def largest(sample):
    values = flat([sample.input, *sample.args, *sample.kwargs.values()])
    return max((one.numel() for one in values if isinstance(one, torch.Tensor)), default=0)


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_is_computed_by_tvm_alone_as_eager_does(name):
    op = samples.operators()[name]
    dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64
    function = samples.function_of(op)
    sample = sample_of(op, dtype)
    core.reset()
    run = core.compile(function, backend="tvm", fullgraph=True, dynamic=False, fallback=())
    with torch.no_grad():
        want = flat(function(sample.input, *sample.args, **sample.kwargs))
        got = flat(run(sample.input, *sample.args, **sample.kwargs))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)
    assert core.stats()["extern_calls"] == 0


@pytest.mark.parametrize(
    "fn, x, reason",
    [
        (lambda x: x // x, torch.tensor([1, 2]), "not 0 or -1"),
        (lambda x: torch.rand_like(x), torch.ones(2), "rand"),
        (lambda x: x.topk(2), torch.tensor([1, 1, 2]), "in no order"),
        (lambda x: x.cumsum(0), torch.ones(1000), "running fold"),
        (lambda x: x.sort(), torch.ones(2000), "more than 1024"),
    ],
)
def test_what_tvm_would_compute_otherwise_or_not_at_all_is_the_fallback_s_by_name(fn, x, reason):
    for settings, owner in (({}, "fallback"), ({"fallback": ()}, "torch's own calls")):
        heard = []
        core.reset()
        stop = subscribe(heard.append)
        torch.manual_seed(1)
        got = core.compile(fn, backend="tvm", fullgraph=True, **settings)(x)
        stop()
        torch.manual_seed(1)
        for one, other in zip(flat(got), flat(fn(x)), strict=True):
            torch.testing.assert_close(one, other)
        assert core.stats()["kernels"] == 0
        plans = [region for event in heard if isinstance(event, Partitioned) for region in event.regions]
        texts = [event.finding.text for event in heard if isinstance(event, BackendReported)]
        if owner == "fallback":
            assert any(region.fallback for region in plans) and not texts
        else:
            assert any(owner in text and reason in text for text in texts)


def test_complex_numbers_are_refused_by_their_dtype():
    core.reset()
    with pytest.raises(BackendError, match="complex64"):
        core.compile(torch.fft.fft, backend="tvm", fullgraph=True, fallback=())(torch.ones(4))


@torch.no_grad()
@pytest.mark.parametrize("padding, kernel, stride, dilation", [(1, 3, 2, 1), (1, 2, 1, 2), ((1, 0), (3, 2), 1, 1)])
@pytest.mark.parametrize("ceil", [False, True])
def test_places_of_the_greatest_in_padded_windows_lie_within_the_tensor(padding, kernel, stride, dilation, ceil):
    def fn(x):
        return nn.functional.max_pool2d(x, kernel, stride, padding, dilation, ceil, return_indices=True)

    core.reset()
    run = core.compile(fn, backend="tvm", fullgraph=True, fallback=())
    x = torch.randn(2, 2, 9, 8)
    nothing, some = torch.full_like(x, float("-inf")), x.clone()
    some[:, :, :5] = float("-inf")
    nan = x.clone()
    nan[:, :, ::3] = float("nan")
    for one in (x, nothing, some, nan):
        for got, want in zip(run(one), fn(one)):
            assert torch.equal(got.nan_to_num(7), want.nan_to_num(7))
    assert core.stats()["extern_calls"] == 0


@pytest.mark.parametrize("mask", [None, torch.ones(5, 5).tril() > 0])
def test_heads_that_share_keys_are_tvm_s(mask):
    def attend(q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)

    core.reset()
    q, k, v = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    torch.testing.assert_close(
        core.compile(attend, backend="tvm", fullgraph=True, fallback=())(q, k, v), attend(q, k, v)
    )
    assert core.stats()["extern_calls"] == 0
