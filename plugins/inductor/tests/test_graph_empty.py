"""Tensors without elements: results of eager's shapes and eager's errors."""

from __future__ import annotations

import pytest
import torch

import core

EMPTY = torch.zeros(0, 3)
EXTREMES = ("max", "min", "amax", "amin", "argmax", "argmin")
FINE = {
    "reshape": lambda t: (t * 2).reshape(-1).expand(4, 0) + 1,
    "view": lambda t: (t * 2).view(3, 0) + 1,
    "flatten": lambda t: (t * 2).flatten().unsqueeze(0).expand(2, -1) * 1,
    "the largest of each of no rows": lambda t: (t + 1).max(dim=1).values,
    "where the least is in each of no rows": lambda t: (t + 1).argmin(1, keepdim=True),
    "sum and product": lambda t: ((t + 1).sum(), (t + 1).prod(0), (t + 1).sum(1)),
    "mean": lambda t: (t + 1).mean(0),
    "softmax": lambda t: (t * 1).softmax(0) + (t * 1).softmax(1),
    "layer norm": lambda t: torch.nn.functional.layer_norm(t * 1, (3,)),
    "cat": lambda t: torch.cat([t, t * 2, torch.ones(2, 3)]) + 1,
    "product of matrices": lambda t: (t.t() @ t) + 1,
}


@pytest.mark.parametrize("name", FINE)
def test_results_without_elements(name):
    core.reset()
    wanted, found = FINE[name](EMPTY), core.compile(FINE[name], fullgraph=True)(EMPTY)
    for left, right in zip(*((each if isinstance(each, tuple) else (each,)) for each in (wanted, found))):
        torch.testing.assert_close(right, left, equal_nan=True)
        assert right.stride() == left.stride()
    assert core.stats()["graphs"] == 1


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("dims", [(0,), ()])
def test_an_extreme_of_nothing_raises_what_eager_raises(name, dims):
    def fn(t):
        return getattr(t + 1, name)(*dims)

    with pytest.raises((IndexError, RuntimeError)) as wanted:
        fn(EMPTY)
    with pytest.raises(wanted.type) as found:
        core.compile(fn)(EMPTY)
    assert str(found.value) == str(wanted.value)


def test_an_extreme_of_as_many_as_a_mask_lets_through():
    def fn(t):
        return t[t > 0].max(0).values * 2

    core.reset()
    with core.config.patch(capture_scalar_outputs=True):
        compiled = core.compile(fn)
        assert compiled(torch.tensor([1.0, -2.0, 3.0])) == 6
        assert core.stats()["breaks"] == 0
        with pytest.raises(IndexError, match="non-zero size"):
            compiled(torch.tensor([-1.0, -2.0, -3.0]))
