"""A compiled program as bytes: the same numbers, here and in another process; refused where they do not fit."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib

import pytest
import torch
from core_inductor import storage
from core_inductor.plugin import InductorBackend
from core_inductor.runtime import build
from torch.fx.experimental.proxy_tensor import make_fx

import core
from core import events
from core.backends import stored
from core.plugin import CompileContext, StaleArtifact

F = torch.nn.functional


def compiled(fn, *inputs, tracing_mode="fake", **fields):
    graph = make_fx(fn, tracing_mode=tracing_mode)(*inputs)
    return InductorBackend().compile(graph, inputs, CompileContext(**fields))


def blob_of(fn, *inputs, **fields):
    return InductorBackend().serialize(compiled(fn, *inputs, **fields))


def forget_libraries(monkeypatch):
    monkeypatch.setattr(build, "_loaded", type(build._loaded)())
    monkeypatch.setattr(build, "_caches", {})


def without_compiler(*args, **kwargs):
    raise AssertionError("the compiler was started")


def block(x, w, b, up, down):
    h = F.layer_norm(x, (x.shape[-1],), w, b)
    return (x + F.linear(F.gelu(F.linear(h, up)), down), torch.softmax(h, -1).amax(-1))


def weights(width=24):
    generator = torch.Generator().manual_seed(0)
    sizes = [(width,), (width,), (3 * width, width), (width, 3 * width)]
    return [torch.randn(size, generator=generator) * 0.3 for size in sizes]


def test_a_stored_program_gives_the_same_numbers_and_counts_without_a_compiler(monkeypatch, tmp_path):
    inputs = (torch.randn(6, 24), *weights())
    first = compiled(block, *inputs)
    blob = InductorBackend().serialize(first)
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path / "elsewhere"))
    forget_libraries(monkeypatch)
    monkeypatch.setattr(build, "compile_source", without_compiler)
    again = InductorBackend().deserialize(blob, CompileContext())
    for want, got in zip(first.call(*inputs), again.call(*inputs)):
        assert torch.equal(want, got)
    for field in ("kernels", "extern_calls", "provenance", "size_bytes"):
        assert getattr(again, field) == getattr(first, field), field
    assert again.describe() == first.describe()
    assert InductorBackend().serialize(again) == blob


ELSEWHERE = """
import sys, torch
from core.plugin import CompileContext
from core_inductor.plugin import InductorBackend
from core_inductor.runtime import build
def fail(*args, **kwargs):
    raise SystemExit("the compiler was started")
