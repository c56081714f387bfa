"""The backend without a GPU: what is found and refused, which product is chosen, what a call does, what is stored.

The library is a stand-in here wherever one is needed, and a GPU too.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import tomllib
import types
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

import core
from core.plugin import Artifact, Backend, Capabilities, StaleArtifact

pytest.importorskip("onnx")
pytest.importorskip("core_tensorrt")

from core_onnx.ports import Port  # noqa: E402
from core_tensorrt import artifact as artifacts  # noqa: E402
from core_tensorrt import driver, runtimes  # noqa: E402
from core_tensorrt.calls import EngineCall  # noqa: E402
from core_tensorrt.plugin import TensorRtBackend  # noqa: E402
from core_tensorrt.profiles import span_of  # noqa: E402

# -- which product ----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Installs stand-ins: a distribution with its version, a module that must not be imported."""
    real = runtimes.metadata.version
    known = {}

    def version(name):
        if "tensorrt" in name and "core" not in name:
            if name not in known:
                raise runtimes.metadata.PackageNotFoundError(name)
            return known[name]
        return real(name)

    def find_spec(name):
        place = tmp_path / f"{name}.py"
        return types.SimpleNamespace(origin=str(place)) if place.exists() else None

    monkeypatch.setattr(runtimes.metadata, "version", version)
    monkeypatch.setattr(runtimes.importlib.util, "find_spec", find_spec)

    def install(distribution, number, module):
        known[distribution] = number
        if module:
            (tmp_path / f"{module}.py").write_text("raise RuntimeError('imported to probe')")

    return install


def test_nothing_installed_is_said_with_what_to_install(site):
    choice = runtimes.choose()
    assert not choice.module and choice.reason == "TensorRT is not installed" and "core-tensorrt[cu13]" in choice.remedy
    assert "core-tensorrt[rtx]" in runtimes.choose("tensorrt_rtx").remedy


@pytest.mark.parametrize(
    "distribution, version, module, label",
    [
        ("tensorrt-cu13-bindings", "11.4.0.106", "tensorrt_bindings", "TensorRT 11.4.0.106"),
        ("tensorrt-cu12-bindings", "10.16.1.11", "tensorrt_bindings", "TensorRT 10.16.1.11"),
        ("tensorrt", "10.13.2.6", "tensorrt", "TensorRT 10.13.2.6"),
        ("tensorrt-rtx-cu13-bindings", "1.7.1.116", "tensorrt_rtx_bindings", "TensorRT-RTX 1.7.1.116"),
    ],
)
def test_the_module_of_what_is_installed_is_chosen_without_importing_it(site, distribution, version, module, label):
    before = module in sys.modules
    site(distribution, version, module)
    choice = runtimes.choose()
    assert (choice.module, choice.label, choice.reason) == (module, label, "")
    assert choice.cuda == (13 if "cu13" in distribution else 12 if "cu12" in distribution else 0)
    assert (module in sys.modules) is before


def test_of_two_products_the_wanted_one_and_the_one_with_code_for_the_gpu_are_chosen(site):
    site("tensorrt-rtx-cu13-bindings", "1.7.1.116", "tensorrt_rtx_bindings")
    assert runtimes.choose("auto", "8.6").module == "tensorrt_rtx_bindings"
    lone = runtimes.choose("auto", "9.0")
    assert not lone.module and "no code for compute capability 9.0" in lone.reason and "cu13" in lone.remedy
    site("tensorrt-cu13-bindings", "11.4.0", "tensorrt")
    assert runtimes.choose().module == runtimes.choose("auto", "9.0").module == "tensorrt"
    assert runtimes.choose("tensorrt_rtx", "8.6").module == "tensorrt_rtx_bindings"


def test_an_unknown_major_version_and_a_missing_module_are_said(site):
    site("tensorrt-cu13-bindings", "12.0.1", "tensorrt")
    assert "12.0.1 is installed, and this version knows 10 and 11" in runtimes.choose().reason
    site("tensorrt-rtx-cu13-bindings", "1.7.1", "")
    assert "without its module" in runtimes.choose("tensorrt_rtx").reason


