"""GraphBuilder: what a call gives back, what becomes a node, what is refused, which state is put back."""

from __future__ import annotations

import operator

import graph_replay as replay
import pytest
import torch
import torch.nn.functional as F

import core
from core.errors import Unsupported, UserLine
from core.graph.builder import GraphBuilder, GraphValue

LINE = UserLine("user.py", 7, "forward")


def builder_with(*examples):
    builder = GraphBuilder()
    return builder, [builder.add_tensor_input(example, f"x{at}") for at, example in enumerate(examples)]


def test_module_replays_the_program_on_real_tensors():
    x, w = torch.randn(3, 4), torch.randn(5, 4)
    builder, (a, b) = builder_with(x, w)
    y = builder.call_function(F.linear, [a, b], {}, line=LINE)
    z = builder.call_method("relu", [y], {}, line=LINE)
    graph = builder.finish([z, y])
    found = graph.module(x, w)
    assert torch.equal(found[0], F.linear(x, w).relu())
    assert torch.equal(found[1], F.linear(x, w))
    assert graph.ops == 2


def test_nested_arguments_reach_the_node():
    x = torch.randn(3, 4)
    builder, (a,) = builder_with(x)
    joined = builder.call_function(torch.cat, [[a, a]], {"dim": 0})
    part = builder.call_function(operator.getitem, [joined, (slice(1, None, 2), Ellipsis, None)], {})
    graph = builder.finish([part])
    assert torch.equal(graph.module(x)[0], torch.cat([x, x])[1::2, ..., None])


def test_structured_results_keep_their_class_and_fields():
    x = torch.randn(3, 4)
    builder, (a,) = builder_with(x)
    result = builder.call_function(torch.max, [a, 1], {})
    assert type(result) is torch.return_types.max
    assert isinstance(result.indices, GraphValue)
    graph = builder.finish([result.values, result.indices])
    assert torch.equal(graph.module(x)[1], x.max(1).indices)


def test_questions_about_metadata_are_answered_without_a_node():
    builder, (a,) = builder_with(torch.randn(3, 4))
    assert builder.call_method("size", [a], {}) == (3, 4)
    assert builder.call_method("is_contiguous", [a], {}) is True
    assert builder.call_function(getattr, [a, "dtype"], {}) is torch.float32
    assert builder.ops == 0


def test_in_place_result_is_the_same_value_and_leaves_the_real_tensor_alone():
    x = torch.zeros(3)
    builder, (a,) = builder_with(x)
    result = builder.call_method("add_", [a, 1], {})
    assert result is a
    graph = builder.finish([a])
    assert torch.equal(x, torch.zeros(3))
    assert graph.mutated == {0}
    assert graph.module(x)[0] is x
    assert torch.equal(x, torch.ones(3))


def test_call_without_result_but_with_effect_is_a_node():
    x = torch.zeros(3)
    builder, (a,) = builder_with(x)
    assert builder.call_function(operator.setitem, [a, 0, 5.0], {}) is None
    graph = builder.finish([a])
    assert graph.ops == 1
    graph.module(x)
    assert x[0] == 5.0


def test_same_real_tensor_is_one_input():
    x = torch.zeros(3)
    builder = GraphBuilder()
    assert builder.add_tensor_input(x, "a") is builder.add_tensor_input(x, "b")
    assert len(builder.inputs) == 1


def test_real_tensor_among_the_arguments_becomes_a_lifted_input():
    x, held = torch.zeros(3), torch.ones(3)
    builder, (a,) = builder_with(x)
    y = builder.call_function(torch.add, [a, held], {})
    graph = builder.finish([y])
    assert [item.lifted for item in graph.inputs] == [False, True]
    assert graph.inputs[1].real is held
    assert torch.equal(graph.module(x, held)[0], held)


