"""What marks on functions mean inside compiled code: core's own and those of torch.compiler."""

import math
import operator

import pytest
import torch

import core
from core.step import current_step

X = torch.arange(3.0)


def compiled(fn):
    return core.compile(fn, backend="eager", fullgraph=True)


@pytest.mark.parametrize("mark", [core.assume_constant_result, torch.compiler.assume_constant_result])
def test_a_constant_result_is_computed_once_for_each_entry(mark):
    calls = []

    def setting(name):
        calls.append(name)
        return {"factor": 3.0}[name]

    setting = mark(setting)
    fn = compiled(lambda x: x * setting("factor"))
    for _ in range(3):
        assert torch.equal(fn(X), X * 3)
    assert calls == ["factor"]


def test_a_constant_result_of_a_method_sees_the_real_object():
    class Settings:
        factor = 2.0

        @core.assume_constant_result
        def read(self):
            return self.factor

    settings = Settings()
    fn = compiled(lambda x: x * settings.read())
    assert torch.equal(fn(X), X * 2)


def test_a_constant_result_of_a_tensor_of_the_graph_is_refused():
    @core.assume_constant_result
    def total(x):
        return 1.0

    with pytest.raises(core.Unsupported, match="gives a constant by its mark"):
        compiled(lambda x: x * total(x))(X)


@pytest.mark.parametrize("mark", [core.allow_in_graph, torch.compiler.allow_in_graph])
def test_a_function_that_is_allowed_in_the_graph_is_one_node(mark):
    def two_operations(x, k):
        return (x + k).sin()

    two_operations = mark(two_operations)
    program = core.capture(lambda x: two_operations(x, 2) * 3, X)
    calls = [node.target for node in program.module.graph.nodes if node.op == "call_function"]
    assert calls == [two_operations, operator.mul]
    assert torch.equal(program.result, (X + 2).sin() * 3)


def test_allow_in_graph_takes_a_list():
    one, two = (lambda x: x + 1), (lambda x: x + 2)
    assert core.allow_in_graph([one, two]) == [one, two]
    assert len(list(core.capture(lambda x: two(one(x)), X).module.graph.nodes)) == 4


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("mark", [core.allow_in_graph, torch.compiler.allow_in_graph])
def test_an_allowed_function_without_result_runs_on_each_call(mark, backend):
    seen = []

    @mark
    def note(word):
        seen.append((word, torch.is_grad_enabled()))

    def program(x):
        note("before")
        with torch.no_grad():
            note("inside")
        return x + 1

    call = core.compile(program, backend=backend)
    for count in (1, 2, 3):
        assert torch.equal(call(X), X + 1)
        assert seen == [("before", True), ("inside", False)] * count
    assert core.stats()["breaks"] == (0 if backend == "eager" else 2)
    assert core.compile(lambda: note("alone"), backend=backend)() is None and seen[-1] == ("alone", True)


@pytest.mark.parametrize("with_operator", [False, True])
def test_an_allowed_function_without_result_runs_where_the_backend_fails_too(with_operator, heard, monkeypatch):
    monkeypatch.delenv("CORE_STRICT", raising=False)
    calls = []

    @core.allow_in_graph
    def note():
        calls.append(torch.is_grad_enabled())

    def program(x):
        note()
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) if with_operator else x.sin()

    def fails(module, inputs):
        raise RuntimeError("no")

    call = core.compile(program, backend=fails, fallback="aot_eager", on_failure="fallback")
    assert all(torch.equal(call(X), X.sin()) for _ in range(3))
    assert len(calls) == 3
    fallbacks = [event for event in heard if isinstance(event, core.events.FellBack) and event.stage == "recorder"]
    assert [event.reason for event in fallbacks] == [
        "note() is called for what it does outside of the graph; the graph runs as captured"
    ]


def test_an_allowed_function_of_tensors_without_result_runs_on_each_call():
    shapes = []

    @core.allow_in_graph
    def note(x):
        shapes.append(tuple(x.shape))

    @core.allow_in_graph
    def bump(x):
        x.add_(1)

    def program(x):
        note(x)
        bump(x)
        return x * 2

    for backend, breaks in (("eager", 0), ("aot_eager", 1)):
        core.reset()
        shapes.clear()
        call = core.compile(program, backend=backend)
        call(torch.zeros(2))
        shapes.clear()
        assert call(torch.zeros(2)).tolist() == call(torch.zeros(2)).tolist() == [2.0, 2.0]
        assert shapes == [(2,), (2,)] and core.stats()["breaks"] == breaks


def test_an_allowed_function_that_gives_no_tensor_is_not_folded():
    calls = []

    @core.allow_in_graph
    def count(step):
        calls.append(step)
        return len(calls)

    call = core.compile(lambda x: x * count(2), backend="eager")
    call(X)
    calls.clear()
    assert [call(X).tolist() for _ in range(3)] == [(X * k).tolist() for k in (1, 2, 3)]
    with pytest.raises(core.Unsupported, match="gives no tensor"):
        compiled(lambda x: x * count(2))(X)


@pytest.mark.parametrize("inside", ["try", "checkpoint"])
def test_an_allowed_function_without_result_leaves_the_graph_of_a_try_and_of_a_region(inside):
    seen = []

    @core.allow_in_graph
    def refuse(fails):
        seen.append(fails)
        if fails:
            raise KeyError("no")

    def caught(x):
        try:
            refuse(True)
        except KeyError:
            return x + 1

    def body(x):
        refuse(False)
        return x + 1

    def region(x):
        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False)

    call = core.compile(caught if inside == "try" else region, backend="eager")
    assert all(torch.equal(call(X), X + 1) for _ in range(3))
    assert len(seen) == 3