# -- whether there is a GPU -------------------------------------------------------------------------------------------


def test_the_probe_says_that_there_is_no_gpu_and_what_to_do(site, monkeypatch):
    site("tensorrt-cu13-bindings", "11.4.0", "tensorrt_bindings")
    site("onnx", "1", "onnx")

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(driver.ctypes, "CDLL", missing)
    probe = TensorRtBackend().probe("cuda")
    assert not probe.ok and probe.reason == "no NVIDIA GPU: the driver's library libnvidia-ml.so.1 is not here"
    assert probe.remedy == "run on a machine with an NVIDIA GPU and its driver"
    other = TensorRtBackend().probe("cpu")
    assert not other.ok and "not on cpu" in other.reason


@pytest.mark.parametrize(
    "gpu, reason",
    [
        (driver.Gpu("9.0", (13, 0)), ""),
        (driver.Gpu("9.0", (12, 8)), "is built for CUDA 13, the driver has CUDA 12.8"),
        (driver.Gpu(reason="torch is built without CUDA", remedy="another torch"), "torch is built without CUDA"),
    ],
)
def test_the_probe_compares_the_driver_with_what_is_installed(site, monkeypatch, gpu, reason):
    site("tensorrt-cu13-bindings", "11.4.0", "tensorrt_bindings")
    site("onnx", "1", "onnx")
    monkeypatch.setattr(driver, "gpu_of", lambda device: gpu)
    probe = TensorRtBackend().probe("cuda:0")
    assert probe.ok is not bool(reason) and reason in probe.reason
    assert probe.ok is (dict(probe.runtime_versions) == {"tensorrt_bindings": "11.4.0"})


def test_tensors_of_the_cpu_are_refused_with_the_reason():
    core.reset()
    with pytest.raises(core.BackendUnavailable, match="tensorrt.*can't work on cpu: it declares the devices cuda"):
        core.compile(lambda x: x + 1, backend="tensorrt")(torch.ones(3))


# -- the call ---------------------------------------------------------------------------------------------------------


class Doubling:
    """An execution context that doubles float32 values of `in0` into `out0`, and says what it was told."""

    def __init__(self):
        self.at, self.shape, self.calls, self.works = {}, None, [], True

    def set_input_shape(self, name, shape):
        self.calls.append(("shape", name, shape))
        self.shape = shape
        return shape[0] <= 8

    def get_tensor_shape(self, name):
        return self.shape

    def set_tensor_address(self, name, at):
        self.calls.append(("address", name))
        self.at[name] = at
        return True

    def execute_async_v3(self, stream):
        count = self.shape[0] * self.shape[1]
        source = (ctypes.c_float * count).from_address(self.at["in0"])
        target = (ctypes.c_float * count).from_address(self.at["out0"])
        target[:] = [2 * value for value in source]
        self.calls.append(("run", stream))
        return self.works


