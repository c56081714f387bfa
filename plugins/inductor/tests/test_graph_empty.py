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


@pytest.mark.parametrize("dynamic", [False, True])
def test_turned_views_without_elements_have_an_end_before_their_start(dynamic):
    def fn(t):
        turned = t.narrow(1, 0, 4).flip(0)
        turned.double().sum().backward(retain_graph=True)
        return turned, turned[1:].flip(-2)

    core.reset()
    left, right = (torch.randn(0, 6, requires_grad=True) for _ in range(2))
    for wanted, found in zip(fn(left), core.compile(fn, dynamic=dynamic)(right)):
        assert found.shape == wanted.shape
    assert right.grad.shape == left.grad.shape
    assert core.stats()["graphs"] == 1


def test_a_view_without_elements_that_is_written_has_memory_with_gaps_as_eager():
    def fn(t):
        t[...] = torch.ones_like(t)
        return t.diagonal(1), t.data.mul_(t)

    core.reset()
    wanted, found = (run(torch.randn(3, 1, 2)[..., 1][:rows]) for run in (fn, core.compile(fn)) for rows in (0,))
    assert [each.stride() for each in found] == [each.stride() for each in wanted]
    assert core.stats()["graphs"] == 1
