"""Operators of torch.ops and torch.library inside captured code."""

from __future__ import annotations

import pytest
import torch
from observed import BACKENDS, agrees

import core

LOG: list[str] = []
LIBRARY = torch.library.Library("core_tests", "FRAGMENT")


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


@torch.library.custom_op("core_tests::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    LOG.append("kernel")
    return x * factor


@scale.register_fake
def _(x, factor=2.0):
    return torch.empty_like(x)


def _setup(ctx, inputs, output):
    LOG.append("setup")
    ctx.factor = inputs[1]


scale.register_autograd(lambda ctx, grad: (grad * ctx.factor, None), setup_context=_setup)


@torch.library.custom_op("core_tests::add_", mutates_args=("x",))
def add_(x: torch.Tensor, amount: float) -> None:
    x.add_(amount)


@torch.library.custom_op("core_tests::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


LIBRARY.define("twice(Tensor x) -> Tensor")
LIBRARY.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
LIBRARY.define("both(Tensor x, int n) -> (Tensor, Tensor)")
LIBRARY.impl("both", lambda x, n: (x * n, x + n), "CompositeImplicitAutograd")
LIBRARY.define("hidden(Tensor x) -> Tensor")
LIBRARY.impl("hidden", lambda x: x * 2, "CompositeExplicitAutograd")
torch.library.register_fake("core_tests::hidden", torch.empty_like, lib=LIBRARY)
torch.library.register_autograd(
    "core_tests::hidden",
    lambda ctx, grad: grad * 2,
    setup_context=lambda ctx, inputs, output: LOG.append("hidden"),
    lib=LIBRARY,
)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_overloads_and_packets_of_aten(backend):
    def fn(x):
        y = torch.ops.aten.add.Tensor(x, x, alpha=2) + torch.ops.aten.sum.dim_IntList(x, [0])
        z = torch.ops.aten.relu(y).clone()
        torch.ops.aten.mul_.Tensor(z, 3.0)
        return z + torch.ops.aten.mm.default(x, x)

    agrees(lambda: (fn, (leaf(3, 3),)), backend)


def test_a_custom_op_is_called_by_its_definition_or_by_torch_ops(backend):
    def fn(x):
        return scale(x) + scale(x, factor=3.0) + torch.ops.core_tests.scale(x, 4.0)

    agrees(lambda: (fn, (torch.randn(3),)), backend)
    agrees(lambda: (lambda x: torch.ops.core_tests.scale.default(x, 2.0), (torch.randn(3),)), backend)


def test_python_code_of_a_gradient_formula_runs_as_often_as_in_eager(backend):
    def build():
        LOG.clear()
        return lambda x: scale(x) * scale(x, 3.0), (leaf(3),), lambda: sorted(LOG)

    agrees(build, backend)


def test_a_mutating_custom_op(backend):
    def fn(x):
        y = x * 2
        add_(y, 1.0)
        add_(x, 1.0)
        return y + x

    agrees(lambda: (fn, (torch.randn(3),)), backend)


def test_an_op_without_fake_breaks_the_graph(backend):
    agrees(lambda: (lambda x: no_fake(x * 2) + 1, (torch.randn(3),)), backend, graphs=None, breaks=1)


def test_ops_of_a_library(backend):
    def fn(x):
        first, second = torch.ops.core_tests.both(x, 3)
        return torch.ops.core_tests.twice(first) + second

    agrees(lambda: (fn, (torch.randn(3),)), backend)


def test_a_gradient_formula_out_of_reach_breaks_the_graph_where_it_is_needed(backend):
    def build(x):
        LOG.clear()
        return lambda x: torch.ops.core_tests.hidden(x) + 1, (x,), lambda: list(LOG)

    agrees(lambda: build(torch.randn(3)), backend)
    agrees(lambda: build(leaf(3)), backend, graphs=None, breaks=1)


def test_an_operator_that_writes_runs_once_for_a_forward_and_its_backward():
    calls = []

    @torch.library.custom_op("core_tests::write_square", mutates_args={"target"})
    def write_square(x: torch.Tensor, target: torch.Tensor) -> None:
        calls.append(1)
        target.copy_(x * x)

    def program(x):
        target = torch.empty_like(x)
        write_square(x.detach(), target)
        return (x.sin() * target).sum()

    x = torch.randn(5, requires_grad=True)
    core.compile(program, backend="aot_eager", fullgraph=True)(x).backward()
    assert calls == [1]
    torch.testing.assert_close(x.grad, x.detach().cos() * x.detach() ** 2)
