"""Loops over what a library makes, such as a progress bar: where Python begins and steps, and what is captured."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import core

tqdm = pytest.importorskip("tqdm").tqdm
DATA = TensorDataset(torch.arange(24.0).reshape(8, 3), torch.arange(8.0))
WEIGHT = torch.ones(3)


def test_a_loop_over_what_a_library_makes_has_one_break_to_begin_and_one_graph_for_all_turns():
    def made_in_the_loop(weight, shift):
        total = weight
        for index in tqdm(range(5), disable=True):
            total = total * shift + index
        return total + index

    def over_pairs(weight, shift):
        with torch.no_grad():
            for index, (x, _) in enumerate(bar_of(DATA)):
                weight = weight + x * index - shift
        return weight

    def over_a_loader(weight, shift):
        for x, y in DataLoader(dataset=DATA, batch_size=4):
            weight = weight + (x * shift).sum() + y.sum()
        return weight

    def bar_of(data):
        return tqdm(data, disable=True)

    for fn, breaks, graphs in ((made_in_the_loop, 2, 2), (over_pairs, 4, 1), (over_a_loader, 2, 1)):
        core.reset()
        fast = core.compile(fn, backend="eager")
        for _ in range(2):
            wanted = fn(WEIGHT, torch.ones(3))  # the first bar of a process changes its class
            assert torch.equal(fast(WEIGHT, torch.ones(3)), wanted)
        stats = core.stats()
        counts = [stats[name] for name in ("breaks", "graphs", "recompiles", "skipped")]
        assert counts == [breaks, graphs, 0, 0], fn


def test_what_a_library_raises_while_it_begins_a_loop_arrives_at_the_programs_handler():
    def fn(weight, steps):
        try:
            for index in tqdm(steps, disable=True):
                weight = weight + index
        except TypeError as error:
            return weight, str(error)
        return weight * 2, ""

    fast = core.compile(fn, backend="eager")
    for steps in (range(2), 7, [], None):
        assert repr(fast(WEIGHT, steps)) == repr(fn(WEIGHT, steps))
