"""The public functions beside compile: capture, explain, modules in place, modes, guard filters, limits, audits."""

import copy
import inspect
import pickle

import pytest
import torch

import core
from core import events
from core.guards.filter import GuardEntry
from core.plugin import Artifact, Backend, Option

X = torch.arange(3.0)


def collected(kind):
    found = []
    stop = events.subscribe(lambda event: found.append(event) if isinstance(event, kind) else None)
    return found, stop


# -- the names ---------------------------------------------------------------------------------------------------------

NOT_OFFERED = {
    "keep_portable_guards_unsafe",
    "load_cache_artifacts",
    "load_compiled_function",
    "save_cache_artifacts",
    "set_enable_guard_collectives",
    "wrap_numpy",
}


def test_what_torch_compiler_has_core_has():
    missing = {name for name in torch.compiler.__all__ if not hasattr(core, name)}
    assert missing <= NOT_OFFERED


def test_compile_takes_what_torch_compile_takes():
    ours = inspect.signature(core.compile).parameters
    theirs = inspect.signature(torch.compile).parameters
    assert set(theirs) - set(ours) <= {"shapes_spec"}
    assert list(ours)[0] == "model"
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in list(ours.values())[1:])


def test_isolated_recompiles_have_entries_and_a_limit_of_their_own():
    def fn(x):
        return x + 1

    shared = [core.compile(fn, backend="eager", dynamic=False, recompile_limit=2) for _ in range(2)]
    own = core.compile(fn, backend="eager", dynamic=False, recompile_limit=2, isolate_recompiles=True)
    assert shared[0] is shared[1] and own is not shared[0]
    with pytest.warns(UserWarning, match="recompile_limit"):
        for size in (2, 3, 4):
            shared[0](torch.ones(size))
    assert torch.equal(own(torch.ones(4)), torch.full((4,), 2.0))
    assert [len(item.entries()) for item in (shared[0], own)] == [2, 1]


def test_compile_is_a_decorator_with_and_without_parentheses(monkeypatch):
    monkeypatch.setenv("CORE_BACKEND", "eager")

    @core.compile
    def one(x):
        return x + 1

    @core.compile(fullgraph=True)
    def two(x):
        return x + 2

    assert torch.equal(one(X), X + 1) and torch.equal(two(X), X + 2)
    assert (one.__name__, two.callback.options.fullgraph) == ("one", True)


def test_debugging_backends_are_listed_on_request():
    assert "eager" not in core.list_backends()
    assert {"eager", "aot_eager"} <= set(core.list_backends(exclude_tags=None))


# -- capture and explain ---------------------------------------------------------------------------------------------


def scaled(x, k=2):
    y = x * k
    print("between", end="")
    return y.relu()


def test_capture_gives_graphs_inputs_guards_breaks_and_a_callable(capsys):
    program = core.capture(scaled, X, k=3)
    assert torch.equal(program.result, X * 3)
    assert [graph.function for graph in program.graphs] == ["scaled", f"scaled.<resume at line {_line(scaled, 2)}>"]
    first = program.graphs[0]
    assert [(item.name, tuple(item.example.shape), item.lifted) for item in first.inputs] == [("L['x']", (3,), False)]
    assert [node.target for node in first.aten.graph.nodes if node.op == "call_function"] == [torch.ops.aten.mul.Tensor]
    assert "input_0 * 3" in first.code and not first.needs_grad
    assert any(text.startswith("L['k'] == 3") for text in first.guards) and set(first.guards) <= set(program.guards)
    assert [item.reason for item in program.breaks] == ["print() writes where the program runs"]
    assert torch.equal(program(X + 1, k=3), scaled(X + 1, 3))
    with pytest.raises(ValueError, match="2 graphs"):
        program.module  # noqa: B018
    assert "graph of scaled:" in str(program)


def _line(fn, offset):
    return fn.__code__.co_firstlineno + offset


def test_capture_of_a_module_has_its_parameters_as_inputs():
    model = torch.nn.Linear(3, 3)
    program = core.capture(model, X)
    assert torch.equal(program.result, model(X))
    assert sorted(item.lifted for item in program.inputs) == [False, True, True]
    assert program.graphs[0].needs_grad and program.graphs[0].aten is not None
    assert len(list(program.module.graph.nodes)) == 5
    core.mark_dynamic(batch := torch.ones(4, 3), 0)
    assert core.capture(model, batch).inputs[0].dynamic_dims == (0,)


def test_a_record_that_cannot_be_used_leaves_the_reason():
    class Twice(torch.nn.Module):
        def forward(self, x):
            return x.view(2, 2).t_()

    program = core.capture(Twice(), torch.ones(4))
    graph = program.graphs[0]
    assert (graph.aten is None) == bool(graph.no_aten)


