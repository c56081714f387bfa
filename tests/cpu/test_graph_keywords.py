"""Arguments whose names are Python's own words: no keyword of generated code, yet part of the graph."""

from __future__ import annotations

import pytest
import torch

import core


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["random_", "uniform_"])
def test_bounds_of_random_numbers_are_passed_by_keyword(backend, name, monkeypatch):
    monkeypatch.delenv("CORE_STRICT", raising=False)  # code can't call the operator `random_.from` by its name

    def fn(x, bounds):
        return getattr(x, name)(**bounds)

    bounds = {"from": -10, "to": 10}
    torch.manual_seed(0)
    expected = fn(torch.zeros(4), bounds)
    core.reset()
    before = core.stats()
    torch.manual_seed(0)
    x = torch.zeros(4)
    assert core.compile(fn, backend=backend, fullgraph=True)(x, bounds) is x
    assert torch.equal(x, expected)
    assert core.stats()["graphs"] - before["graphs"] == 1
