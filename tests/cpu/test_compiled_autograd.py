"""torch's compiled autograd, whose graphs core compiles: the backward that the engine would run, as a function."""

from __future__ import annotations

import functools

import pytest
import torch

import core

compiled_autograd = pytest.importorskip("torch._dynamo.compiled_autograd")


def under(step, backend):
    """step() with the graphs of compiled autograd compiled whole."""
    with compiled_autograd._enable(functools.partial(core.compile, backend=backend, fullgraph=True)):
        step()


def collected(graphs):
    def backend(graph_module, inputs):
        graphs.append(graph_module)
        return graph_module.forward

    return backend


def test_a_backward_is_one_graph_and_gives_the_gradients_of_eager():
    graphs = []
    x, y = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)

    def step():
        (x.sin() * y).sum().backward()

    step()
    expected = x.grad.clone(), y.grad.clone()
    x.grad = y.grad = None
    under(step, collected(graphs))
    assert torch.equal(x.grad, expected[0]) and torch.equal(y.grad, expected[1])
    assert len(graphs) == 1


def test_gradients_add_up_over_two_backwards_of_one_graph():
    graphs = []
    x = torch.ones(3, requires_grad=True)

    def step():
        (x * 2).sum().backward()
        (x * 2).sum().backward()

    under(step, collected(graphs))
    assert x.grad.tolist() == [4.0, 4.0, 4.0]


def test_hooks_that_a_captured_forward_registers_run_inside_the_graph():
    graphs = []

    def scaled(gradient, *, by):
        return gradient * by

    def forward(x):
        y = x.mul(2)
        y.register_hook(functools.partial(scaled, by=3))
        y.register_hook(functools.partial(scaled, by=5))
        return y.mul(7)

    x = torch.ones(4, requires_grad=True)
    call = core.compile(forward, backend="eager", fullgraph=True)
    under(lambda: call(x).backward(torch.ones(4)), collected(graphs))
    assert x.grad.tolist() == [210.0] * 4
    assert len(graphs) == 1


def test_hooks_on_leaves_run_inside_the_graph():
    graphs = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda gradient: gradient + 10)
    under(lambda: (x * 3).sum().backward(), collected(graphs))
    assert x.grad.tolist() == [13.0, 13.0]
    assert len(graphs) == 1