def test_capturing_and_explaining_leave_the_entries_of_others_alone():
    compiled = core.compile(scaled, backend="eager")
    compiled(X)
    core.capture(scaled, X)
    core.explain(scaled)(X)
    assert len(compiled.entries()) == 1
    core.explain(compiled)(X + 1)
    assert len(compiled.entries()) == 1


def test_explain_has_guards_phases_breaks_and_artifacts():
    explanation = core.explain(scaled, backend="aot_eager")(X)
    assert (explanation.graph_count, explanation.graph_break_count, explanation.op_count) == (2, 1, 2)
    assert set(explanation.phases) == {"trace", "backend", "guards and code"}
    assert all(seconds >= 0 for seconds in explanation.phases.values())
    assert len(explanation.entries) == 2 and len(explanation.artifacts) == 2
    text = str(explanation)
    for part in ("break at", "remedy:", "guard: L['k'] == 2", "aot_eager, inference", "trace "):
        assert part in text
    with pytest.raises(TypeError, match="unexpected"):
        core.explain(scaled, no_such_option=1)(X)


def test_explain_tells_of_recompiles_and_limits():
    inner = core.compile(lambda y, key: y + len(key), backend="aot_eager", recompile_limit=1)

    def loops(x):
        return inner(x, "a") + inner(x, "bb")

    with pytest.warns(UserWarning, match="recompile_limit=1"):
        explanation = core.explain(loops)(X)
    assert [limit.limit for limit in explanation.limits] == [1]
    assert "reached its limit of 1 entries" in str(explanation)


def test_a_reached_limit_is_one_event_with_reasons_and_line():
    found, stop = collected(events.LimitReached)

    def keyed(x, key):
        return x + len(key)

    compiled = core.compile(keyed, backend="eager", recompile_limit=2)
    try:
        with pytest.warns(UserWarning, match="keyed"):
            for key in ("a", "bb", "ccc", "dddd"):
                compiled(X, key)
    finally:
        stop()
    assert [(event.limit, len(event.reasons)) for event in found] == [(2, 2)]
    assert found[0].line.line == keyed.__code__.co_firstlineno
    assert all("L['key'] was" in reason and "test_api.py" in reason for reason in found[0].reasons)


# -- modules in place ------------------------------------------------------------------------------------------------


def test_a_module_compiled_in_place_keeps_class_state_and_names():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    want, names, kind = model(X), list(model.state_dict()), type(model)
    assert core.compile_module_(model, backend="eager") is model
    assert torch.equal(model(X), want) and core.stats()["graphs"] == 1
    assert type(model) is kind and list(model.state_dict()) == names
    assert torch.equal(copy.deepcopy(model)(X), want) and torch.equal(pickle.loads(pickle.dumps(model))(X), want)
    assert core.stats()["frames"] == 1  # copies are as written
    core.compile_module_(model, disable=True)
    model(torch.ones(5, 3))
    assert core.stats()["frames"] == 1


def test_modules_compiled_in_place_have_entries_and_limits_of_their_own():
    models = [torch.nn.Linear(3, 3) for _ in range(12)]
    for model in models:
        core.compile_module_(model, backend="eager", recompile_limit=1)
    for model in models:
        model(X), model(X)
    assert core.stats()["frames"] == 12 and core.stats()["recompiles"] == 0
    whole = core.capture(lambda x: models[1](models[0](x)), X)
    assert len(whole.graphs) == 1 and not whole.breaks


def test_what_is_no_module_or_has_a_call_of_its_own_is_not_compiled_in_place():
    class Own(torch.nn.Module):
        def __call__(self, x):
            return x + 1

    for wrong in (Own(), scaled):
        with pytest.raises(core.InvalidOption, match="__call__ of its own|is no module"):
            core.compile_module_(wrong, backend="eager")


# -- modes and options -----------------------------------------------------------------------------------------------


class Tuned(Backend):
    name = "tuned"
    seen: list = []

    def options(self):
        return {"mode": Option(str, "default", ("default", "max-autotune"))}

    def compile(self, graph, fake_inputs, ctx):
        self.seen.append((ctx.options["mode"], ctx.tuning, ctx.step()))
        return Artifact(call=graph.forward)


def test_a_mode_reaches_the_backend_as_an_option():
    backend = Tuned()
    backend.seen = []
    core.compile(lambda x: x + 1, backend=backend, mode="max-autotune")(X)
    core.compile(lambda x: x + 1, backend=backend)(X)
    assert [entry[:2] for entry in backend.seen] == [("max-autotune", "max-autotune"), ("default", "default")]
    with pytest.raises(core.InvalidOption, match="reduce-overhead"):
        core.compile(lambda x: x, backend=backend, mode="reduce-overhead")
    with pytest.raises(core.InvalidOption, match="one of the two"):
        core.compile(lambda x: x, backend=backend, mode="max-autotune", options={"mode": "default"})