def test_parameters_keep_requires_grad_and_are_marked():
    weight = torch.nn.Parameter(torch.randn(3))
    inner = weight * 2
    builder, (p, n) = builder_with(weight, inner)
    assert p.fake.requires_grad and p.fake.is_leaf and isinstance(p.fake, torch.nn.Parameter)
    assert n.fake.requires_grad and not n.fake.is_leaf
    y = builder.call_function(torch.add, [p, n], {})
    graph = builder.finish([y])
    assert [item.is_parameter for item in graph.inputs] == [True, False]
    assert [item.is_leaf for item in graph.inputs] == [True, False]
    assert graph.needs_grad


def test_graph_without_differentiable_results_needs_no_gradient():
    builder, (p,) = builder_with(torch.nn.Parameter(torch.randn(3)))
    before = builder.set_grad_enabled(False)
    y = builder.call_function(torch.mul, [p, 2], {})
    builder.set_grad_enabled(before)
    assert not builder.finish([y, p]).needs_grad


def test_nodes_carry_the_user_line_and_the_fake():
    builder, (a,) = builder_with(torch.randn(3))
    y = builder.call_function(torch.sin, [a], {}, line=LINE)
    assert y.node.meta["user_line"] == LINE
    assert y.node.meta["fake"] is y.fake and y.node.meta["val"] is y.fake
    assert builder.finish([y]).lines[y.node.name] == LINE


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.item(),
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: x[x > 0],
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: x.data_ptr(),
        lambda x: x.untyped_storage(),
        lambda x: x.backward(),
        lambda x: x.set_(x),
        lambda x: x.resize_(1),
        lambda x: replay.call(x.builder, torch.manual_seed, (0,), {}),
        lambda x: replay.call(x.builder, bool, (x,), {}),
        lambda x: replay.call(x.builder, torch.equal, (x, x), {}),
    ],
)
def test_what_a_graph_cannot_hold_is_unsupported_with_a_remedy(program):
    with pytest.raises(Unsupported) as error:
        replay.capture(lambda x: (program(x),), [torch.ones(1)])
    assert error.value.remedy


# Older fake kernels accept indices of any type; the graph itself raises eager's error when it runs.
NEWER_TORCH = pytest.mark.skipif(
    torch.__version__ < "2.12", reason="this torch's fake kernel does not check the indices"
)


@pytest.mark.parametrize(
    "fn, args",
    [
        (torch.add, (torch.zeros(3, 4), torch.zeros(5))),
        (torch.matmul, (torch.zeros(3, 4), torch.zeros(3, 4))),
        (F.linear, (torch.zeros(3, 4), torch.zeros(5, 6))),
        (torch.cat, ([torch.zeros(3, 4), torch.zeros(5, 6)],)),
        (torch.Tensor.view, (torch.zeros(3, 4), 7)),
        (operator.getitem, (torch.zeros(3), 8)),
        (torch.Tensor.add, (torch.zeros(3), 1, 2, 3, 4)),
        (torch.Tensor.item, (torch.zeros(3),)),
        (F.conv2d, (torch.zeros(1, 3, 8, 8), torch.zeros(4, 2, 3, 3))),
        (torch.Tensor.add_, (torch.zeros(1).expand(3), 1)),
        (torch.Tensor.sum, (torch.zeros(3), 4)),
        pytest.param(F.embedding, (torch.zeros(2), torch.zeros(3, 4)), marks=NEWER_TORCH),
    ],
)
def test_errors_of_the_program_have_eagers_class_and_text(fn, args):
    with pytest.raises(Exception) as expected:
        fn(*args)
    builder = GraphBuilder()

    def lift(leaf):
        return builder.add_tensor_input(leaf, "x") if isinstance(leaf, torch.Tensor) else leaf

    values = [[lift(item) for item in arg] if isinstance(arg, list) else lift(arg) for arg in args]
    with pytest.raises(type(expected.value)) as found:
        builder.call_function(fn, values, {})
    assert str(found.value) == str(expected.value)
    assert not isinstance(found.value, Unsupported)
    assert builder.ops == 0


