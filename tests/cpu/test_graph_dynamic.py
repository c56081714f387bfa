"""Symbolic sizes: one capture serves other sizes, its guards name the sizes it is wrong for."""

from __future__ import annotations

import graph_replay as replay
import pytest
import torch
import torch.nn.functional as F

import core
from core.errors import ConstraintViolated
from core.graph.builder import GraphBuilder
from core.graph.finish import functional_graph
from core.graph.joint import joint_graph
from core.graph.symbols import DimPolicy


def value_at(inputs, place):
    value = inputs[place.input]
    if place.kind == "size":
        return value.shape[place.dim]
    if place.kind == "stride":
        return value.stride(place.dim)
    return value.storage_offset() if place.kind == "offset" else value


def failing_guards(shapes, inputs):
    values = {symbol: value_at(inputs, place) for symbol, place in shapes.bindings.items()}
    return [guard for guard in shapes.guards if not bool(guard.expr.subs(values))]


def leaf(*shape):
    return torch.randn(*shape).requires_grad_()


# name: program, inputs for a size, sizes (captured with the first), dynamic dimensions by input
CASES = {
    "linear": (
        lambda x, w: F.linear(x, w).relu().sum(0),
        lambda n: [torch.randn(n, 4), torch.randn(5, 4)],
        (3, 7, 2),
        {0: {0: True}},
    ),
    "view by size": (
        lambda x: (x.view(x.shape[0] * 2, -1), x.reshape(-1) + 1),
        lambda n: [torch.randn(n, 4)],
        (4, 7, 2),
        {0: {0: True}},
    ),
    "written": (
        lambda x, y: (x[1:].mul_(2), x.add_(y), torch.cat([x, y])),
        lambda n: [torch.randn(n, 4), torch.randn(n, 4)],
        (4, 7, 2),
        {0: {0: True}, 1: {0: True}},
    ),
    "transposed results": (
        lambda x: ((y := x * 2), y.t(), y[1:]),
        lambda n: [torch.randn(n, n + 1)],
        (3, 5),
        {0: {0: True, 1: True}},
    ),
    "padding": (lambda x: F.pad(x, (0, 1, 1, 0)), lambda n: [torch.randn(n, 4)], (4, 7, 1), {0: {0: True}}),
    "split": (
        lambda x: tuple(part + 1 for part in x.chunk(2, 0)),
        lambda n: [torch.randn(n, 3)],
        (4, 6, 5),
        {0: {0: True}},
    ),
    "norm, trained": (
        lambda x, w: F.layer_norm(F.gelu(F.linear(x, w)), (5,)).softmax(-1),
        lambda n: [leaf(n, 3, 4), leaf(5, 4)],
        (4, 7, 2),
        {0: {0: True}},
    ),
    "attention, trained": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        lambda n: [leaf(n, 2, n + 1, 4)],
        (4, 7, 2),
        {0: {0: True, 2: True}},
    ),
    "convolution, trained": (
        lambda x, w: F.max_pool2d(F.conv2d(x, w), 2),
        lambda n: [leaf(n, 3, n + 8, 8), leaf(4, 3, 3, 3)],
        (4, 7, 3),
        {0: {0: True, 2: True}},
    ),
    "batch norm, trained": (
        lambda x, mean, var: F.batch_norm(x, mean, var, training=True),
        lambda n: [leaf(n, 3, 4), torch.zeros(3), torch.ones(3)],
        (3, 4, 2),
        {0: {0: True}},
    ),
    "number": (lambda x, n: (x * n, x.new_ones(n, 2)), lambda n: [torch.randn(3, 3), n], (3, 5, 1), {}),
}


def copies(inputs):
    return [
        item.detach().clone().requires_grad_(item.requires_grad) if isinstance(item, torch.Tensor) else item
        for item in inputs
    ]


# torch 2.11 guards pooled sizes by divisibility: capture makes an entry for each remainder.
NEEDS_NEWER_TORCH = ("convolution, trained",)


@pytest.mark.parametrize("name", CASES)
def test_one_capture_serves_other_sizes(name):
    if name in NEEDS_NEWER_TORCH and torch.__version__ < "2.12":
        pytest.skip("this torch's own fake kernels do not keep the sizes symbolic")
    program, make, sizes, dynamic = CASES[name]
    captured = replay.capture(program, make(sizes[0]), dynamic=dynamic)
    graph = joint_graph(captured) if captured.needs_grad else functional_graph(captured)
    for size in sizes:
        own = make(size)
        reference = copies(own)
        assert not failing_guards(graph.shapes, own)
        expected = program(*reference)
        found = replay.run_joint(graph, own) if captured.needs_grad else replay.run_functional(graph, own)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for left, right in zip(expected, found):
            torch.testing.assert_close(right.detach(), left.detach())
        for left, right in zip(reference, own):
            assert isinstance(left, int) or torch.allclose(left.detach(), right.detach())
        if captured.needs_grad:
            torch.testing.assert_close(gradients(found, own), gradients(expected, reference))


def gradients(outputs, inputs):
    terms = [output.cos().sum() for output in outputs if output.requires_grad]
    leaves = [item for item in inputs if isinstance(item, torch.Tensor) and item.requires_grad]
    return torch.autograd.grad(sum(terms), leaves)


