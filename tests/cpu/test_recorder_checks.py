"""The recorder: what it writes down, what makes it refuse, and that it never raises beneath the engine."""

from __future__ import annotations

import graph_replay as replay
import pytest
import torch
import torch.nn.functional as F

from core.errors import RecorderRefused, Unsupported
from core.graph.builder import GraphBuilder
from core.graph.finish import functional_graph
from core.graph.joint import joint_graph


def calls(program, *inputs):
    return [str(call.op) for call in replay.capture(program, list(inputs)).record.calls]


def test_composites_arrive_taken_apart_and_whole_kernels_whole():
    assert calls(lambda x: (F.layer_norm(x, (4,)).softmax(-1),), torch.zeros(3, 4)) == [
        "aten.native_layer_norm.default",
        "aten._softmax.default",
    ]


def test_each_call_knows_its_torch_level_node_and_user_line():
    captured = replay.capture(lambda x: (F.linear(x, x).relu(),), [torch.zeros(3, 3)])
    assert {call.node.name for call in captured.record.calls} == {"linear", "relu"}
    assert all(call.line == replay.LINE for call in captured.record.calls)


def test_device_queries_are_not_recorded():
    assert not any("prim" in name for name in calls(lambda x: (x + 1,), torch.zeros(3)))


def test_composites_are_taken_apart_in_inference_mode_too():
    with torch.inference_mode():
        names = calls(lambda x, w: (F.linear(x, w),), torch.zeros(3, 4), torch.zeros(5, 4))
    assert names == ["aten.t.default", "aten.mm.default"]


def test_decomposition_table_is_applied_while_recording():
    def relu(x):
        return torch.ops.aten.clamp_min.default(x, 0)

    builder = GraphBuilder(decompositions={torch.ops.aten.relu.default: relu})
    x = builder.add_tensor_input(torch.randn(3), "x")
    graph = builder.finish([builder.call_function(torch.relu, [x], {})])
    assert [str(call.op) for call in graph.record.calls] == ["aten.clamp_min.default"]


def test_decomposition_may_decline():
    builder = GraphBuilder(decompositions={torch.ops.aten.relu.default: lambda x: NotImplemented})
    x = builder.add_tensor_input(torch.randn(3), "x")
    graph = builder.finish([builder.call_function(torch.relu, [x], {})])
    assert [str(call.op) for call in graph.record.calls] == ["aten.relu.default"]


def test_capture_without_a_record_has_no_functional_graph():
    builder = GraphBuilder(record=False)
    x = builder.add_tensor_input(torch.zeros(3), "x")
    graph = builder.finish([builder.call_function(torch.sin, [x], {})])
    assert graph.record is None
    with pytest.raises(RecorderRefused):
        functional_graph(graph)


def test_foreign_tensor_inside_a_function_is_unsupported_not_lost():
    held = torch.ones(3, requires_grad=True)

    def program(x):
        return (replay.call(x.builder, lambda t: t * held, (x,), {}),)

    with pytest.raises(Unsupported):
        replay.capture(program, [torch.zeros(3)])


def test_changed_data_of_an_input_is_refused():
    def program(x):
        def give(t):
            t.data = torch.zeros(2)
            return t + 1

        return (replay.call(x.builder, give, (x,), {}),)

    captured = replay.capture(program, [torch.zeros(3)])
    with pytest.raises(RecorderRefused, match="input 0"):
        functional_graph(captured)


def test_backward_inside_the_program_is_refused():
    def program(x):
        def step(t):
            (t * 2).sum().backward()
            return t + 1

        return (replay.call(x.builder, step, (x,), {}),)

    captured = replay.capture(program, [torch.zeros(3, requires_grad=True)])
    with pytest.raises(RecorderRefused, match="grad"):
        joint_graph(captured)


def test_seeding_inside_a_function_is_refused_and_undone():
    before = torch.get_rng_state()

    def program(x):
        def seeded(t):
            torch.manual_seed(5)
            return t + 1

        return (replay.call(x.builder, seeded, (x,), {}),)

    captured = replay.capture(program, [torch.zeros(3)])
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(RecorderRefused, match="generator"):
        functional_graph(captured)


def test_requires_grad_given_to_an_input_is_refused():
    captured = replay.capture(lambda x: (x.requires_grad_(True) * 2,), [torch.zeros(3)])
    with pytest.raises(RecorderRefused, match="requires_grad"):
        joint_graph(captured)


def test_error_inside_a_backward_is_a_refusal_not_a_crash():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("no gradient today")

    def program(x):
        return (replay.call(x.builder, Fails.apply, (x,), {}),)

    captured = replay.capture(program, [torch.zeros(3, requires_grad=True)])
    with pytest.raises(RecorderRefused, match="no gradient today"):
        joint_graph(captured)


def test_random_draws_in_a_backward_are_refused():
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.rand_like(grad)

    def program(x):
        return (replay.call(x.builder, Noisy.apply, (x,), {}),)

    captured = replay.capture(program, [torch.zeros(3, requires_grad=True)])
    with pytest.raises(RecorderRefused, match="random"):
        joint_graph(captured)


def test_capture_leaves_versions_gradients_and_tensors_untouched():
    weight = torch.nn.Parameter(torch.ones(3))
    buffer = torch.zeros(3)
    captured = replay.capture(lambda w, b: (b.add_(1) * w,), [weight, buffer])
    joint_graph(captured)
    assert weight._version == 0 and buffer._version == 0
    assert weight.grad is None
    assert torch.equal(buffer, torch.zeros(3))


def test_recurrent_layers_train_without_the_library_kernel():
    layer = torch.nn.LSTM(4, 4)
    names = [name for name in dict(layer.named_parameters())]

    def program(x, h, c, *weights):
        if isinstance(x, torch.Tensor):
            return torch.lstm(x, (h, c), list(weights), True, 1, 0.0, True, False, False)[0]
        args = (x, (h, c), list(weights), True, 1, 0.0, True, False, False)
        return replay.call(x.builder, torch.lstm, args, {})[0]

    inputs = [torch.randn(5, 2, 4), torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)]
    inputs += [getattr(layer, name) for name in names]
    graph = joint_graph(replay.capture(program, inputs))
    assert not any("mkldnn" in str(node.target) for node in graph.module.graph.nodes)
    found = replay.run_joint(graph, inputs)[0]
    expected = program(*inputs)
    torch.testing.assert_close(found, expected)
    weights = inputs[3:]
    for left, right in zip(
        torch.autograd.grad(found.sum(), weights), torch.autograd.grad(expected.sum(), weights), strict=True
    ):
        torch.testing.assert_close(left, right)
