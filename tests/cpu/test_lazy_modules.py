"""Lazy modules: the first compiled call initializes them as eager does, and one graph serves from then on."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
from torch.nn.modules.lazy import LazyModuleMixin

import core


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.LazyLinear(4)
        self.norm = torch.nn.LazyBatchNorm1d()
        self.last = torch.nn.LazyLinear(1)

    def forward(self, x):
        return self.last(self.norm(torch.relu(self.first(x))))


class Parts(NamedTuple):
    x: dict
    y: torch.Tensor


class Scaled(LazyModuleMixin, torch.nn.Module):
    def initialize_parameters(self, parts):
        with torch.no_grad():
            self.scale = torch.nn.Parameter(torch.full(parts.x["a"][0].shape, float(parts.y)))

    def forward(self, parts):
        return sum(parts.x["a"]) * self.scale


class FromData(LazyModuleMixin, torch.nn.Module):
    def initialize_parameters(self, x):
        with torch.no_grad():
            self.shift = torch.nn.Parameter(x.mean(0))

    def forward(self, x):
        return x - self.shift


class BehindAnother(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = FromData()

    def forward(self, x):
        return self.inner(x * 2)


def check(make, x, *, graphs=1, fullgraph=True):
    core.reset()
    torch.manual_seed(0)
    expected = make()(x)
    torch.manual_seed(0)
    module = make()
    before = core.stats()
    compiled = core.compile(module, backend="eager", fullgraph=fullgraph)
    assert torch.equal(compiled(x), expected)
    compiled(x)
    after = core.stats()
    assert after["graphs"] - before["graphs"] == graphs
    return module, compiled


def test_lazy_modules_become_plain_ones_in_the_first_call_and_one_graph_is_captured():
    module, _ = check(Stack, torch.randn(5, 3))
    assert [type(part).__name__ for part in module.children()] == ["Linear", "BatchNorm1d", "Linear"]
    assert module.last.weight.shape == (1, 4)


def test_initialization_may_look_at_the_values_of_the_programs_input():
    parts = Parts({"a": [torch.ones(2), torch.ones(2)]}, torch.tensor(0.5))
    module, _ = check(Scaled, parts)
    assert module.scale.tolist() == [0.5, 0.5]
    check(FromData, torch.randn(4, 3))


def test_initialization_from_values_that_only_a_run_gives_is_left_to_python():
    module, _ = check(BehindAnother, torch.randn(4, 3), graphs=3, fullgraph=False)
    assert type(module.inner.shift) is torch.nn.Parameter
    with pytest.raises(core.errors.Unsupported, match="lazy module"):
        core.compile(BehindAnother(), backend="eager", fullgraph=True)(torch.randn(4, 3))


def test_random_numbers_drawn_before_keep_their_place():
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.LazyLinear(2)

        def forward(self, x):
            return self.layer(x + torch.randn(3))

    check(Noisy, torch.randn(5, 3), graphs=4, fullgraph=False)


def test_a_compiled_lazy_module_changes_class_with_its_original():
    module, compiled = check(lambda: torch.nn.LazyLinear(2), torch.randn(5, 3))
    assert type(module) is torch.nn.Linear
    assert isinstance(compiled, torch.nn.Linear) and not isinstance(compiled, LazyModuleMixin)
    assert compiled.weight is module.weight
    assert torch.equal(copy.deepcopy(compiled)(torch.ones(1, 3)), module(torch.ones(1, 3)))
