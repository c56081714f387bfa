"""Writes through boolean masks with gradients; operators that no text can call."""

from __future__ import annotations

import pytest
import torch

import core


def by_mask(x, mask, y):
    x = x.clone()
    x[mask] = y
    return x * 2


def by_mask_of_columns(x, mask, y):
    x = x.clone()
    x[:, mask] = y
    return x * 2


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "1")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("fn, shape", [(by_mask, (4,)), (by_mask_of_columns, (3, 4))])
def test_what_a_mask_lets_through_gets_its_gradient(backend, fn, shape):
    core.reset()
    fast = core.compile(fn, backend=backend)
    mask = torch.tensor([True, False, True, False])
    for _ in range(2):
        x, y = torch.randn(shape), torch.randn(2)
        ours = [x.clone().requires_grad_(), y.clone().requires_grad_()]
        theirs = [x.clone().requires_grad_(), y.clone().requires_grad_()]
        result, expected = fast(ours[0], mask, ours[1]), fn(theirs[0], mask, theirs[1])
        assert torch.equal(result, expected)
        result.square().sum().backward()
        expected.square().sum().backward()
        for left, right in zip(ours, theirs, strict=True):
            torch.testing.assert_close(left.grad, right.grad)
    assert (core.stats()["graphs"], core.stats()["recompiles"]) == (1, 0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_random_integers_between_two_numbers_are_those_of_eager(backend):
    def fn(x):
        return x.random_(**{"from": -10, "to": 10}) + 1

    core.reset()
    fast = core.compile(fn, backend=backend, fullgraph=True)
    ours, theirs = torch.zeros(2, 3), torch.zeros(2, 3)
    torch.manual_seed(3)
    expected = fn(theirs)
    torch.manual_seed(3)
    assert torch.equal(fast(ours), expected)
    assert torch.equal(ours, theirs)
    assert core.stats()["graphs"] == 1
