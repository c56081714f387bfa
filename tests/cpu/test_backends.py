"""Backends of every kind compile captured graphs; what they do wrong is found, named and reported."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

_SPEC = importlib.util.spec_from_file_location("backend_harness", Path(__file__).with_name("backend_harness.py"))
harness = sys.modules.setdefault("backend_harness", importlib.util.module_from_spec(_SPEC))
if not hasattr(harness, "compiled"):
    _SPEC.loader.exec_module(harness)
compiled, leaf, Events = harness.compiled, harness.leaf, harness.Events

from core.backends.artifact import BackendReported  # noqa: E402
from core.backends.registry import resolve_backend  # noqa: E402
from core.errors import (  # noqa: E402
    BackendFailed,
    BackendMisbehaved,
    BackendUnavailable,
    InvalidOption,
    RecorderRefused,
)
from core.events import ArtifactBuilt, FellBack, GraphCaptured  # noqa: E402
from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileFailed,
    Finding,
    Option,
    PluginBug,
    Probe,
)


def program(x, w):
    return torch.relu(x @ w), (x * 2).sum()


def inputs():
    return torch.randn(4, 5), torch.randn(5, 3)


class Recording(Backend):
    """Runs the graph as it is and keeps what it was asked."""

    name = "recording"
    version = "2.5"

    def __init__(self, level="aten-functional", failure=None):
        self.capabilities = Capabilities(graph_level=level)
        self.failure = failure
        self.asked = []

    def options(self):
        return {"level": Option(int, 3)}

    def compile(self, graph, fake_inputs, ctx):
        if self.failure is not None:
            raise self.failure
        self.asked.append((graph, list(fake_inputs), ctx))
        ctx.report(Finding("info", f"compiled {ctx.name}"))
        return Artifact(graph.forward, kernels=2, extern_calls=5)

    def targets(self, at=-1):
        return [str(node.target) for node in self.asked[at][0].graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", Recording("torch"), Recording(), Recording("core-aten")])
def test_every_graph_level_computes_what_eager_does(backend):
    x, w = inputs()
    run = compiled(program, x, w, backend=backend)
    for _ in range(2):
        x, w = inputs()
        torch.testing.assert_close(run(x, w), program(x, w))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", Recording("torch"), Recording(), Recording("core-aten")])
def test_every_graph_level_trains_as_eager_does(backend):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    x = leaf(4, 5)
    wanted = [x, *net.parameters()]
    run = compiled(lambda x: (net(x).softmax(-1),), x, backend=backend)
    for _ in range(2):
        found = torch.autograd.grad(run(x)[0].pow(2).sum(), wanted)
        expected = torch.autograd.grad(net(x).softmax(-1).pow(2).sum(), wanted)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


# -- functions as backends --------------------------------------------------------------------------------------------


def test_a_function_gets_the_torch_graph_and_its_inputs_and_may_return_the_graph():
    seen = []

    def backend(gm, example_inputs):
        seen.append(([node.op for node in gm.graph.nodes], [tuple(i.shape) for i in example_inputs]))
        return gm

    x, w = inputs()
    run = compiled(program, x, w, backend=backend)
    torch.testing.assert_close(run(x, w), program(x, w))
    assert seen[0][1] == [(4, 5), (5, 3)]
    assert seen[0][0].count("placeholder") == 2
    assert run.holder[0] == run.captured.module.forward


def test_a_function_may_return_lists_and_take_options():
    def backend(gm, example_inputs, scale=1):
        return lambda *values: [result * scale for result in gm(*values)]

    x, w = inputs()
    run = compiled(program, x, w, backend=backend, backend_options={"scale": 3})
    for _ in range(2):
        found = run(x, w)
        assert type(found) is tuple
        torch.testing.assert_close(found, tuple(3 * result for result in program(x, w)))
    with pytest.raises(InvalidOption, match="does not take the options depth"):
        compiled(program, x, w, backend=backend, backend_options={"depth": 3})


def test_a_function_trains_through_torchs_own_autograd():
    x, w = leaf(4, 5), leaf(5, 3, seed=1)
    run = compiled(program, x, w, backend=lambda gm, example_inputs: gm.forward)
    found = torch.autograd.grad(run(x, w)[0].sum(), [x, w])
    torch.testing.assert_close(found, torch.autograd.grad(program(x, w)[0].sum(), [x, w]))


# -- what the backend is told and what it reports ---------------------------------------------------------------------


def test_the_context_describes_the_graph():
    backend = Recording()
    net = torch.nn.Linear(5, 3)
    x = torch.randn(4, 5)
    compiled(lambda x: (net(x).t(),), x, backend=backend, backend_options={"level": 7})
    graph, fakes, ctx = backend.asked[0]
    assert (ctx.device, ctx.mode, ctx.name, ctx.options) == ("cpu", "forward", "graph", {"level": 7})
    assert [tuple(fake.shape) for fake in fakes] == [(4, 5), (3, 5), (3,)]
    assert ctx.parameters == frozenset({1, 2})
    assert ctx.output_strides[0] == (1, 3)


def test_the_backward_context_names_the_parameters_among_what_was_saved():
    backend = Recording()
    net = torch.nn.Linear(5, 3)
    x = leaf(4, 5)
    run = compiled(lambda x: (net(x).sum(),), x, backend=backend)
    run(x)[0].backward()
    _, fakes, ctx = backend.asked[1]
    assert (ctx.mode, ctx.name) == ("backward", "graph_backward")
    assert [tuple(fakes[at].shape) for at in ctx.parameters] == [(3, 5)]


def test_events_count_graphs_operations_kernels_and_findings():
    x, w = inputs()
    with Events() as events:
        compiled(program, x, w, backend=Recording())
    captured, built = events.of(GraphCaptured), events.of(ArtifactBuilt)
    assert [(e.backend, e.ops) for e in captured] == [("recording", 4)]
    assert [(e.backend, e.mode, e.kernels, e.extern_calls) for e in built] == [("recording", "inference", 2, 5)]
    assert [e.finding.text for e in events.of(BackendReported)] == ["compiled graph"]


def test_aot_eager_reports_each_operator_as_a_library_call():
    x, w = inputs()
    with Events() as events:
        compiled(program, x, w)
    artifact = events.of(ArtifactBuilt)[0].artifact
    assert artifact.extern_calls == 4 and set(artifact.provenance.values()) == {"library"}
    assert "aten.mm.default" in artifact.describe()


# -- decompositions ---------------------------------------------------------------------------------------------------


def test_the_core_level_gets_core_operators_only():
    backend = Recording("core-aten")
    x = leaf(4, 6)

    def decomposable(x):
        return (torch.addcmul(F.hardswish(x), x, x).softmax(-1), F.silu(x))

    run = compiled(decomposable, x, backend=backend)
    sum(result.sin().sum() for result in run(x)).backward()
    forward, backward = set(backend.targets(0)), set(backend.targets(1))
    assert not {"aten.hardswish.default", "aten.addcmul.default", "aten.silu.default"} & forward
    assert not {"aten.hardswish_backward.default", "aten._softmax_backward_data.default"} & backward


def test_a_backends_own_table_is_applied():
    class Own(Recording):
        def decompositions(self, mode):
            return {torch.ops.aten.relu.default: lambda x: torch.ops.aten.clamp_min.default(x, 0)}

    backend = Own()
    x, w = inputs()
    run = compiled(program, x, w, backend=backend)
    torch.testing.assert_close(run(x, w), program(x, w))
    assert "aten.clamp_min.default" in backend.targets() and "aten.relu.default" not in backend.targets()


def test_attention_is_never_taken_apart():
    backend = Recording("core-aten")
    q, k, v = (leaf(1, 2, 8, 4, seed=seed) for seed in range(3))

    def attention(q, k, v):
        return (F.scaled_dot_product_attention(q, k, v, is_causal=True),)

    run = compiled(attention, q, k, v, backend=backend)
    found = torch.autograd.grad(run(q, k, v)[0].sin().sum(), [q, k, v])
    expected = torch.autograd.grad(attention(q, k, v)[0].sin().sum(), [q, k, v])
    torch.testing.assert_close(found, expected)
    assert any("attention" in target for target in backend.targets(0))


def test_decomposed_graphs_keep_mutation_and_views():
    backend = Recording("core-aten")

    def mutating(x):
        x.mul_(F.hardswish(x))
        return x.t(), x, F.hardsigmoid(x).view(-1)

    x = torch.randn(3, 4)
    run = compiled(mutating, x, backend=backend)
    for _ in range(2):
        mine, theirs = torch.randn(2, 3, 4).unbind(0)
        theirs.copy_(mine)
        found, expected = run(mine), mutating(theirs)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(mine, theirs)
        assert found[1] is mine


def test_unknown_named_set_is_the_plugins_fault():
    class Own(Recording):
        def decompositions(self, mode):
            return "everything"

    x, w = inputs()
    with pytest.raises(ValueError, match="no set of decompositions named 'everything'"):
        compiled(program, x, w, backend=Own())


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ValueError("bad luck"), "raised ValueError while compiling: bad luck"),
        (CompileFailed("lowering", "line 3"), "failed: lowering failed"),
        (NotImplementedError("later"), "raised NotImplementedError"),
    ],
)
def test_errors_of_a_backend_are_raised_with_its_name_and_the_users_line(failure, text):
    x, w = inputs()
    with pytest.raises(BackendFailed) as caught:
        compiled(program, x, w, backend=Recording(failure=failure))
    assert text in caught.value.what and "recording" in caught.value.what
    assert caught.value.__cause__ is failure
    assert caught.value.where is not None and caught.value.where.filename == "program.py"


def test_a_distributions_fault_says_where_to_report_it():
    resolved = resolve_backend(Recording(failure=KeyError("x")))
    resolved.distribution, resolved.version, resolved.issues = "core-recording", "2.5", "https://example.org/issues"
    x, w = inputs()
    with pytest.raises(PluginBug) as caught:
        compiled(program, x, w, backend=resolved)
    assert (caught.value.dist, caught.value.version) == ("core-recording", "2.5")
    assert "https://example.org/issues" in caught.value.remedy
    assert "recording (core-recording 2.5)" in caught.value.what


@pytest.mark.parametrize("hook", ["compile", "supports"])
def test_a_runtime_that_can_not_be_imported_is_to_be_installed_again(hook):
    class Damaged(Recording):
        def raises(self, *_):
            raise ImportError("libruntime.so.1: cannot open shared object file")

    setattr(Damaged, hook, Damaged.raises)
    resolved = resolve_backend(Damaged())
    resolved.distribution, resolved.version = "core-recording", "2.5"
    x, w = inputs()
    with pytest.raises(PluginBug, match="libruntime") as caught:
        compiled(program, x, w, backend=resolved)
    assert "reinstall what core-recording needs" in caught.value.remedy and "report" not in caught.value.remedy


WRONG_RESULTS = {
    "number of outputs": (lambda results: results[:1], "1 outputs, the graph has 2"),
    "dtype": (lambda results: (results[0].double(), results[1]), "output 0 with dtype torch.float64"),
    "shape": (lambda results: (results[0], results[1].view(1)), r"output 1 with shape \(1,\)"),
    "kind": (lambda results: (results[0], 3.0), "output 1 with the type float, not a tensor"),
    "no tuple": (lambda results: results[0], "a Tensor instead of a tuple"),
}


@pytest.mark.parametrize("kind", WRONG_RESULTS)
@pytest.mark.parametrize("level", ["torch", "aten-functional"])
def test_wrong_results_are_found_on_the_first_run(kind, level):
    change, message = WRONG_RESULTS[kind]

    class Wrong(Recording):
        def compile(self, graph, fake_inputs, ctx):
            return Artifact(lambda *values: change(graph.forward(*values)))

    x, w = inputs()
    run = compiled(program, x, w, backend=Wrong(level))
    with pytest.raises(BackendMisbehaved, match=message):
        run(x, w)
    with pytest.raises(BackendMisbehaved):  # it stays unsettled: the next call is checked as well
        run(x, w)


def test_what_is_no_artifact_is_refused():
    class Wrong(Recording):
        def compile(self, graph, fake_inputs, ctx):
            return graph

    x, w = inputs()
    with pytest.raises(BackendFailed, match="returned .*, not a core.plugin.Artifact"):
        compiled(program, x, w, backend=Wrong())


def test_a_device_that_the_backend_refuses_is_an_error_before_compiling():
    class Refusing(Recording):
        def probe(self, device):
            return Probe(False, f"{device} is too slow", "buy another")

    backend = Refusing()
    x, w = inputs()
    with pytest.raises(BackendUnavailable, match="cpu is too slow"):
        compiled(program, x, w, backend=backend)
    assert not backend.asked


def test_training_on_an_inference_backend_is_refused_with_the_remedy():
    backend = Recording()
    backend.capabilities = Capabilities(modes=("inference",))
    x = leaf(4)
    with pytest.raises(BackendUnavailable, match="does not do training") as caught:
        compiled(lambda x: (x.exp(),), x, backend=backend)
    assert "torch.no_grad()" in caught.value.remedy
    with torch.no_grad():
        assert torch.equal(compiled(lambda x: (x.exp(),), x, backend=backend)(x)[0], x.exp())


def test_a_backend_that_is_not_thread_safe_compiles_one_graph_at_a_time():
    import threading
    import time

    busy, most = [], []

    class Slow(Recording):
        def compile(self, graph, fake_inputs, ctx):
            busy.append(1)
            most.append(len(busy))
            time.sleep(0.02)
            busy.pop()
            return Artifact(graph.forward)

    backend = Slow()
    backend.capabilities = Capabilities(thread_safe=False)
    resolved = resolve_backend(backend)
    captured = [harness.capture(program, *inputs()) for _ in range(4)]

    def work(graph):
        harness.compile_graph(graph, resolved, harness.CompileOptions())

    threads = [threading.Thread(target=work, args=(graph,)) for graph in captured]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


# -- what the recorder refuses ----------------------------------------------------------------------------------------


def overlapping(p, q):
    p.add_(1)
    return (q * 2,)


def windows(base):
    return base[:4], base[2:]


@pytest.fixture
def lenient(monkeypatch):
    monkeypatch.delenv("CORE_STRICT", raising=False)


def test_inference_on_inputs_that_overlap_runs_as_captured(lenient):
    backend = Recording()
    base = torch.randn(6)
    with Events() as events:
        run = compiled(overlapping, *windows(base.clone()), backend=backend)
    assert ["the graph runs as captured" in event.reason for event in events.of(FellBack)] == [True]
    assert not backend.asked
    for _ in range(2):
        mine, theirs = base.clone(), base.clone()
        torch.testing.assert_close(run(*windows(mine)), overlapping(*windows(theirs)))
        torch.testing.assert_close(mine, theirs)


def test_training_that_functionalisation_refuses_runs_as_captured(lenient):
    backend = Recording()

    def make():
        source = torch.arange(4.0).requires_grad_()
        return source, (source * 1)[1:], leaf(3)

    def update(view, y):
        view.mul_(2)
        return ((view * y).sum(),)

    _, view, y = make()
    with Events() as events:
        run = compiled(update, view, y, backend=backend)
    assert ["the graph runs as captured" in event.reason for event in events.of(FellBack)] == [True]
    assert not backend.asked
    for _ in range(2):
        source, view, y = make()
        found = torch.autograd.grad(run(view, y)[0], [source, y])
        source, view, y = make()
        torch.testing.assert_close(found, torch.autograd.grad(update(view, y)[0], [source, y]))


def test_strict_mode_raises_the_refusal(monkeypatch):
    monkeypatch.setenv("CORE_STRICT", "1")
    with pytest.raises(RecorderRefused, match="shares memory with another input"):
        compiled(overlapping, *windows(torch.randn(6)))
