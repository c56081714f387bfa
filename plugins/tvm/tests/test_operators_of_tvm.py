"""Each operator that the backend claims, on samples of torch's own table, by TVM alone against eager."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import core
from core.errors import BackendError

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
        (lambda x: torch.fft.fft(x), torch.ones(4), "complex64"),
        (lambda x: x.sort(), torch.ones(2000), "more than 1024"),
    ],
)
def test_what_tvm_would_compute_otherwise_or_not_at_all_is_refused_by_name(fn, x, reason):
    core.reset()
    with pytest.raises(BackendError, match=reason):
        core.compile(fn, backend="tvm", fullgraph=True, fallback=())(x)
