"""Measured sizes of tiles: what is tried, kept and reported; results stay what they are."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch

import core
from core.events import BackendReported, subscribe

pytest.importorskip("core_tvm")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="TVM is not installed")


@pytest.fixture
def findings():
    found = []
    stop = subscribe(lambda event: found.append(event.finding.text) if isinstance(event, BackendReported) else None)
    yield found
    stop()


def compiled(fn, **options):
    core.reset()
    return core.compile(fn, backend="tvm", fullgraph=True, fallback=(), options=options)


@torch.no_grad()
def test_sizes_that_were_measured_are_kept_for_the_next_process(tmp_path, findings):
    fn = lambda x, y: torch.relu(x @ y) + 1  # noqa: E731
    x, y = torch.randn(20, 30), torch.randn(30, 36)
    for measured in (5, 0):
        run = compiled(fn, trials=5, tuning_dir=str(tmp_path))
        torch.testing.assert_close(run(x, y), fn(x, y), rtol=1e-5, atol=1e-5)
        assert findings[-1] == f"{measured} sizes of tiles were measured"
    (kept,) = tmp_path.iterdir()
    ((width, height),) = json.loads(kept.read_text()).values()
    assert (width, height) == (0, 0) or (36 % width == 0 and 20 % height == 0)
    kept.write_text("not JSON")
    compiled(fn, trials=2, tuning_dir=str(tmp_path))(x, y)
    assert findings[-1] == "2 sizes of tiles were measured"


@torch.no_grad()
def test_the_number_of_measurements_is_that_of_the_option_for_the_whole_graph(findings):
    layer = torch.nn.Conv2d(3, 6, 3, padding=1)

    def fn(x, y):
        return layer(x).mean(), (y @ y) @ y.t()

    x, y = torch.randn(1, 3, 12, 12), torch.randn(14, 14)
    for got, want in zip(compiled(fn, trials=7)(x, y), fn(x, y)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert findings == ["7 sizes of tiles were measured"]


@torch.no_grad()
def test_sizes_that_are_not_fixed_and_graphs_without_products_are_not_measured(findings):
    run = compiled(lambda x: (x * 2).exp(), trials=5)
    torch.testing.assert_close(run(torch.ones(4)), torch.ones(4).mul(2).exp())
    run = core.compile(lambda x: x @ x.t(), backend="tvm", dynamic=True, fallback=(), options={"trials": 5})
    x = torch.randn(5, 3)
    torch.testing.assert_close(run(x), x @ x.t(), rtol=1e-5, atol=1e-5)
    assert set(findings) == {"0 sizes of tiles were measured"}
