"""Incoming gradients lie in memory as autograd likes; the compiled backward reads them as it was recorded."""

from __future__ import annotations

import pytest
import torch

import core


def right_half(x):
    return x.neg().cos().chunk(2, dim=1)[1]


def columns(x):
    return (x * 3)[:, 1:3].unflatten(1, (2, 1)).transpose(1, 2)


def every_second(x):
    return x.sin()[::2, ::2]


def both(x):
    return x.exp().t()[1:], (x + 1)[:, 2].unsqueeze(1)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("program", [right_half, columns, every_second, both])
def test_gradients_of_views_with_gaps_are_eagers_for_every_symbolic_size(program, backend):
    core.reset()
    compiled = core.compile(program, backend=backend, dynamic=True, fullgraph=True)
    for rows in (4, 6, 5, 9):
        ours = torch.randn(rows, 4).requires_grad_()
        theirs = ours.detach().clone().requires_grad_()
        got, want = compiled(ours), program(theirs)
        got, want = (got, want) if isinstance(got, tuple) else ((got,), (want,))
        gradients = [torch.randn(result.shape[::-1]).permute(*range(result.dim())[::-1]) for result in want]
        torch.autograd.backward(got, gradients)
        torch.autograd.backward(want, gradients)
        torch.testing.assert_close(ours.grad, theirs.grad)
        assert [result.stride() for result in got] == [result.stride() for result in want]
    assert core.stats()["graphs"] == 1


def test_a_view_by_dimensions_that_its_base_has_lost_is_still_read():
    def fn(y):
        view = y.mT
        y.squeeze_()
        return view[None] * 2

    results = []
    for each in (fn, core.compile(fn, backend="eager")):
        leaf = torch.randn(1, 1, generator=torch.Generator().manual_seed(0)).requires_grad_()
        result = each(leaf * 1)
        result.sum().backward()
        results += [(result.detach(), leaf.grad)]
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])
