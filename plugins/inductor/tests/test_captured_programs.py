"""inductor's calls captured and replayed by core, on a device of the CPU that captures: as `mode="reduce-overhead"` has
them on a GPU."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from core_inductor import artifact
from torch import nn

import core
from core.backends.cuda_graphs import graph_device, replayed, statistics

_PLACE = Path(core.__file__).parents[1] / "tests" / "cpu" / "graph_device_on_cpu.py"
_SPEC = importlib.util.spec_from_file_location("graph_device_on_cpu", _PLACE)
assert _SPEC is not None and _SPEC.loader is not None
on_cpu = sys.modules.setdefault("graph_device_on_cpu", importlib.util.module_from_spec(_SPEC))
if not hasattr(on_cpu, "DeviceOnCpu"):
    _SPEC.loader.exec_module(on_cpu)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """The CPU as a device that captures, and inductor's calls there as launches."""
    made = on_cpu.DeviceOnCpu()
    monkeypatch.setitem(graph_device.KINDS, "cpu", lambda device: made)
    monkeypatch.setattr(replayed, "_graphs", {})
    monkeypatch.setattr(artifact, "launches_only", lambda device: True)
    core.reset()
    yield made
    core.reset()


def rows():
    return sorted((row["captures"], row["replays"], row["plain"]) for row in statistics())


def fast(fn, **given):
    return core.compile(fn, backend="inductor", mode="reduce-overhead", **given)


def test_kernels_read_the_buffers_of_the_capture():
    program = lambda x, y: (torch.softmax(x * 2, -1) + y, (x @ y.t()).relu(), x.sum(0))  # noqa: E731
    run = fast(program)
    kept = []
    for _ in range(5):
        x, y = torch.randn(6, 10), torch.randn(6, 10)
        kept.append((run(x, y), program(x, y)))
    for got, want in kept:
        assert all(torch.allclose(a, b, atol=1e-5) and a.stride() == b.stride() for a, b in zip(got, want))
    assert rows() == [(1, 4, 1)]


def test_without_the_mode_nothing_is_captured():
    run = core.compile(lambda x: x * 2, backend="inductor")
    for _ in range(3):
        run(torch.ones(3))
    assert rows() == []


def test_an_option_asks_for_captures_without_a_mode():
    run = core.compile(lambda x: x * 2 + 1, backend="inductor", options={"cudagraphs": True, "cudagraph_warmup": 0})
    for _ in range(3):
        x = torch.randn(4)
        assert torch.equal(run(x), x * 2 + 1)
    assert rows() == [(1, 3, 0)]


def test_training_keeps_what_the_backward_needs_in_the_capture():
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))

    model, twin = make(), make()
    run = fast(model)
    for _ in range(5):
        x, y = torch.randn(4, 6), torch.randn(4, 3)
        model.zero_grad(), twin.zero_grad()
        F.mse_loss(run(x), y).backward(), F.mse_loss(twin(x), y).backward()
        for a, b in zip(model.parameters(), twin.parameters()):
            assert torch.allclose(a.grad, b.grad, rtol=1e-4, atol=1e-5)
            with torch.no_grad():
                a.sub_(a.grad, alpha=0.1), b.sub_(b.grad, alpha=0.1)
    assert rows() == [(1, 4, 1)] * 2


def test_sizes_that_change_are_captured_each():
    run = fast(lambda x: torch.tanh(x).sum(-1) * x.shape[0], dynamic=True)
    for _ in range(3):
        for count in (2, 5, 9):
            x = torch.randn(count, 7)
            assert torch.allclose(run(x), torch.tanh(x).sum(-1) * count, atol=1e-5)
    assert rows() == [(3, 6, 3)]
