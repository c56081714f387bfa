"""Compiled code below autograd: in the kernel of a custom operator, where no result has a history."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import core

BACKENDS = ("eager", "aot_eager", "inductor")


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_function_in_the_kernel_of_an_operator(backend):
    def function(x):
        return x * 2, x, x.t(), x[0]

    fast = core.compile(function, backend=backend, fullgraph=True)
    seen = []

    def facts(x, found, same, turned, part):
        views = [(y.requires_grad, y.grad_fn is None, y._base is None, y.data_ptr()) for y in (turned, part)]
        return found.requires_grad, same is x, views

    @torch.library.custom_op(f"core_tests::compiled_inside_{backend}", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        found = fast(x)
        seen.append((facts(x, *found), facts(x, *function(x))))
        return found[0]

    double.register_autograd(lambda ctx, gradient: gradient * 2)
    for x in (leaf(2, 3), leaf(2, 3).exp(), torch.randn(2, 3)):
        y = double(x)
        assert torch.equal(y, x * 2)
        ours, eager = seen.pop()
        assert ours == eager
        if x.requires_grad:
            assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.full((2, 3), 2.0))
    assert core.stats()["breaks"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
def test_cross_entropy_of_a_projection_in_chunks(backend, reduction):
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=4, allow_retain_graph=True)
    target = torch.randint(0, 10, (16,))

    def loss(x, weight):
        return F.linear_cross_entropy(x, weight, target, reduction=reduction, options=options) * 2

    def gradients(function, x, weight):
        result = function(x, weight)
        return result.detach(), *torch.autograd.grad(result.sum(), (x, weight))

    fast = core.compile(loss, backend=backend)
    for _ in range(2):
        values = leaf(16, 8), leaf(10, 8)
        torch.testing.assert_close(gradients(fast, *values), gradients(loss, *values))
