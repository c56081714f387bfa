"""The backend ofi: results, frozen weights, what is left to the fallback, what is said about it."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import core
from core.events import ArtifactBuilt, BackendReported

pytest.importorskip("core_ofi")
pytestmark = pytest.mark.skipif(not hasattr(torch.jit, "optimize_for_inference"), reason="TorchScript is gone")

NAN = float("nan")


def compiled(fn, **options):
    core.reset()
    return core.compile(fn, backend="ofi", **options)


def close(got, want, tolerance=1e-5):
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)


def built_by_ofi(heard):
    return [event for event in heard if isinstance(event, ArtifactBuilt) and event.backend == "ofi"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.out = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.second(x) + x)
        x = F.max_pool2d(x, 2)
        return F.gelu(self.out(F.adaptive_avg_pool2d(x, 1).flatten(1))), x.permute(0, 2, 3, 1)


@pytest.mark.parametrize("freeze", [False, True])
@torch.no_grad()
def test_a_network_is_one_program_whose_weights_change(heard, freeze):
    torch.manual_seed(0)
    model = Net().eval()
    run = compiled(model, freeze=freeze, fullgraph_backend=True)
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        for got, want in zip(run(x), model(x)):
            close(got, want)
            assert got.stride() == want.stride()
        model.second.weight.add_(0.1)
        model.norm.running_mean.add_(0.1)
    built = built_by_ofi(heard)
    assert len(built) == (3 if freeze else 1)


@pytest.mark.parametrize("freeze", [False, True])
@torch.no_grad()
def test_nan_infinities_and_signs_of_zero_are_those_of_eager(freeze):
    layer = nn.Conv2d(1, 1, 1, bias=False)
    layer.weight.fill_(1.0)
    functions = (F.relu, torch.sigmoid, F.hardtanh, F.hardswish, torch.tanh, F.gelu, lambda x: F.max_pool2d(x, 2))
    run = compiled(lambda x: [fn(layer(x)) for fn in functions], freeze=freeze)
    x = torch.tensor([NAN, -1.0, 2.0, float("inf")]).view(1, 1, 2, 2)
    for got, fn in zip(run(x), functions):
        close(got, fn(layer(x)))
    x = torch.tensor([0.0, -0.0, -1.0, NAN])
    got, want = compiled(F.relu)(x), F.relu(x)
    close(got, want)
    assert torch.equal(got[:3].signbit(), want[:3].signbit())


@torch.no_grad()
def test_each_size_is_a_program_of_its_own(heard):
    run = compiled(lambda x: (x @ x.t()).softmax(-1))
    for rows in (2, 5, 7, 0):
        x = torch.randn(rows, 3)
        close(run(x), (x @ x.t()).softmax(-1))
    assert len(built_by_ofi(heard)) == 4


@torch.no_grad()
def test_layouts_and_results_that_are_views():
    fn = lambda x, y: (x.t() * y, x.t(), (x + y.t()).t()[1:])  # noqa: E731
    x, y = torch.randn(3, 4), torch.randn(4, 3)
    for one, other in ((x, y), (y.t(), y), (x, x.t())):
        for got, want in zip(compiled(fn)(one, other), fn(one, other)):
            close(got, want)
            assert got.stride() == want.stride()


@torch.no_grad()
def test_inputs_that_are_written_and_slices_that_are_assigned():
    def fn(x):
        x.mul_(2)
        y = x.clone()
        y[1:3] = 7
        return y * True

    mine = torch.randn(5)
    other = mine.clone()
    close(compiled(fn)(mine), fn(other))
    close(mine, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@torch.no_grad()
def test_other_dtypes_and_random_numbers_are_left_to_the_fallback(heard, dtype):
    x = torch.randn(4, dtype=dtype)
    close(compiled(torch.exp)(x), x.exp(), 1e-2)
    assert not built_by_ofi(heard)
    torch.manual_seed(3)
    got = compiled(lambda x: torch.rand_like(x) + 1)(torch.ones(3))
    torch.manual_seed(3)
    close(got, torch.rand(3) + 1)


def test_training_is_left_to_the_fallback_with_the_reason(heard):
    layer = nn.Linear(3, 3)
    compiled(layer)(torch.ones(2, 3)).sum().backward()
    close(layer.weight.grad, torch.full((3, 3), 2.0))
    assert not built_by_ofi(heard)
    with pytest.raises(core.CoreError, match="is for inference"):
        compiled(nn.Linear(3, 3), fullgraph_backend=True)(torch.ones(2, 3))


@torch.no_grad()
def test_the_deprecation_is_a_finding_and_no_warning(heard):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(compiled(torch.exp)(torch.zeros(3)), torch.ones(3))
    texts = [event.finding.text for event in heard if isinstance(event, BackendReported)]
    assert texts == ["TorchScript is deprecated in PyTorch, and with it optimize_for_inference"]


def test_without_torchscript_it_says_so(monkeypatch):
    monkeypatch.delattr(torch.jit, "optimize_for_inference")
    from core_ofi.plugin import core_backend

    probe = core_backend().probe("cpu")
    assert not probe.ok and "has no torch.jit.optimize_for_inference" in probe.reason


@torch.no_grad()
def test_a_warm_call_enters_no_file_of_the_plugin():
    run = compiled(torch.exp)
    run(torch.zeros(3))
    run(torch.zeros(3))
    entered = []
    sys.setprofile(lambda frame, *_: entered.append(frame.f_code.co_filename))
    run(torch.zeros(3))
    sys.setprofile(None)
    assert any("ofi call" in name for name in entered)
    assert not any("core_ofi" in name for name in entered)


@torch.no_grad()
def test_weights_are_inputs_where_an_operator_has_no_form_beside_frozen_ones(heard):
    layer = nn.Conv2d(3, 4, 3)
    run = compiled(lambda x: F.gelu(layer(x), approximate="tanh"), freeze=True)
    x = torch.randn(2, 3, 5, 5)
    close(run(x), F.gelu(layer(x), approximate="tanh"))
    texts = [event.finding.text for event in heard if isinstance(event, BackendReported)]
    assert any(text.startswith("weights are read on each call: ") for text in texts)
    assert len(built_by_ofi(heard)) == 1


@pytest.mark.parametrize("freeze", [False, True])
@torch.no_grad()
def test_errors_are_those_of_eager_and_the_program_goes_on(freeze):
    table = nn.Embedding(5, 3)
    run = compiled(lambda places: table(places) * 2, freeze=freeze)
    places = torch.tensor([1, 4])
    close(run(places), table(places) * 2)
    with pytest.raises(IndexError, match="out of range"):
        run(torch.tensor([1, 5]))
    close(run(places), table(places) * 2)


@torch.no_grad()
def test_without_a_fallback_a_graph_with_other_operators_is_run_as_it_is_and_says_so(heard):
    def fn(x, i):
        noise = torch.bernoulli(torch.full_like(x, 0.5))
        return (x.double() @ x.double().t()).float().exp() + noise.sum(), (i // 2, x.to(torch.bfloat16))

    x, i = torch.randn(3, 4), torch.arange(5)
    run = compiled(fn, fallback=(), fullgraph_backend=True)
    for _ in range(2):
        torch.manual_seed(2)
        got = run(x, i)
        torch.manual_seed(2)
        want = fn(x, i)
        close(got[0], want[0])
        assert torch.equal(got[1][0], want[1][0]) and torch.equal(got[1][1], want[1][1])
    assert len(built_by_ofi(heard)) == 1 and core.stats()["kernels"] == 0
    texts = [event.finding.text for event in heard if isinstance(event, BackendReported)]
    assert any(text.startswith("not traced, as torch's own calls: ") for text in texts)
