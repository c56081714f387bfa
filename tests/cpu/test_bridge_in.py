"""Other projects' torch.compile backends under core: what they are given, and what core keeps to itself."""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import core
from core.backends.bridge import resolved_foreign
from core.backends.foreign import Traits
from core.errors import BackendBroken, BackendFailed, BackendNotInstalled, BridgeLoop, InvalidOption
from core.events import BackendReported, FellBack, subscribe
from core.torch_compat import tracing


@pytest.fixture(autouse=True)
def _forget():
    yield
    core.reset()


class Compiler:
    """A callable in torch.compile's convention that runs what it gets and keeps it."""

    def __init__(self, wrap=lambda gm: gm.forward):
        self.seen = []
        self.wrap = wrap

    def __call__(self, gm, example_inputs, *, options=None, mode=None):
        context = torch._guards.TracingContext.try_get()
        self.seen.append((gm, example_inputs, options, mode, context, torch.is_grad_enabled()))
        return self.wrap(gm)


def bridged(compiler, **traits):
    return resolved_foreign("mine", compiler, Traits(**traits))


def test_the_callable_gets_a_functional_graph_with_parameters_among_the_inputs():
    compiler, module = Compiler(), torch.nn.Linear(3, 2)
    compiled = core.compile(module, backend=bridged(compiler), fullgraph=True)
    x = torch.randn(4, 3)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    gm, examples, options, mode, context, grad = compiler.seen[0]
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    assert len(placeholders) == len(examples) == 3 and not list(gm.parameters())
    assert all(tuple(node.meta["tensor_meta"].shape) == tuple(node.meta["val"].shape) for node in placeholders)
    assert all("example_value" in node.meta for node in placeholders)
    calls = [node.target for node in gm.graph.nodes if node.op == "call_function"]
    assert calls and all(isinstance(target, torch._ops.OpOverload) for target in calls)
    assert (options, mode, grad) == (None, None, False)
    assert context is not None and context.fake_mode is examples[0].fake_mode
    assert not any(example.requires_grad for example in examples)


def test_threads_get_their_own_results_of_a_callable_that_keeps_its_operands():
    kept = {}

    def keeping(gm):
        def run(*inputs):
            kept["inputs"] = inputs
            time.sleep(0.01)  # another thread's turn
            return gm(*kept["inputs"])

        return run

    compiled = core.compile(lambda x: x * 2 + 1, backend=bridged(Compiler(keeping)), fullgraph=True)
    compiled(torch.zeros(3))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda value: compiled(torch.full((3,), float(value))), range(12)))
    assert [result.tolist() for result in results] == [[value * 2.0 + 1] * 3 for value in range(12)]


def test_gradients_writes_and_views_are_cores():
    compiler = Compiler()

    def program(state, weight):
        state.mul_(0.5)
        return (state * weight).sum(), state[1:]

    compiled = core.compile(program, backend=bridged(compiler), fullgraph=True)
    state, weight = torch.randn(4), torch.randn(4)
    ours, theirs = state.clone(), state.clone()
    left, right = weight.clone().requires_grad_(), weight.clone().requires_grad_()
    got, want = compiled(ours, left), program(theirs, right)
    got[0].backward()
    want[0].backward()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(left.grad, right.grad)
    got[1].zero_()
    assert float(ours[1:].abs().sum()) == 0
    assert len(compiler.seen) == 2, "forward and backward"


def test_it_may_change_the_graph_it_gets():
    def spoil(gm):
        run = copy.deepcopy(gm).forward
        for node in list(gm.graph.nodes):
            node.meta.clear()
        gm.graph.output(None)
        return run

    compiled = core.compile(lambda x: x.sin() + 1, backend=bridged(Compiler(spoil)))
    x = torch.randn(3, requires_grad=True)
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_buffers_that_the_callable_uses_again_reach_nobody():
    import numpy

    def runtime(gm):
        room = {}

        def run(*inputs):
            results = gm(*inputs)
            for at, result in enumerate(results):
                held = room.setdefault(at, numpy.empty(tuple(result.shape), dtype=numpy.float32))
                held[...] = result.detach().numpy()
            return [torch.from_numpy(room[at]) for at in range(len(results))]

        return run

    compiled = core.compile(lambda x: x * 2 + 1, backend=bridged(Compiler(runtime)))
    values = [torch.randn(5) for _ in range(3)]
    results = [compiled(value) for value in values]
    for result, value in zip(results, values):
        torch.testing.assert_close(result, value * 2 + 1)


