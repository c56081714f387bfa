"""Assigning `.data`: a tensor takes over the memory of another, and remains the object that it is."""

from __future__ import annotations

import pytest
import torch

import core

BACKENDS = ("eager", "aot_eager")


@pytest.fixture(params=BACKENDS)
def compiled(request):
    def run(fn, *args, fullgraph=True, graphs=1):
        core.reset()
        before = core.stats()
        result = core.compile(fn, backend=request.param, fullgraph=fullgraph)(*args)
        assert core.stats()["graphs"] - before["graphs"] == graphs
        return result

    return run


def test_a_tensor_shares_the_memory_it_takes_over(compiled):
    def fn(x, y):
        x.data = y
        x.add_(1)
        return x, x.sum()

    x, y = torch.zeros(3), torch.ones(3)
    result, total = compiled(fn, x, y)
    assert result is x and x.data_ptr() == y.data_ptr()
    assert x.tolist() == y.tolist() == [2.0] * 3 and total == 6


def test_two_assignments_take_effect_in_their_order(compiled):
    def fn(x, y):
        x.data = y
        y.data = torch.zeros([0])
        return x

    x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    result = compiled(fn, x, y)
    assert result is x and x.is_leaf and x.requires_grad
    assert x.tolist() == [2.0] * 3 and y.shape == (0,)
    x.backward(torch.ones(3))
    assert x.grad.tolist() == [1.0] * 3


def test_a_step_of_plain_descent_through_data(compiled):
    def fn(p):
        p.data = p.data - 0.1 * p.grad

    p = torch.nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    compiled(fn, p)
    assert torch.allclose(p.detach(), torch.full((3,), 0.9)) and p.is_leaf


def test_a_tensor_made_inside_takes_over_memory_too(compiled):
    def fn(x):
        y = x + 1
        y.data = x * 2
        return y, y.shape

    y, shape = compiled(fn, torch.ones(3))
    assert y.tolist() == [2.0] * 3 and shape == (3,)


def test_a_leaf_used_after_the_assignment_breaks_the_graph_before_that_use(compiled):
    def fn(x, y):
        x.data = y
        return x * y.detach()

    x, y = torch.ones(3, requires_grad=True), torch.full((3,), 2.0)
    result = compiled(fn, x, y, fullgraph=False)
    result.sum().backward()
    assert result.tolist() == [4.0] * 3 and x.grad.tolist() == [2.0] * 3


def test_data_that_a_backward_may_need_is_assigned_by_python(compiled):
    def fn(x, y):
        z = x.sin()
        x.data = y
        return z

    def ends(call):
        x = torch.ones(3, requires_grad=True)
        z = call(x, torch.full((3,), 2.0))
        z.sum().backward()
        return z.tolist(), x.tolist(), x.grad.tolist()

    assert ends(lambda *args: compiled(fn, *args, fullgraph=False)) == ends(fn)


BACKWARD_NEEDS_IT = ("eager", "aot_eager", "inductor")


@pytest.mark.parametrize("backend", BACKWARD_NEEDS_IT)
def test_a_write_through_data_is_not_counted_and_the_backward_takes_what_was_written(backend):
    def fn(x):
        y = x.exp()
        y.data.add_(1)
        return y, y.data, x.data

    core.reset()
    step = core.compile(fn, backend=backend, fullgraph=True)
    for subject in (fn, step):
        x = torch.zeros(3, requires_grad=True)
        y, data, of_input = subject(x)
        of_input.add_(1)
        data.mul_(2)
        assert (x._version, y._version, y.tolist()) == (0, 0, [4.0] * 3)
        assert not (data.requires_grad or data._is_view() or of_input._is_view())
        y.sum().backward()
        assert x.grad.tolist() == [4.0] * 3
    assert core.stats()["graphs"] == 1
