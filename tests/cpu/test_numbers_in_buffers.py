"""Whole numbers that a module keeps in buffers: known, and guarded, where a decision of the function needs them."""

from __future__ import annotations

import pytest
import torch
from compare import same

import core


class Padded(torch.nn.Module):
    """Pads so that a window of a step goes through, as numbers in its buffers say."""

    def __init__(self, window: int = 3, step: int = 2):
        super().__init__()
        self.register_buffer("window", torch.tensor(window), persistent=False)
        self.step = torch.nn.Buffer(torch.tensor(step), persistent=False)
        self.calls = torch.nn.Buffer(torch.tensor(0))

    def forward(self, x):
        self.calls += 1
        left = self.window - self.step
        frames = torch.ceil((x.shape[-1] - self.window + left) / self.step + 1).to(torch.int64) - 1
        right = frames * self.step + self.window - left - x.shape[-1]
        if x.shape[-1] <= max(left, right):
            x = x * 2
        return torch.nn.functional.pad(x, (left, right), mode="reflect") + self.calls


@pytest.mark.parametrize("length", [8, 9])
def test_decisions_and_sizes_by_numbers_in_buffers_are_one_graph(length):
    x = torch.randn(1, length)
    eager, compiled = Padded(), core.compile(Padded(), backend="eager", fullgraph=True)
    core.reset()
    for _ in range(3):
        assert same(compiled(x), eager(x))
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (1, 0, 0)


def test_another_number_in_the_buffer_is_another_entry():
    x = torch.randn(1, 8)
    eager, inner = Padded(), Padded()
    compiled = core.compile(inner, backend="eager")
    core.reset()
    assert same(compiled(x), eager(x))
    for module in (eager, inner):
        module.window.fill_(5)
    assert same(compiled(x), eager(x)) and same(compiled(x), eager(x))


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = torch.nn.Buffer(torch.tensor(0))

    def forward(self, x):
        self.seen += 1
        if self.seen > 3:
            return x * 2
        return x


def test_a_number_that_changes_with_each_call_is_left_to_python():
    x = torch.ones(3)
    eager, inner = Counting(), Counting()
    core.reset()
    compiled = core.compile(inner, backend="eager")
    for _ in range(12):
        assert same(compiled(x), eager(x)) and same(inner.seen, eager.seen)
    graphs = core.stats()["graphs"]
    for _ in range(12):
        assert same(compiled(x), eager(x)) and same(inner.seen, eager.seen)
    assert core.stats()["graphs"] == graphs


def test_item_and_int_of_a_buffer():
    class Sized(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.count = torch.nn.Buffer(torch.tensor(2))
            self.flag = torch.nn.Buffer(torch.tensor(True))

        def forward(self, x):
            x = x[: int(self.count)] * self.count.item()
            return x.sum() if self.flag else x.view(self.count, -1)

    eager, inner = Sized(), Sized()
    core.reset()
    compiled = core.compile(inner, backend="eager", fullgraph=True)
    x = torch.randn(4, 3)
    assert same(compiled(x), eager(x))
    for module in (eager, inner):
        module.flag.fill_(False)
    assert same(compiled(x), eager(x)) and core.stats()["breaks"] == 0
    for module in (eager, inner):
        module.count = torch.nn.Buffer(torch.tensor(3))
    assert same(compiled(x), eager(x))


def test_buffers_that_no_decision_needs_are_not_part_of_the_entry():
    norm = torch.nn.BatchNorm1d(3).train()
    core.reset()
    compiled = core.compile(norm, backend="eager")
    for _ in range(3):
        compiled(torch.randn(4, 3))
    assert core.stats()["graphs"] == 1


def test_a_number_computed_from_the_data_is_not_taken_from_a_buffer():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.least = torch.nn.Buffer(torch.tensor(2))

        def forward(self, x):
            return x + 1 if x.long().sum() > self.least else x - 1

    eager, inner = Mixed(), Mixed()
    core.reset()
    compiled = core.compile(inner, backend="eager")
    for x in (torch.ones(3), torch.zeros(3), torch.ones(3)):
        assert same(compiled(x), eager(x))
    assert core.stats()["breaks"] == 1