def test_every_size_is_a_graph_of_its_own_unless_it_takes_symbols():
    def program(x):
        return x.sum() / x.shape[0]

    fixed, open_ = Compiler(), Compiler()
    first = core.compile(program, backend=bridged(fixed))
    second = core.compile(program, backend=bridged(open_, dynamic_shapes="full"))
    for size in (3, 4, 5):
        x = torch.randn(size)
        torch.testing.assert_close(first(x), program(x))
        torch.testing.assert_close(second(x), program(x))
    assert len(fixed.seen) == 3 and len(open_.seen) == 2
    for gm, *_ in fixed.seen:
        assert not any(
            isinstance(size, torch.SymInt) for n in gm.graph.nodes for size in getattr(n.meta["val"], "shape", ())
        )


def test_dtypes_and_tensors_it_gets_wrong_go_to_the_fallback():
    compiler = Compiler()
    program = lambda x: (x * 3 + 1).sum()  # noqa: E731
    backend = bridged(compiler, dtypes=("float32",))
    for value in (torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.int64), torch.ones(0)):
        torch.testing.assert_close(core.compile(program, backend=backend)(value), program(value))
    assert not compiler.seen
    core.compile(program, backend=backend)(torch.ones(3))
    assert len(compiler.seen) == 1


def test_random_numbers_follow_torchs_generators_whoever_compiles():
    own = torch.Generator().manual_seed(0)

    def drawing(gm):  # as a runtime does that has a generator of its own
        def run(*inputs):
            before = torch.get_rng_state()
            torch.set_rng_state(own.get_state())
            try:
                return gm.forward(*inputs)
            finally:
                own.set_state(torch.get_rng_state())
                torch.set_rng_state(before)

        return run

    def program(x):
        return torch.tanh((x + torch.rand(64)) @ x) * 2

    results = {}
    for random in (False, True):
        core.reset()
        compiler = Compiler(drawing)
        compiled = core.compile(program, backend=bridged(compiler, random=random), fullgraph=True, fallback=("eager",))
        torch.manual_seed(3)
        results[random] = torch.stack([compiled(torch.ones(64, 64) / 64) for _ in range(3)]), len(compiler.seen)
    torch.manual_seed(3)
    expected = torch.stack([program(torch.ones(64, 64) / 64) for _ in range(3)])
    torch.testing.assert_close(results[False][0], expected)
    assert not torch.equal(results[True][0], expected)  # one that is known to use torch's is given the whole graph
    assert results[False][1] == results[True][1] == 1


def test_options_go_to_the_callable_as_the_peer_passes_them():
    compiler = Compiler()
    core.compile(lambda x: x + 1, backend=bridged(compiler), options={"level": 3})(torch.ones(2))
    assert compiler.seen[0][2] == {"level": 3}

    def plain(gm, example_inputs, level=1):
        plain.level = level
        return gm

    core.compile(lambda x: x + 2, backend=bridged(plain), options={"level": 4})(torch.ones(2))
    assert plain.level == 4
    with pytest.raises(InvalidOption, match="depth"):
        core.compile(lambda x: x + 2, backend=bridged(plain), options={"depth": 4})


def test_a_precision_is_asked_for_in_the_callables_own_words():
    wanted = {"ieee": {"config": {"HINT": "f32"}}, "bf16": {}}
    compiler = Compiler()
    backend = bridged(compiler, precision=wanted)
    for options, precision in (({}, "eager"), ({}, "bf16"), ({"config": {"THREADS": 2}}, "ieee")):
        core.compile(lambda x: x + 1, backend=backend, options=options, precision=precision)(torch.ones(2))
    given = [seen[2] for seen in compiler.seen]
    assert given == [{"config": {"HINT": "f32"}}, None, {"config": {"HINT": "f32", "THREADS": 2}}]


def test_raw_gives_the_torch_level_graph_and_leaves_gradients_to_it():
    compiler = Compiler()
    compiled = core.compile(lambda x: torch.relu(x) + 1, backend=bridged(compiler), options={"raw": True})
    x = torch.randn(4, requires_grad=True)
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, (x > 0).float())
    gm, examples, options, *_, grad = compiler.seen[0]
    assert [node.target for node in gm.graph.nodes if node.op == "call_function"][0] is torch.relu
    assert examples[0].requires_grad and grad and options is None and len(compiler.seen) == 1