def test_a_backend_that_knows_no_modes_says_so():
    def plain(gm, inputs):
        return gm

    def with_mode(gm, inputs, mode="none"):
        given.append(mode)
        return gm

    given = []
    with pytest.raises(core.InvalidOption, match="backend .* does not know modes"):
        core.compile(scaled, backend=plain, mode="max-autotune")
    core.compile(scaled, backend=plain, mode="default")
    core.compile(lambda x: x + 1, backend=with_mode, mode="max-autotune")(X)
    assert given == ["max-autotune"]


def test_debugging_backends_take_the_modes_and_tune_nothing():
    for backend in ("eager", "aot_eager"):
        compiled = core.compile(lambda x: x + 1, backend=backend, mode="reduce-overhead", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    with pytest.raises(core.InvalidOption, match="fastest"):
        core.compile(lambda x: x, backend="eager", mode="fastest")


# -- guard filters and audits ----------------------------------------------------------------------------------------

LEVEL = 1.0


def leveled(x, k):
    return x * LEVEL + k


def test_a_guard_filter_chooses_what_is_kept():
    global LEVEL
    entries = []

    def keep(found):
        entries.extend(found)
        return core.skip_guard_on_globals_unsafe(found)

    compiled = core.compile(leveled, backend="eager", options={"guard_filter_fn": keep})
    assert torch.equal(compiled(X, 2), X + 2)
    LEVEL = 5.0
    try:
        assert torch.equal(compiled(X, 2), X + 2)  # the global is not asked any more
        assert torch.equal(compiled(X, 3), X * 5 + 3)
    finally:
        LEVEL = 1.0
    assert all(isinstance(entry, GuardEntry) for entry in entries)
    by_name = {entry.name: entry for entry in entries if entry.guard_type == "Equals"}
    assert by_name["L['k']"].value == 2 and by_name["L['k']"].has_value and not by_name["L['k']"].is_global
    assert by_name["G['LEVEL']"].is_global


def test_ready_made_filters_keep_what_their_names_say():
    model = torch.nn.Linear(3, 3)

    def run(keep):
        compiled = core.compile(lambda x, k: model(x) * k, backend="eager", options={"guard_filter_fn": keep})
        compiled(X, 2.0)
        return {(guard.check.__class__.__name__, guard.describe()) for guard in compiled.entries()[0].user.guards}

    everything = run(lambda found: [True] * len(found))
    assert run(core.skip_all_guards_unsafe) == set()
    assert {kind for kind, _ in run(core.keep_tensor_guards_unsafe)} == {"TensorMatch"}
    portable = run(core.keep_portable_guards_unsafe)
    assert {kind for kind, _ in portable} == {"GlobalState", "TensorMatch"}
    assert portable < everything
    without = run(core.skip_guard_on_inbuilt_nn_modules_unsafe)
    assert without < everything and not any("_parameters" in text for _, text in without)
    assert run(core.skip_guard_on_all_nn_modules_unsafe) == without


def test_a_filter_that_answers_wrongly_is_an_error():
    compiled = core.compile(leveled, backend="eager", options={"guard_filter_fn": lambda found: [True]})
    with pytest.raises(core.InvalidOption, match="gave 1 answers"):
        compiled(X, 1)
    with pytest.raises(core.InvalidOption, match="not a callable"):
        core.compile(leveled, backend="eager", options={"guard_filter_fn": 3})


def test_an_audit_of_common_programs_finds_nothing():
    class Settings:
        table = {"a": 2.0}

        @classmethod
        def total(cls):
            return sum(cls.table.values())

    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    with core.config.patch(audit_guards=True):
        first = core.explain(lambda x: x * Settings.total() + Settings.table["a"] + LEVEL)(X)
        second = core.explain(layer)(torch.ones(1, 2, 4))
    assert first.unguarded == second.unguarded == []


def test_an_audit_tells_of_an_object_whose_contents_nobody_looks_at():
    class Box:
        def __init__(self):
            self.value = 2.0

    box = Box()

    @core.assume_constant_result
    def get():
        return box

    with core.config.patch(audit_guards=True):
        explanation = core.explain(lambda x: x * get().value)(X)
    assert [read.line.line for read in explanation.unguarded] == [inspect.currentframe().f_lineno - 1]
    assert "taken as a constant" in explanation.unguarded[0].reason and "no guard looks at" in str(explanation)


def test_the_package_of_the_name_capture_is_the_function_too():
    import core.capture.policy  # noqa: F401

    assert torch.equal(core.capture(leveled, X, 1).result, core.capture_program(leveled, X, 1).result)
