"""Values without their repetitions, along a dimension that is counted from either end."""

from __future__ import annotations

import pytest
import torch

import core


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "shape, dim", [((6,), -1), ((6,), 0), ((4, 3), -1), ((4, 3), -2), ((4, 3), 1), ((5, 2, 3), -2)]
)
def test_repetitions_are_left_out_along_any_dimension_in_one_graph(backend, shape, dim):
    def program(x):
        values, places, counts = torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim)
        return values * 2, places, counts

    core.reset()
    run = core.compile(program, backend=backend, fullgraph=True)
    before = core.stats()["graphs"]
    for seed in (0, 1, 2):
        x = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)).float()
        for got, want in zip(run(x), program(x), strict=True):
            assert torch.equal(got, want) and got.dtype is want.dtype
    assert core.stats()["graphs"] == before + 1


def test_a_dimension_that_there_is_not_raises_what_eager_raises():
    x = torch.zeros(3, 2)
    for dim in (2, -3):
        run = core.compile(lambda x, dim=dim: torch.unique_consecutive(x, dim=dim), backend="eager")
        with pytest.raises(IndexError):
            torch.unique_consecutive(x, dim=dim)
        with pytest.raises(IndexError):
            run(x)