def test_a_substitute_is_traced_in_place_of_a_c_function():
    @core.substitute_in_graph(math.gamma, can_constant_fold_through=True)
    def gamma(x, /):
        return x * 10

    assert torch.equal(compiled(lambda x: x * math.gamma(4.0))(X), X * 6)  # a constant: the original
    assert torch.equal(compiled(lambda x: x + math.gamma(x))(X), X * 11)
    assert math.gamma(4.0) == 6.0


def test_a_substitute_must_have_the_same_parameters():
    def original(a, b):
        return a

    with pytest.raises(core.InvalidOption, match="other parameters"):
        core.substitute_in_graph(original)(lambda x: x)
    core.substitute_in_graph(original, skip_signature_check=True)(lambda *args: args[1])
    assert torch.equal(compiled(lambda x: original(x, x + 1))(X), X + 1)


@pytest.mark.parametrize("mark", [core.nested_compile_region, torch.compiler.nested_compile_region])
def test_a_nested_region_is_traced_where_it_is_called(mark):
    scale = 2.0

    @mark
    def layer(x):
        return x.cos() * scale

    fn = compiled(lambda x: layer(layer(x)))
    assert torch.allclose(fn(X), (X.cos() * 2).cos() * 2)
    scale = 3.0
    assert torch.allclose(fn(X), (X.cos() * 3).cos() * 3)
    assert core.stats()["graphs"] == 2 and core.stats()["breaks"] == 0
    assert core.nested_compile_region(max_reuse_entries=4)(layer) is layer


SEEN = []


def seen_by(x):
    SEEN.append(torch.compiler.is_compiling())
    return x + 1


@pytest.mark.parametrize("disable", [core.disable, torch.compiler.disable])
def test_a_disabled_function_runs_in_python_with_all_that_it_calls(disable):
    SEEN.clear()

    @disable(reason="for a reason")
    def plain(x):
        return seen_by(x) * 2

    program = core.capture(lambda x: plain(x + 1) + 1, X)
    assert torch.equal(program.result, (X + 2) * 2 + 1)
    assert [item.reason.partition("is kept")[2] for item in program.breaks] == [" out of graphs: for a reason"]
    assert len(program.graphs) == 2 and SEEN == [False]


@pytest.mark.parametrize("disable", [core.disable, torch.compiler.disable])
def test_a_function_that_alone_is_disabled_may_call_captured_ones(disable):
    SEEN.clear()

    def plain(x):
        return seen_by(x) * 2

    plain = disable(plain, recursive=False)
    program = core.capture(lambda x: plain(x + 1) + 1, X)
    assert torch.equal(program.result, (X + 2) * 2 + 1)
    assert len(program.breaks) == 1 and len(program.graphs) == 3 and SEEN == [True]


@pytest.mark.parametrize("disable", [core.disable, torch.compiler.disable])
def test_compiling_a_disabled_function_leaves_it_disabled(disable):
    SEEN.clear()
    fn = core.compile(disable(seen_by), backend="eager")
    assert torch.equal(fn(X), X + 1) and SEEN == [False]
    assert core.stats()["frames"] == 0


def test_disable_is_a_decorator_with_and_without_parentheses():
    @core.disable
    def one(x):
        return x

    @core.disable(recursive=False)
    def two(x):
        return x

    assert (one(1), two(2), one.__name__, two.__name__) == (1, 2, "one", "two")


def test_questions_about_compiling_have_their_answers():
    def ask(x):
        answers = (core.is_compiling(), core.is_dynamo_compiling(), core.is_exporting())
        return x + 1, answers, (torch.compiler.is_compiling(), torch.compiler.is_exporting())

    assert ask(X)[1:] == ((False, False, False), (False, False))
    assert compiled(ask)(X)[1:] == ((True, True, False), (True, False))


def test_a_step_that_begins_inside_is_counted_on_each_call():
    def step(x):
        core.cudagraph_mark_step_begin()
        return x + 1

    fn = compiled(step)
    before = current_step()
    fn(X), fn(X)
    core.cudagraph_mark_step_begin()
    assert current_step() == before + 3


def test_a_compiled_function_is_traced_through_by_another_of_its_backend():
    inner = core.compile(lambda x, k=2: x * k, backend="eager")
    fn = compiled(lambda x: inner(x) + 1)
    assert torch.equal(fn(X), X * 2 + 1)
    inner.fn.__defaults__ = (5,)
    assert torch.equal(fn(X), X * 5 + 1)
    assert compiled(lambda x: (inner, x + 1))(X)[0] is inner
    assert core.stats()["breaks"] == 0


def test_a_compiled_method_and_a_compiled_module_are_traced_through_too():
    class Net(torch.nn.Module):
        factor = 2.0

        @core.compile(backend="eager")
        def part(self, x):
            return x * self.factor

        def forward(self, x):
            return self.part(x) + 1

    net = Net()
    whole = core.compile(net, backend="eager")
    for program in (
        core.capture(net, X),
        core.capture(lambda x: whole(x), X),
        core.capture(lambda x: net.part(x) + 1, X),
    ):
        assert torch.equal(program.result, X * 2 + 1)
        assert len(program.graphs) == 1 and not program.breaks


def test_a_function_compiled_for_another_backend_runs_by_itself():
    inner = core.compile(lambda x: x * 2, backend="aot_eager")
    program = core.capture(lambda x: inner(x + 1) + 1, X)
    assert torch.equal(program.result, (X + 1) * 2 + 1)
    assert "compiled for another backend" in program.breaks[0].reason


def test_marks_take_callables_only():
    for mark in (
        core.assume_constant_result,
        core.allow_in_graph,
        core.substitute_in_graph,
        core.nested_compile_region,
    ):
        with pytest.raises(core.InvalidOption, match="int"):
            mark(3)
