"""The rules of functionalisation, one by one: aliasing, inverse views, twins, strides, what is refused."""

from __future__ import annotations

import graph_replay as replay
import pytest
import torch
import torch.nn.functional as F

import core
from core.errors import RecorderRefused
from core.graph.clone_mutate import clone_mutate
from core.graph.finish import functional_graph
from core.graph.outputs import InputItself, Slot, ViewOfInput, ViewOfSlot

aten = torch.ops.aten


def check(program, *inputs, **options):
    """Trace, run the functional graph, compare values, mutation and geometry with eager; returns the graph."""
    own, reference = [item.clone() for item in inputs], [item.clone() for item in inputs]
    captured = replay.capture(program, own, **options)
    graph = functional_graph(captured)
    verify(graph)
    found = replay.run_functional(graph, replay.actual_inputs(captured, own))
    expected = program(*reference)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for left, right in zip(expected, found):
        torch.testing.assert_close(right, left, rtol=0, atol=0)
        assert [step for step, size in zip(right.stride(), right.shape) if size != 1] == [
            step for step, size in zip(left.stride(), left.shape) if size != 1
        ]
    for left, right in zip(reference, own):
        assert torch.equal(left, right)
    return graph


def verify(graph):
    """No node of a functional graph writes to an argument, and each says truthfully which strides it has."""
    for node in graph.module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        assert schema is None or not schema.is_mutable, node.target


def targets(graph):
    return [node.target for node in graph.module.graph.nodes if node.op == "call_function"]


def x34():
    return torch.arange(12.0).view(3, 4)


WRITES_THROUGH_VIEWS = {
    "slice": lambda x: x[1:],
    "strided slice": lambda x: x[::2],
    "select": lambda x: x[1],
    "inner select": lambda x: x[:, 1],
    "diagonal": lambda x: x.diagonal(),
    "split": lambda x: x.split(2, 1)[1],
    "split with sizes": lambda x: x.split([1, 3], 1)[1],
    "unbind": lambda x: x.unbind(0)[2],
    "chunk": lambda x: x.chunk(2, 0)[0],
    "view": lambda x: x.view(2, 6),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1),
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "unfold": lambda x: x.unfold(1, 2, 2),
    "as_strided": lambda x: x.as_strided((2, 2), (5, 2), 1),
    "as_strided of a view": lambda x: x[1:].as_strided((2, 2), (4, 1), 4),
    "view of another type": lambda x: x.view(torch.int32),
    "complex": lambda x: torch.view_as_complex(x.view(3, 2, 2)),
    "movedim of a slice": lambda x: x[1:, 1:].movedim(0, 1),
    "expand that repeats nothing": lambda x: x.expand(3, 4),
}


@pytest.mark.parametrize("name", WRITES_THROUGH_VIEWS)
def test_write_through_a_view_reaches_the_input(name):
    view = WRITES_THROUGH_VIEWS[name]
    graph = check(lambda x: (view(x).add_(view(x)), x * 1), x34())
    assert [write.input for write in graph.epilogue.write_backs] == [0]


@pytest.mark.parametrize("name", WRITES_THROUGH_VIEWS)
def test_write_to_the_base_is_seen_by_earlier_views(name):
    view = WRITES_THROUGH_VIEWS[name]

    def program(x):
        base = x * 1
        early = view(base)
        base.mul_(3)
        return early.clone(), base

    check(program, x34())


TWINS = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "type kept": lambda x, y: x.mul_(y.double().sum()),
    "copy_ broadcast": lambda x, y: x.copy_(y[0]),
    "copy_ cast": lambda x, y: x.copy_(y.double()),
    "fill_": lambda x, y: x.fill_(2),
    "zero_": lambda x, y: x.zero_(),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 3, -1.0),
    "index_add_": lambda x, y: x.index_add_(0, torch.tensor([0, 2]), y[:2]),
    "scatter_": lambda x, y: x.scatter_(1, torch.zeros(3, 1, dtype=torch.long), 9.0),
    "lerp_": lambda x, y: x.lerp_(y, 0.5),
    "clamp_": lambda x, y: x.clamp_(2, 5),
    "addmm_": lambda x, y: x.addmm_(y, torch.eye(4)),
    "out": lambda x, y: torch.add(x, y, out=x),
    "setitem by mask": lambda x, y: x.__setitem__(y > 5, 0.0) or x,
    "setitem by index": lambda x, y: x.__setitem__((torch.tensor([0, 1]), torch.tensor([2, 3])), 7.0) or x,
    "foreach": lambda x, y: (torch._foreach_mul_([x, y], 2.0), x)[1],
    "relu_": lambda x, y: F.relu_(x),
}


@pytest.mark.parametrize("name", TWINS)
def test_in_place_operator_becomes_its_functional_twin(name):
    graph = check(lambda x, y: (TWINS[name](x, y),), x34(), x34() + 1)
    assert clone_mutate not in targets(graph)
    assert isinstance(graph.epilogue.outputs[0], InputItself)


