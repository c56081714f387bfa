"""Numbers and sizes that depend on the data: bound where they are computed, one program for all of them."""

from __future__ import annotations

import pytest
import torch

import core

PROGRAMS = {
    "a number as a factor": lambda x: x * x.sum().item(),
    "an int made of a float": lambda x: torch.zeros(int(x.sum())) + 1,
    "indices of nonzero elements": lambda x: x.nonzero() * 2,
    "a boolean mask": lambda x: x[x > 0] * 2,
    "masked_select": lambda x: torch.masked_select(x, x > 0).sin(),
    "unique": lambda x: torch.unique(x) + 1,
    "repeat_interleave": lambda x: x[:2].repeat_interleave(x.long().flatten()[:2], dim=0) + 1,
    "two sizes": lambda x: (x[x > 0] * 2).sum() + x.nonzero().float().mean(),
    "a size as a number": lambda x: x.nonzero().size(0) * x,
    "a tensor of that size": lambda x: x.new_zeros(x.nonzero().shape[0], 2) + 1,
    "an integer added": lambda x: x.long()[0, 0].item() + x,
}
INPUTS = (torch.ones(2, 3), torch.tensor([[1.0, 2.0, 0.0], [2.0, 0.0, 1.0]]), torch.tensor([[2.0, 2, 2], [2, 2, 2]]))


@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=PROGRAMS)
def test_sizes_and_numbers_of_the_data_are_captured_in_one_graph(fn):
    core.reset()
    compiled = core.compile(fn, backend="inductor", capture_scalar_outputs=True)
    for x in INPUTS:
        torch.testing.assert_close(compiled(x), fn(x))
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (1, 0, 0)


@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=PROGRAMS)
def test_without_the_option_the_graph_breaks(fn):
    core.reset()
    compiled = core.compile(fn, backend="inductor")
    for x in INPUTS:
        torch.testing.assert_close(compiled(x), fn(x))
    assert core.stats()["breaks"] >= 1