@pytest.fixture
def doubled(monkeypatch):
    """(the call, its contexts, the stream that is current)."""
    stream = types.SimpleNamespace(cuda_stream=7, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    contexts = []

    def new():
        contexts.append(Doubling())
        return contexts[-1]

    ports = ([Port(0, "in0", torch.float32, None)], [Port(0, "out0", torch.float32, None)])
    return EngineCall(new, lambda: "out of memory", ports, 2, ["out0", None, "out0"], "cpu").function, contexts, stream


def aligned(*shape):
    """A tensor at an address that an engine takes."""
    count = torch.Size(shape).numel()
    room = torch.zeros(count + 64)
    skip = (-room.data_ptr() % 256) // 4
    return room[skip : skip + count].view(shape)


def test_a_call_sets_what_changed_and_runs_on_the_current_stream(doubled):
    call, contexts, stream = doubled
    x = aligned(3, 4).copy_(torch.randn(3, 4))
    first = call(x, None)
    assert torch.equal(first[0], x * 2) and first[1] is None and first[2] is first[0]
    (context,) = contexts
    assert context.calls == [("shape", "in0", (3, 4)), ("address", "in0"), ("address", "out0"), ("run", 7)]
    context.calls.clear()
    again = call(x, None)[0]
    assert again is not first[0] and context.calls == [("address", "out0"), ("run", 7)]
    stream.cuda_stream = 9
    call(x, None)
    assert len(contexts) == 2 and contexts[1].calls[-1] == ("run", 9)


def test_a_call_copies_what_lies_askew_and_raises_what_the_engine_refuses(doubled):
    call, contexts, _ = doubled
    for x, copied in (
        (aligned(3, 4), False),
        (aligned(4, 3).t(), True),
        (aligned(3, 8)[:, ::2], True),
        (aligned(5, 4)[1:], True),
    ):
        x.copy_(torch.randn(x.shape))
        assert torch.equal(call(x, None)[0], x * 2)
        assert (contexts[0].at["in0"] != x.data_ptr()) is copied
    with pytest.raises(RuntimeError, match="could not run the engine: out of memory"):
        call(aligned(9, 4), None)
    contexts[0].works = False
    with pytest.raises(RuntimeError, match="could not run the engine"):
        call(aligned(2, 4), None)


# -- engines kept and stored ------------------------------------------------------------------------------------------


class StandIn:
    """An engine of stand-in bytes that can be given weights as often as `refits` says."""

    made, refits = 0, True

    def __init__(self, module, blob):
        self.module, self.blob, self.layers = module, blob, 3

    def ports(self, ports):
        return list(ports)

    def context(self):
        return Doubling()

    def failure(self):
        return ""

    def serialized(self):
        return self.blob

    def refit(self, model):
        return self.refits


@pytest.fixture
def stand_in(monkeypatch):
    def build(model, fake_inputs, ranges, settings):
        StandIn.made += 1
        return artifacts.Built(f"engine {StandIn.made}".encode(), model, 3)

    StandIn.made, StandIn.refits = 0, True
    artifacts._kept.clear()
    monkeypatch.setattr(artifacts, "Engine", StandIn)
    monkeypatch.setattr(artifacts, "build_model", build)
    monkeypatch.setattr(artifacts, "capability_of", lambda device: "8.6")
    monkeypatch.setattr(artifacts, "choice_for", lambda ctx: runtimes.Choice(runtimes.RTX, "tensorrt_rtx", "1.7.1"))
    return StandIn


class Through(Backend):
    """The real backend's compile for tensors of the CPU, its engines stand-ins; what runs is the graph."""

    name, version = "through", "1"
    capabilities = Capabilities(graph_level="core-aten", dynamic_shapes="bounded")

    def compile(self, graph, fake_inputs, ctx):
        self.ctx, self.artifact = ctx, artifacts.compile_graph(graph, fake_inputs, ctx)
        return Artifact(call=graph.forward)


def through(fn, *calls, **options):
    backend = Through()
    core.reset()
    run = core.compile(fn, backend=backend, **options)
    with torch.no_grad():
        for args in calls:
            run(*args)
    return backend


def test_new_weights_are_given_to_the_engine_there_is_only_when_asked_for_and_allowed(stand_in):
    model = torch.nn.Linear(4, 4)
    x = torch.randn(2, 4)

    def builds(refit):
        stand_in.made = 0
        for _ in range(3):
            with torch.no_grad():
                model.weight.mul_(2)
            settings = {"refit": refit}
            backend = Through()
            backend.options = lambda: TensorRtBackend().options()
            core.reset()
            with torch.no_grad():
                core.compile(model, backend=backend, freeze=True, options=settings)(x)
        return stand_in.made

    assert builds(False) == 3
    assert builds(True) == 1
    stand_in.refits = False
    assert builds(True) == 3


def test_a_stored_engine_comes_back_and_one_of_another_version_does_not(stand_in, monkeypatch):
    backend, real = through(lambda x: (torch.relu(x) + 1, x.shape[0]), (torch.randn(2, 3),)), TensorRtBackend()
    blob = real.serialize(backend.artifact)
    again = real.deserialize(blob, backend.ctx)
    assert again.engine.blob == b"engine 1" and again.made.ports == backend.artifact.made.ports
    assert "engine of 3 layers" in again.describe() and "execute_async_v3" in again.describe()
    for damaged in (blob[:30], blob.replace(b"core-tensorrt 2", b"core-tensorrt 0")):
        with pytest.raises(StaleArtifact):
            real.deserialize(damaged, backend.ctx)
    monkeypatch.setattr("core_tensorrt.artifact.__version__", "0")
    with pytest.raises(StaleArtifact):
        real.deserialize(blob, backend.ctx)
    assert real.serialize(Artifact(call=print)) is None


def test_the_key_of_a_stored_engine_holds_version_options_and_gpu(stand_in, monkeypatch):
    backend, real = through(lambda x: x + 1, (torch.randn(2, 3),)), TensorRtBackend()
    monkeypatch.setattr(driver, "capability_of", lambda device: "8.6")
    keys = {real.cache_key(backend.ctx), real.cache_key(backend.ctx)}
    keys.add(real.cache_key(replace(backend.ctx, options={"workspace_bytes": 1 << 20})))
    keys.add(real.cache_key(replace(backend.ctx, workspace_limit_bytes=1 << 21)))
    monkeypatch.setattr(driver, "capability_of", lambda device: "9.0")
    keys.add(real.cache_key(backend.ctx))
    monkeypatch.setattr(artifacts, "choice_for", lambda ctx: runtimes.Choice(runtimes.RTX, "tensorrt_rtx", "1.7.2"))
    keys.add(real.cache_key(backend.ctx))
    assert len(keys) == 5


def test_a_call_without_elements_is_another_graph(stand_in):
    backend = through(lambda x: x * 2, (torch.ones(2, 3),), (torch.ones(4, 3),))
    assert stand_in.made == 2
    run = core.compile(lambda x: x * 2, backend=backend)
    for rows in (2, 4, 6, 0, 5):
        run(torch.ones(rows, 3))
    assert stand_in.made == 5


def test_sizes_have_spans_only_where_they_grow_with_their_symbols():
    sympy = pytest.importorskip("sympy")
    s, t = sympy.symbols("s t", integer=True, positive=True)
    ranges = {"s": (2, 16, 3), "t": (1, 4, 2)}

    def size(expression):
        return types.SimpleNamespace(node=types.SimpleNamespace(expr=expression))

    assert span_of(5, ranges) == (5, 5, 5)
    assert span_of(size(s), ranges) == (2, 3, 16)
    assert span_of(size(2 * s * t + t), ranges) == (5, 14, 132)
    for refused in (s - t, 8 - s, s % 3):
        with pytest.raises(Exception, match="does not grow"):
            span_of(size(refused), ranges)
    with pytest.raises(Exception, match="no upper bound"):
        span_of(size(s), {"s": (2, None, 3)})


# -- what is declared -------------------------------------------------------------------------------------------------


def test_the_manifest_says_what_the_backend_says():
    manifest = tomllib.loads(Path(artifacts.__file__).with_name("backend.toml").read_text())
    backend = TensorRtBackend()
    declared = {
        key: list(value) if isinstance(value, tuple) else value for key, value in vars(backend.capabilities).items()
    }
    assert {key: declared[key] for key in manifest["capabilities"]} == manifest["capabilities"]
    assert sorted(backend.options()) == manifest["options"] and manifest["name"] == backend.name


def test_torch_s_own_compile_finds_it_by_name():
    (found,) = entry_points(group="torch_dynamo_backends", name="core_tensorrt")
    assert found.load().__name__ == "core_tensorrt"