def test_two_out_arguments_take_both_results():
    def program(x):
        values, indices = x * 0, (x * 0).long()
        torch.sort(x, 1, descending=True, out=(values, indices))
        return values, indices

    check(program, x34())


def test_operator_without_twin_runs_on_private_clones():
    with torch.library._scoped_library("core_graph_test", "FRAGMENT") as library:
        library.define("bump(Tensor(a!) x, Tensor y) -> Tensor")

        def bump(x, y):
            x.add_(y)
            return x * 2

        library.impl("bump", bump, "CPU")
        library.impl("bump", lambda x, y: torch.empty_like(x), "Meta")
        operator = torch.ops.core_graph_test.bump

        def program(x, y):
            if isinstance(x, torch.Tensor):
                return operator(x, y), x[0] + 1
            return replay.call(x.builder, operator, (x, y), {}), x[0] + 1

        graph = check(program, x34(), x34())
        assert clone_mutate in targets(graph)


@pytest.mark.parametrize(
    ("make", "blank"), [(lambda x: torch.empty_like(x), (0,)), (lambda x: x.new_zeros(4, 6).t()[::2], ())]
)
def test_what_is_written_keeps_its_gaps_and_is_not_copied_while_it_holds_nothing(make, blank):
    with torch.library._scoped_library("core_graph_test", "FRAGMENT") as library:
        library.define("linear_fill(Tensor(a!) x, Tensor y) -> ()")

        def linear_fill(x, y):
            assert x.stride() == make(y).stride()
            x.copy_(y)

        library.impl("linear_fill", linear_fill, "CPU")
        library.impl("linear_fill", lambda x, y: None, "Meta")
        operator = torch.ops.core_graph_test.linear_fill

        def program(y):
            if isinstance(y, torch.Tensor):
                target = make(y)
                operator(target, y)
                return (target + 1,)
            target = replay.call(y.builder, make, (y,), {})
            replay.call(y.builder, operator, (target, y), {})
            return (target + 1,)

        graph = check(program, x34())
        (node,) = [node for node in graph.module.graph.nodes if node.target is clone_mutate]
        assert node.args[4:] == ((blank,) if blank else ())


def test_training_batch_norm_without_statistics_writes_nothing():
    graph = check(lambda x: (F.batch_norm(x, None, None, training=True),), torch.randn(4, 3, 5))
    assert not graph.epilogue.write_backs


def test_results_that_share_memory_are_views_of_one_slot():
    graph = check(lambda x: ((y := x * 2), y[0], y.t()), x34())
    assert len(graph.epilogue.slots) == 1
    assert all(isinstance(output, ViewOfSlot) for output in graph.epilogue.outputs)


def test_one_result_twice_is_one_object_and_equal_views_are_two():
    captured = replay.capture(lambda x: ((y := x * 2), y, x[0], x[0]), [x34()])
    x = x34()
    found = replay.run_functional(functional_graph(captured), [x])
    assert found[0] is found[1]
    assert found[2] is not found[3]
    found[2].fill_(9)
    assert torch.equal(found[3], torch.full((4,), 9.0)) and x[0, 0] == 9


def test_writes_through_returned_aliases_are_seen_by_their_partners():
    captured = replay.capture(lambda x: ((y := x * 2), y.view(-1)[2:], x.t()), [x34()])
    x = x34()
    base, part, view = replay.run_functional(functional_graph(captured), [x])
    part.zero_()
    assert base[0, 2:].sum() == 0 and base[1:].sum() == 0
    view.fill_(1)
    assert torch.equal(x, torch.ones(3, 4))


def test_a_single_view_of_an_intermediate_is_a_slot_of_its_own():
    graph = check(lambda x: ((x * 2)[1:],), x34())
    assert graph.epilogue.outputs == (Slot(0),)
    assert graph.epilogue.trivial


def test_input_returned_untouched_and_its_view_cost_no_node():
    graph = check(lambda x: (x, x[1:].t()), x34())
    assert targets(graph) == []
    assert isinstance(graph.epilogue.outputs[0], InputItself)
    assert isinstance(graph.epilogue.outputs[1], ViewOfInput)


def test_copied_input_is_not_returned_as_an_alias():
    def program(x, y):
        held = torch.empty_like(x)
        held.copy_(y)
        return held

    graph = check(program, x34(), x34() + 1)
    assert aten.clone.default in targets(graph)


def test_swapped_inputs_are_written_back_from_their_old_values():
    def program(x, y):
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        return (x + y,)

    check(program, x34(), x34() + 1)


def test_strides_of_results_are_eagers_though_the_twin_gives_others():
    def program(x):
        y = torch.zeros(3, 4)
        y = x * 0
        y.copy_(x.t().contiguous().t())
        return y, y.view(-1)

    check(program, x34())


def test_unsafe_view_is_memory_of_its_own():
    check(lambda x: ((x.unsqueeze(0) @ x.t()).mul_(2),), x34())


def test_shape_changed_in_place_on_an_intermediate():
    def program(x):
        y = x * 2
        early = y[0]
        y.t_()
        y.unsqueeze_(0)
        y.add_(1)
        return early.clone(), y

    check(program, x34())