def test_real_examples_on_request():
    compiler = Compiler()
    core.compile(lambda x: x + 1, backend=bridged(compiler), options={"examples": "real"})(torch.ones(2, 3))
    assert type(compiler.seen[0][1][0]) is torch.Tensor and tuple(compiler.seen[0][1][0].shape) == (2, 3)


def test_wrong_results_are_found_on_the_first_run():
    half = Compiler(lambda gm: lambda *inputs: [output.half() for output in gm(*inputs)])
    with pytest.raises(core.errors.BackendMisbehaved, match="float16"):
        core.compile(lambda x: x + 1, backend=bridged(half))(torch.ones(2))


def test_a_callable_that_raises_is_named_or_replaced():
    def refuse(gm):
        raise RuntimeError("no such operator")

    program = lambda x: (x + 1).relu()  # noqa: E731
    with pytest.raises(BackendFailed, match="no such operator"):
        core.compile(program, backend=bridged(Compiler(refuse)))(torch.ones(2))
    told = []
    end = subscribe(lambda event: told.append(event) if isinstance(event, FellBack) else None)
    try:
        result = core.compile(program, backend=bridged(Compiler(refuse)), on_failure="fallback")(torch.ones(2))
    finally:
        end()
    torch.testing.assert_close(result, torch.full((2,), 2.0))
    assert told and "dynamo:mine" in told[0].reason


def test_what_ran_in_torch_is_told():
    told = []
    end = subscribe(lambda event: told.append(event.finding.text) if isinstance(event, BackendReported) else None)
    try:
        core.compile(lambda x: x.sin() * 2, backend=bridged(Compiler()))(torch.ones(2))
    finally:
        end()
    assert told == ["dynamo:mine: 2 of 2 nodes ran in torch: mul, sin"]


@pytest.mark.slow
def test_names_of_the_peers_registry_are_reached_and_unknown_ones_named():
    program = lambda x: (x.sin() * 2).sum()  # noqa: E731
    x, y = torch.randn(4, requires_grad=True), torch.randn(4)
    for name in ("dynamo:aot_eager", "dynamo:inductor"):
        x.grad = None
        core.compile(program, backend=name)(x).backward()
        torch.testing.assert_close(x.grad, 2 * x.detach().cos())
    torch.testing.assert_close(core.compile(program, backend="dynamo:eager")(y), program(y))
    with pytest.raises(BackendNotInstalled, match="no_such"):
        core.compile(program, backend="dynamo:no_such")
    with pytest.raises(BridgeLoop, match="core's own"):
        core.compile(program, backend="dynamo:core_inductor")


def test_a_name_registered_in_this_process_works_bare():
    from torch._dynamo.backends.registry import _BACKENDS, _COMPILER_FNS, register_backend

    compiler = Compiler()

    def registered_here(gm, example_inputs):
        return compiler(gm, example_inputs)

    register_backend(registered_here)
    try:
        assert float(core.compile(lambda x: x + 1, backend="registered_here")(torch.zeros(()))) == 1
    finally:
        _COMPILER_FNS.pop("registered_here"), _BACKENDS.pop("registered_here")
    assert len(compiler.seen) == 1


def test_memory_that_torch_did_not_allocate_is_told_apart():
    import numpy

    assert tracing.has_torch_memory(torch.ones(3).untyped_storage())
    assert not tracing.has_torch_memory(torch.from_numpy(numpy.ones(3)).untyped_storage())


def test_a_foreign_module_that_does_not_import_is_named():
    from core.backends.bridge import load_foreign
    from core.backends.foreign import ForeignBackend, Registering

    found = ForeignBackend("theirs", "their-dist", "1.0", None, Registering("no_such_module_here", "their-dist"))
    with pytest.raises(BackendBroken, match="their-dist 1.0.*no_such_module_here"):
        load_foreign("theirs", found)


def test_core_imports_the_peer_only_for_a_name_of_its_registry():
    code = """
import sys, torch, core
from core.backends.bridge import resolved_foreign
from core.backends.foreign import Traits
backend = resolved_foreign("mine", lambda gm, inputs: gm, Traits())
core.compile(lambda x: x.sin() + 1, backend=backend)(torch.ones(2))
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