def test_a_failed_call_leaves_a_usable_builder(caplog):
    x = torch.zeros(3, 4)
    builder, (a,) = builder_with(x)
    with pytest.raises(RuntimeError):
        builder.call_function(torch.matmul, [a, a], {})
    assert not caplog.records
    y = builder.call_function(torch.sin, [a], {})
    graph = builder.finish([y])
    assert graph.ops == 1
    assert [str(call.op) for call in graph.record.calls] == ["aten.sin.default"]


def test_grad_mode_is_recorded_and_put_back_by_finish():
    x = torch.nn.Parameter(torch.randn(3))
    builder, (a,) = builder_with(x)
    builder.set_grad_enabled(False)
    y = builder.call_function(torch.mul, [a, 2], {})
    assert not torch.is_grad_enabled()
    graph = builder.finish([y])
    assert torch.is_grad_enabled()
    assert not graph.module(x)[0].requires_grad
    assert torch.is_grad_enabled()


def test_abort_puts_state_back():
    builder, _ = builder_with(torch.randn(3))
    builder.set_grad_enabled(False)
    builder.enter_autocast("cpu", torch.bfloat16)
    builder.abort()
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_left_open_is_closed_in_the_graph_too():
    x = torch.randn(3, 3)
    builder, (a,) = builder_with(x)
    builder.enter_autocast("cpu", torch.bfloat16)
    y = builder.call_function(torch.matmul, [a, a], {})
    graph = builder.finish([y])
    assert not torch.is_autocast_enabled("cpu")
    assert graph.module(x)[0].dtype is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_capture_draws_nothing_from_the_generator():
    before = torch.get_rng_state()
    builder, (a,) = builder_with(torch.zeros(3))
    y = builder.call_function(torch.rand_like, [a], {})
    z = builder.call_function(F.dropout, [y, 0.5, True], {})
    builder.finish([z])
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "example",
    [torch.zeros(3).to_sparse(), torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8)],
    ids=["sparse", "quantized"],
)
def test_inputs_without_plain_memory_are_unsupported(example):
    with pytest.raises(Unsupported):
        GraphBuilder().add_tensor_input(example, "x")


def test_subclass_inputs_are_unsupported():
    class Marked(torch.Tensor):
        pass

    with pytest.raises(Unsupported, match="Marked"):
        GraphBuilder().add_tensor_input(torch.zeros(3).as_subclass(Marked), "x")


def test_objects_among_the_arguments_are_held_by_the_module():
    class Scale:
        def __init__(self, by):
            self.by = by

    def scaled(x, scale):
        return x * scale.by

    x = torch.randn(3)
    builder, (a,) = builder_with(x)
    y = builder.call_function(scaled, [a, Scale(3.0)], {})
    assert torch.equal(builder.finish([y]).module(x)[0], x * 3.0)


def test_special_numbers_survive_the_generated_code():
    x = torch.randn(3)
    builder, (a,) = builder_with(x)
    y = builder.call_method("masked_fill", [a, builder.call_function(torch.gt, [a, 0], {}), float("-inf")], {})
    z = builder.call_method("nan_to_num", [y, float("nan"), float("inf")], {})
    graph = builder.finish([y, z])
    assert torch.equal(graph.module(x)[0], x.masked_fill(x > 0, float("-inf")))


def test_what_torch_fx_says_of_a_node_is_no_exception_of_the_program(monkeypatch):
    def refuses(*args, **kwargs):
        raise NotImplementedError("an argument of this kind")

    builder = GraphBuilder()
    value = builder.add_tensor_input(torch.ones(2), "x")
    monkeypatch.setattr(torch.fx.Graph, "create_node", refuses)
    with pytest.raises(Unsupported, match="an argument of this kind"):
        builder.call_function(torch.sin, [value], {})
    assert not builder.recorded_calls
    builder.abort()


def test_a_fault_of_the_graph_is_none_of_the_program(monkeypatch):
    def fn(x):
        try:
            return torch.sin(x)
        except ZeroDivisionError:
            return x

    monkeypatch.setattr(GraphBuilder, "_check_result", lambda *args: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        core.compile(fn, backend="eager")(torch.ones(2))
