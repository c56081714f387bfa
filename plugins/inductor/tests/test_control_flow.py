"""Higher-order operators in a functional graph: called as they are, between compiled kernels."""

from __future__ import annotations

import pytest
import torch
import torch._higher_order_ops as higher_order

import core


def branches(x, w):
    y = x * 2 + 1
    return torch.cond(y.sum() > 0, lambda y: (y @ w).sin(), lambda y: (y @ w).cos() * y, (y,)) * 3


def scanned(x, w):
    carry, rows = higher_order.scan(lambda c, row: ((c @ w + row).tanh(), (c * 2).clone()), x * 2, x[:, None] * w)
    return carry.sum() + rows * 3


@pytest.mark.parametrize("fn", [branches, scanned])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_results_and_gradients_are_those_of_eager(fn, sign):
    x, w = (torch.rand(4, 4) * sign).requires_grad_(), torch.rand(4, 4, requires_grad=True)
    core.reset()
    got = core.compile(fn, backend="inductor", fullgraph=True)(x, w)
    want = fn(x, w)
    torch.testing.assert_close(got, want)
    ours = torch.autograd.grad(got.square().sum(), (x, w))
    theirs = torch.autograd.grad(want.square().sum(), (x, w))
    torch.testing.assert_close(ours, theirs)
    assert core.stats()["graphs"] == 1 and core.stats()["kernels"] >= 2
