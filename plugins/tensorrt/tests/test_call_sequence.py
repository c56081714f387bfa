"""The whole way of the backend through a stand-in of the library: what is called, in which order, with what result.

Tensors lie on the CPU, and the stream is a number; no engine of NVIDIA's is built or run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import core
from core.backends import stored
from core.cache.artifacts import ArtifactStore

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("core_tensorrt")

from core_tensorrt import artifact as artifacts  # noqa: E402
from core_tensorrt import runtimes  # noqa: E402
from core_tensorrt.plugin import TensorRtBackend  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import stand_in_library as library  # noqa: E402


class Here(TensorRtBackend):
    """The backend, for tensors of the CPU; it keeps the last artifact and its context."""

    capabilities = replace(TensorRtBackend.capabilities, devices=("cpu",))

    def probe(self, device):
        return core.plugin.Probe(True)

    def compile(self, graph, fake_inputs, ctx):
        self.ctx = ctx
        self.artifact = super().compile(graph, fake_inputs, ctx)
        return self.artifact


@pytest.fixture
def stream(monkeypatch, tmp_path):
    """The current stream; the library is the stand-in, the cache is empty."""
    monkeypatch.setattr(stored, "default_store", lambda: store)
    store = ArtifactStore(tmp_path)
    current = types.SimpleNamespace(cuda_stream=7, synchronize=lambda: library.said("synchronize"))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: current)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 6))
    monkeypatch.setitem(sys.modules, "tensorrt_stand_in", library)
    choice = runtimes.Choice(runtimes.TENSORRT, "tensorrt_stand_in", "11.4.0")
    monkeypatch.setattr(artifacts, "choose", lambda *_: choice)
    runtimes.load.cache_clear()
    runtimes.logger_of.cache_clear()
    artifacts._kept.clear()
    library.CALLS.clear()
    library.REFUSALS.clear()
    yield current
    library.REFUSALS.clear()
    runtimes.load.cache_clear()
    runtimes.logger_of.cache_clear()


def compiled(fn, **settings):
    core.reset()
    backend = Here()
    run = core.compile(fn, backend=backend, fullgraph=True, **settings)
    return torch.no_grad()(run), backend


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def since(run, *args):
    """The result of a call, and what it called."""
    library.CALLS.clear()
    return run(*args), list(library.CALLS)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def aligned(*shape):
    """A tensor at an address that an engine takes."""
    count = torch.Size(shape).numel()
    room = torch.randn(count + 64)
    skip = (-room.data_ptr() % 256) // 4
    return room[skip : skip + count].view(shape)


def test_an_engine_is_built_strongly_typed_and_run_on_the_current_stream(stream):
    model, x = Net().eval(), aligned(3, 8)
    run, _ = compiled(model)
    close(run(x), model(x))
    assert library.names()[:9] == [
        *("builder", "create_network", "load_model", "parse", "set_flag", "clear_flag", "build", "deserialize"),
        "context",
    ]
    assert library.names("create_network") == [("create_network", 1 << 1)]
    assert library.names("set_flag", "clear_flag") == [("set_flag", "STRICT_NANS"), ("clear_flag", "TF32")]
    assert library.CALLS[-1] == ("execute", 7) and not library.names("load_initializer", "synchronize", "shape")


def test_a_warm_call_sets_the_address_of_its_results_and_enqueues(stream):
    model, x = Net().eval(), aligned(3, 8)
    run, _ = compiled(model)
    weights = [weight.data_ptr() % 256 == 0 for weight in model.parameters()]
    run(x)
    got, calls = since(run, x)
    close(got, model(x))
    moved = [("address", f"in{index}") for index in range(5) if index and not weights[index - 1]]
    assert [call for call in calls if call not in moved] == [("address", "out0"), ("execute", 7)]
    stream.cuda_stream = 9
    got, calls = since(run, x)
    close(got, model(x))
    assert calls[0] == ("context",) and calls[-1] == ("execute", 9)
    stream.cuda_stream = 7
    assert ("context",) not in since(run, x)[1]


def test_nothing_in_a_call_of_fixed_sizes_is_forbidden_while_a_cuda_graph_is_captured(stream):
    x = aligned(4, 4)
    run, backend = compiled(lambda x: torch.relu(x @ x) + 1)
    run(x)
    for _ in range(2):
        _, calls = since(run, x)
        assert not library.CUDA_GRAPHS_FORBID & {call[0] for call in calls}
    assert backend.capabilities.cudagraph_safe == "no"  # never tried on a GPU


def test_a_thread_has_an_execution_context_of_its_own(stream):
    x = aligned(4, 4)
    run, _ = compiled(lambda x: x * 3)
    run(x)
    found = []
    library.CALLS.clear()
    thread = threading.Thread(target=lambda: found.append(run(x)))
    thread.start()
    thread.join()
    close(found[0], x * 3)
    assert library.names("context") == [("context",)] and not library.names("build")


def test_sizes_that_change_are_one_engine_with_a_profile_and_shapes_are_set_before_addresses(stream):
    model = Net().eval()
    run, _ = compiled(model)
    for rows in (2, 3):
        x = aligned(rows, 8)
        close(run(x), model(x))
    ((_, name, least, usual, largest),) = library.names("set_shape")
    assert name == "in0" and usual == (3, 8) and least[0] in (1, 2) and largest[0] >= 8
    assert (
        library.names().index("add_optimization_profile") < len(library.names()) - 1
        and len(library.names("build")) == 2
    )
    x = aligned(5, 8)
    got, calls = since(run, x)
    close(got, model(x))
    order = [call[:2] for call in calls]
    assert order.index(("shape", "in0")) < order.index(("address", "in0")) < order.index(("execute", 7))
    assert not [call for call in calls if call[0] in ("build", "context")]
    got, calls = since(run, x)
    assert not [call for call in calls if call[0] == "shape"]


def test_a_number_of_the_program_is_given_in_host_memory(stream):
    def fn(x, n):
        return x * n

    run, _ = compiled(fn)
    x = aligned(4, 4)
    for number in (2, 3, 5):
        close(run(x, number), x * number)
    assert library.names("execute") and not library.REFUSALS


@pytest.mark.parametrize("allowed", [True, False])
def test_new_weights_refit_the_engine_there_is_where_it_allows_that(stream, allowed):
    model, x = Net().eval(), aligned(3, 8)
    run, _ = compiled(model, freeze=True, options={"refit": True})
    close(run(x), model(x))
    assert ("set_flag", "REFIT") in library.CALLS and len(library.names("load_initializer")) == 4
    if not allowed:
        library.REFUSALS.add("refit_model")
    with torch.no_grad():
        model.first.weight.mul_(-2)
    got, calls = since(run, x)
    close(got, model(x))
    steps = [call[0] for call in calls]
    assert ("build" in steps) is not allowed and "refit_model" in steps
    if allowed:
        assert steps.index("load_model") < steps.index("load_initializer") < steps.index("refit_model")
        assert steps.index("refit_model") < steps.index("refit_engine") < steps.index("execute")


def test_without_refit_new_weights_are_a_new_engine(stream):
    model, x = Net().eval(), aligned(3, 8)
    run, _ = compiled(model, freeze=True)
    close(run(x), model(x))
    with torch.no_grad():
        model.last.bias.add_(1)
    got, calls = since(run, x)
    close(got, model(x))
    assert [call[0] for call in calls].count("build") == 1 and ("set_flag", "REFIT") not in calls


def test_a_stored_engine_runs_without_a_builder_and_a_refused_one_is_stale(stream):
    model, x = Net().eval(), aligned(3, 8)
    run, backend = compiled(model)
    want = run(x)
    blob = backend.serialize(backend.artifact)
    library.CALLS.clear()
    again = backend.deserialize(blob, backend.ctx)
    inputs = [x, *model.parameters()]
    with torch.no_grad():
        close(again.call(*inputs)[0], want)
    assert library.names()[:2] == ["deserialize", "context"] and "build" not in library.names()
    library.REFUSALS.add("deserialize")
    with pytest.raises(core.plugin.StaleArtifact):
        backend.deserialize(blob, backend.ctx)


def test_an_engine_that_the_cache_has_is_not_built_again(stream):
    model, x = Net().eval(), aligned(3, 8)
    close(compiled(model)[0](x), model(x))
    with torch.no_grad():
        model.first.weight.mul_(-2)
    library.CALLS.clear()
    close(compiled(model)[0](x), model(x))
    assert library.names()[:2] == ["deserialize", "context"] and "builder" not in library.names()
    compiled(model, options={"optimization_level": 1})[0](x)
    assert "build" in library.names()


def test_options_reach_the_builder(stream):
    run, _ = compiled(lambda x: x + 1, options={"workspace_bytes": 1 << 20, "optimization_level": 3})
    run(aligned(2, 2))
    assert ("set_memory_pool_limit", "WORKSPACE", 1 << 20) in library.CALLS
    assert ("builder_optimization_level", 3) in library.CALLS
    with pytest.raises(core.BackendFailed, match="builds for the GPU at hand only"):
        compiled(lambda x: x - 1, options={"compute_capability": "8.6"})[0](aligned(2, 2))


@pytest.mark.parametrize(
    "step, error, words",
    [
        ("parse", core.CoreError, "Erf: no plugin of that name"),
        ("build", core.BackendFailed, "no tactic for a layer"),
        ("deserialize", core.BackendFailed, "the engine is of another version"),
    ],
)
def test_what_the_library_refuses_while_compiling_is_said_in_its_words(stream, step, error, words):
    library.REFUSALS.add(step)
    run, _ = compiled(lambda x: x * 2 + 1, fallback=(), fullgraph_backend=True)
    with pytest.raises(error, match=words):
        run(aligned(2, 2))


@pytest.mark.parametrize("step", ["context", "execute"])
def test_what_it_refuses_in_a_call_is_an_error_and_the_next_call_works(stream, step):
    x = aligned(2, 2)
    run, _ = compiled(lambda x: x * 2)
    library.REFUSALS.add(step)
    with pytest.raises(RuntimeError, match="TensorRT could not run the engine"):
        run(x)
    library.REFUSALS.clear()
    close(run(x), x * 2)