build.compile_source = fail
blob = open(sys.argv[1], "rb").read()
given = torch.load(sys.argv[2])
artifact = InductorBackend().deserialize(blob, CompileContext())
torch.save(artifact.call(*given), sys.argv[3])
assert "core_inductor.lower" not in sys.modules and "sympy" not in sys.modules
"""


def test_another_process_in_another_folder_runs_it_without_lowering_or_building(tmp_path):
    inputs = (torch.randn(6, 24), *weights())
    artifact = compiled(block, *inputs)
    (tmp_path / "blob").write_bytes(InductorBackend().serialize(artifact))
    torch.save(inputs, tmp_path / "given")
    (tmp_path / "elsewhere").mkdir()
    environment = {**os.environ, "CORE_CACHE_DIR": str(tmp_path / "other cache")}
    files = [str(tmp_path / name) for name in ("blob", "given", "results")]
    command = [sys.executable, "-c", ELSEWHERE, *files]
    done = subprocess.run(command, cwd=tmp_path / "elsewhere", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for want, got in zip(artifact.call(*inputs), torch.load(files[2])):
        assert torch.equal(want, got)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_constants_travel_with_their_layout():
    expanded = torch.tensor([3.0]).expand(4)
    graph = make_fx(lambda x: (x * expanded, x + torch.tensor([1.0, 2.0, 3.0, 4.0])), tracing_mode="real")
    module = graph(torch.randn(4))
    for node in module.graph.nodes:
        if node.op == "get_attr":
            node.meta["val"] = getattr(module, node.target)
    x = torch.randn(4)
    first = InductorBackend().compile(module, [x], CompileContext())
    assert first.program.constants
    again = InductorBackend().deserialize(InductorBackend().serialize(first), CompileContext())
    assert [c.stride() for c in again.program.constants.values()] == [
        c.stride() for c in first.program.constants.values()
    ]
    for want, got in zip(first.call(x), again.call(x)):
        assert torch.equal(want, got)


def test_symbolic_sizes_stay_symbolic():
    def rows(x):
        return (torch.softmax(x, 1) * x.shape[0], torch.cat([x, x]))

    blob = blob_of(rows, torch.randn(5, 7), tracing_mode="symbolic")
    again = InductorBackend().deserialize(blob, CompileContext())
    for sizes in ((5, 7), (2, 3), (40, 9)):
        x = torch.randn(sizes)
        sizes_first = [n for n in again.program.python_source.split("def call(")[1].split(")")[0].split(",") if n]
        given = [x] if len(sizes_first) == 1 else [*sizes, x]
        for want, got in zip(rows(x), again.call(*given)):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    "name, words",
    [
        ("core-inductor", "made with core-inductor"),
        ("torch", "made with torch"),
        ("processor", "another processor"),
        ("flags", "made with flags"),
    ],
)
def test_what_was_made_for_something_else_is_stale(monkeypatch, name, words):
    x = torch.randn(3)
    here = storage.made_for
    monkeypatch.setattr(storage, "made_for", lambda: {**here(), name: "of somebody else"})
    blob = blob_of(torch.sin, x)
    monkeypatch.setattr(storage, "made_for", here)
    with pytest.raises(StaleArtifact, match=words):
        InductorBackend().deserialize(blob, CompileContext())


@pytest.mark.parametrize(
    "damage",
    [
        lambda blob: b"",
        lambda blob: blob[:-1],
        lambda blob: blob + b"\0",
        lambda blob: blob[:40] + bytes([blob[40] ^ 1]) + blob[41:],
        lambda blob: blob[:-9] + bytes([blob[-9] ^ 1]) + blob[-8:],
        lambda blob: storage.MAGIC + bytes(32) + zlib.compress(b"{}"),
    ],
)
def test_damaged_bytes_are_stale(damage):
    with pytest.raises(StaleArtifact, match="no stored program of core-inductor, or not whole"):
        InductorBackend().deserialize(damage(blob_of(torch.sin, torch.randn(3))), CompileContext())


def test_machine_code_that_can_not_be_loaded_is_stale(monkeypatch, tmp_path):
    artifact = compiled(torch.sin, torch.randn(3))
    blob = storage.pack(artifact.program, artifact.provenance, "0" * 40, b"no shared object")
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path / "elsewhere"))
    forget_libraries(monkeypatch)
    with pytest.raises(StaleArtifact):
        InductorBackend().deserialize(blob, CompileContext())


def test_nothing_is_stored_of_a_program_that_stays_off_the_disk():
    assert blob_of(torch.sin, torch.randn(3), options={"cache": False}) is None
    sent = blob_of(torch.sin, torch.randn(3), options={"cache": False}, isolated=True)
    again = InductorBackend().deserialize(sent, CompileContext(options={"cache": False}, isolated=True))
    assert InductorBackend().serialize(again) is None


def test_the_library_is_built_again_where_the_cache_was_emptied(cache_folder):
    artifact = compiled(torch.sin, torch.randn(3))
    for path in cache_folder.glob("*.so"):
        path.unlink()
    assert isinstance(InductorBackend().serialize(artifact), bytes)


# -- through core's store of artifacts --------------------------------------------------------------------------------


@pytest.fixture
def lowered(monkeypatch):
    """How many graphs were lowered."""
    from core_inductor import compile

    stored.default_store.cache_clear()
    counted, lower = [], compile.compile_fx
    monkeypatch.setattr(compile, "compile_fx", lambda *given: counted.append(1) or lower(*given))
    yield counted
    stored.default_store.cache_clear()


def once(function, *inputs, **options):
    core.reset()
    return core.compile(function, backend="inductor", **options)(*inputs)


def gelu_of_sum(x):
    return F.gelu(x + 1).sum(0)


def test_a_graph_is_lowered_once_for_a_machine(lowered):
    x = torch.randn(4, 3)
    first = once(gelu_of_sum, x)
    assert torch.equal(once(gelu_of_sum, x), first) and len(lowered) == 1
    assert torch.equal(once(gelu_of_sum, x, options={"parallel": False}), first) and len(lowered) == 2
    torch.testing.assert_close(once(gelu_of_sum, x.double()), gelu_of_sum(x.double()))
    assert len(lowered) == 3


def test_forward_and_backward_are_read_and_give_the_gradients(lowered):
    x = torch.randn(4, 3, requires_grad=True)
    once(gelu_of_sum, x).sum().backward()
    first, x.grad = x.grad, None
    assert len(lowered) == 2
    once(gelu_of_sum, x).sum().backward()
    assert torch.equal(x.grad, first) and len(lowered) == 2


def test_a_mended_program_reads_its_weights_anew(lowered):
    layer = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    with torch.no_grad():
        once(layer, x)
        layer.weight.mul_(3)
        torch.testing.assert_close(once(layer, x), layer(x))
    assert len(lowered) == 1


def test_what_was_assumed_of_sizes_is_not_read_where_it_is_not_assumed(lowered):
    """Code for even sizes has the graph of code for all sizes."""

    def halves(x):
        return torch.arange(x.shape[0] // 2 * 2) + 1

    def halves_of_even(x):
        if x.shape[0] % 2:
            return x
        return torch.arange(x.shape[0] // 2 * 2) + 1

    assert torch.equal(once(halves_of_even, torch.randn(6), dynamic=True), halves(torch.randn(6)))
    core.reset()
    run = core.compile(halves, backend="inductor", dynamic=True)
    for size in (6, 7, 9, 10):
        assert torch.equal(run(torch.randn(size)), halves(torch.randn(size))), size


def test_a_process_of_its_own_compiles_for_this_one(lowered):
    said = []
    stop = events.subscribe(said.append)
    x = torch.randn(4, 3)
    try:
        torch.testing.assert_close(once(gelu_of_sum, x, isolate="process"), gelu_of_sum(x))
    finally:
        stop()
    assert lowered == [] and sum(isinstance(event, events.ArtifactBuilt) for event in said) == 1