def test_equal_sizes_are_two_symbols_until_a_call_needs_them_equal():
    inputs = [torch.randn(3, 4), torch.randn(3, 4)]
    dynamic = {0: {0: True}, 1: {0: True}}
    apart = replay.capture(lambda x, y: (x * 2, y * 2), inputs, dynamic=dynamic)
    assert not failing_guards(apart.shapes(), [torch.randn(5, 4), torch.randn(6, 4)])
    together = replay.capture(lambda x, y: (x + y,), inputs, dynamic=dynamic)
    assert not failing_guards(together.shapes(), [torch.randn(5, 4), torch.randn(5, 4)])
    assert failing_guards(together.shapes(), [torch.randn(5, 4), torch.randn(6, 4)])


def test_a_branch_on_a_size_is_guarded():
    def program(x):
        return (x * 2 if x.builder.truth(call_lt(x)) else x * 3,)

    def call_lt(x):
        size = x.builder.call_method("size", [x.value, 0], {})
        return x.builder.call_function(lambda a, b: a < b, [size, 5], {})

    captured = replay.capture(program, [torch.randn(3, 4)], dynamic={0: {0: True}})
    assert not failing_guards(captured.shapes(), [torch.randn(4, 4)])
    assert failing_guards(captured.shapes(), [torch.randn(5, 4)])


def test_specialised_size_is_guarded_to_one_value():
    def program(x):
        size = x.builder.call_method("size", [x.value, 0], {})
        assert x.builder.specialize(size) == 3
        return (x * 2,)

    captured = replay.capture(program, [torch.randn(3, 4)], dynamic={0: {0: True}})
    assert failing_guards(captured.shapes(), [torch.randn(4, 4)])


def test_other_strides_than_the_recorded_fail_a_guard():
    captured = replay.capture(lambda x: (x * 2,), [torch.randn(3, 4)], dynamic={0: {0: True, 1: True}})
    assert not failing_guards(captured.shapes(), [torch.randn(5, 6)])
    assert failing_guards(captured.shapes(), [torch.randn(6, 5).t()])


@pytest.mark.parametrize("first", [1, 5])
def test_size_one_is_a_symbol_and_what_depends_on_it_is_guarded(first):
    captured = replay.capture(lambda x, y: (x + y,), [torch.randn(first, 4), torch.randn(4)], dynamic={0: {0: True}})
    assert captured.inputs[0].dynamic_dims == (0,)
    graph = functional_graph(captured)
    served = 0
    for size in (1, 2, 5):
        x, y = torch.randn(size, 4), torch.randn(4)
        if not failing_guards(graph.shapes, [x, y]):
            served += 1
            assert torch.equal(replay.run_functional(graph, [x, y])[0], x + y)
    assert served >= 1


def test_size_zero_stays_a_number():
    builder = GraphBuilder()
    x = builder.add_tensor_input(torch.zeros(0, 4), "x", dynamic_dims={0: True, 1: True})
    assert x.fake.shape[0] == 0 and isinstance(x.fake.shape[0], int)
    assert builder.inputs[0].dynamic_dims == (1,)


def test_ranges_become_guards():
    captured_with = GraphBuilder()
    x = captured_with.add_tensor_input(torch.randn(4, 3), "x", dynamic_dims={0: DimPolicy(low=2, high=8)})
    graph = captured_with.finish([captured_with.call_function(torch.sin, [x], {})])
    assert not failing_guards(graph.shapes(), [torch.randn(8, 3)])
    assert failing_guards(graph.shapes(), [torch.randn(9, 3)])
    assert failing_guards(graph.shapes(), [torch.randn(1, 3)])


def test_strict_dimension_that_is_fixed_by_the_code_is_an_error():
    builder = GraphBuilder()
    x = builder.add_tensor_input(torch.randn(4, 3), "x", dynamic_dims={0: DimPolicy(strict=True)})
    y = builder.call_function(torch.add, [x, torch.randn(4, 3)], {})
    with pytest.raises(ConstraintViolated, match="marked dynamic"):
        builder.finish([y])


def test_functionalisation_adds_no_guards():
    program, make, sizes, dynamic = CASES["written"]
    captured = replay.capture(program, make(sizes[0]), dynamic=dynamic)
    before = len(captured.shapes().guards)
    functional_graph(captured)
    assert len(captured.shapes().guards) == before


def test_single_values_become_symbols_when_asked_for():
    def program(x, y):
        value = replay.call(x.builder, torch.Tensor.item, (x.sum(),), {})
        return (y * value,)

    x, y = torch.arange(4), torch.randn(3)
    captured = replay.capture(program, [x, y], scalar_outputs=True)
    graph = functional_graph(captured)
    for scale in (1, 5):
        found = replay.run_functional(graph, [x * scale, y])
        torch.testing.assert_close(found[0], y * (x * scale).sum().item())


def test_results_of_data_dependent_size_when_asked_for():
    captured = replay.capture(lambda x: (x.nonzero() + 1,), [torch.tensor([0, 3, 4])], scalar_outputs=True)
    graph = functional_graph(captured)
    for values in ([0, 3, 4], [1, 2, 3], [0, 0, 7]):
        x = torch.tensor(values)
        assert torch.equal(replay.run_functional(graph, [x])[0], x.nonzero() + 1)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_result_whose_strides_alone_are_symbolic_may_get_no_gradient(backend):
    compiled = core.compile(lambda x: ((x - 1)[1], x.sum()), backend=backend)
    for size in (3, 5, 6):
        x = torch.randn(4, size).t().requires_grad_()
        compiled(x)[1].backward()
        assert torch.equal(x.grad, torch.ones(size, 4))