def test_channels_last_results_keep_their_layout():
    def program(x):
        y = x.contiguous(memory_format=torch.channels_last)
        y = y * 2
        y.add_(x)
        return y

    check(program, torch.randn(2, 3, 4, 5))


def test_constant_tensors_are_fresh_in_each_call():
    def program(x):
        made = x.new_tensor([1.0, 2.0, 3.0, 4.0])
        made.add_(x[0])
        return made

    captured = replay.capture(program, [x34()])
    graph = functional_graph(captured)
    first = replay.run_functional(graph, [x34()])[0].clone()
    assert torch.equal(replay.run_functional(graph, [x34()])[0], first)


def test_unused_work_is_dropped_but_random_draws_and_order_stay():
    def program(x):
        (x * 5).exp()
        x.new_empty(3).uniform_()
        return x + torch.rand_like(x)

    torch.manual_seed(3)
    graph = functional_graph(replay.capture(program, [x34()]))
    names = [str(target) for target in targets(graph)]
    assert "aten.exp.default" not in names
    assert sum(node.meta.get("random", False) for node in graph.module.graph.nodes) == 2
    found = replay.run_functional(graph, [x34()])[0]
    after = torch.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(found, program(x34()))
    assert torch.equal(after, torch.get_rng_state())


def refused(program, *inputs):
    captured = replay.capture(program, list(inputs))
    with pytest.raises(RecorderRefused) as error:
        functional_graph(captured)
    return error.value


def test_write_to_one_of_two_overlapping_inputs_is_refused():
    memory = torch.zeros(6)
    assert "shares memory" in refused(lambda x, y: (x.add_(1), y + 1), memory[:4], memory[2:]).what


def test_overlapping_inputs_that_are_only_read_are_fine():
    memory = torch.arange(6.0)
    captured = replay.capture(lambda x, y: (x + y,), [memory[:4], memory[2:]])
    found = replay.run_functional(functional_graph(captured), [memory[:4], memory[2:]])
    assert torch.equal(found[0], memory[:4] + memory[2:])


def test_shape_change_of_an_input_is_refused():
    assert "changed in place" in refused(lambda x: (x.t_(),), x34()).what


def test_view_reaching_outside_a_written_input_is_refused():
    memory = torch.zeros(12)
    error = refused(lambda x: (x.add_(1), x.as_strided((4,), (1,), 4).clone()), memory[:6])
    assert "outside" in error.what


def test_view_reaching_outside_an_unwritten_input_is_read_from_its_memory():
    memory = torch.arange(12.0)
    captured = replay.capture(lambda x: (x.as_strided((4,), (1,), 4) + 1,), [memory[:6]])
    assert captured.fixed_offsets == ((0, 0),)
    assert captured.shapes().guards
    found = replay.run_functional(functional_graph(captured), [memory[:6]])
    assert torch.equal(found[0], memory[4:8] + 1)


def test_generators_of_the_program_are_refused():
    generator = torch.Generator()

    def program(x):
        return (x.clone().normal_(generator=generator),)

    from core.errors import Unsupported

    with pytest.raises((RecorderRefused, Unsupported), match="generator"):
        functional_graph(replay.capture(program, [x34()]))


def _outs(*dtypes, shape=(4,)):
    return [torch.empty(shape, dtype=dtype) for dtype in dtypes]


OUT_OF_ANOTHER_DTYPE = {
    "add": (lambda x, o: torch.add(x, x, out=o), _outs(torch.float64)),
    "sum": (lambda x, o: torch.sum(x, 0, out=o), _outs(torch.float64, shape=())),
    "cat": (lambda x, o: torch.cat((x, x), out=o), _outs(torch.float64, shape=(8,))),
    "eq": (lambda x, o: torch.eq(x, x, out=o), _outs(torch.float32)),
    "multinomial": (lambda x, o: torch.multinomial(x, 4, out=o), _outs(torch.float64)),
    "index_select": (lambda x, o: torch.index_select(x, 0, torch.tensor([1, 0, 2, 2]), out=o), _outs(torch.float64)),
    "sort": (lambda x, v, i: torch.sort(x, out=(v, i)), _outs(torch.float32, torch.int32)),
    "take": (lambda x, o: torch.take(x, torch.tensor([1, 0, 2, 2]), out=o), _outs(torch.float64)),
}


@pytest.mark.parametrize("name", OUT_OF_ANOTHER_DTYPE)
def test_out_of_another_dtype_is_cast_to_or_refused_as_in_eager(name):
    program, outs = OUT_OF_ANOTHER_DTYPE[name]
    results = []
    for run in (program, core.compile(program, backend="aot_eager", fullgraph=True)):
        own = [out.clone() for out in outs]
        try:
            run(torch.tensor([0.25, 1.0, 2.0, 0.5]), *own)
            results.append([out.dtype for out in own])
            assert name not in ("multinomial", "index_select", "sort", "take")
        except RuntimeError as error:
            results.append(str(error).splitlines()[0])
    assert results[0] == results[1]
