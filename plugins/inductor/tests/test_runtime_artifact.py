"""The whole way of one graph through the plugin: fx graph in, Artifact out, numbers and counts right."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from core_inductor.plugin import InductorBackend
from core_inductor.runtime import build
from torch.fx.experimental.proxy_tensor import make_fx

from core.plugin import CompileContext, CompileFailed

F = torch.nn.functional


def compiled(fn, *inputs, tracing_mode="fake", **fields):
    graph = make_fx(fn, tracing_mode=tracing_mode)(*inputs)
    return InductorBackend().compile(graph, inputs, CompileContext(**fields))


def assert_matches(artifact, fn, *inputs):
    got, want = artifact.call(*inputs), fn(*inputs)
    assert type(got) is tuple and len(got) == len(want)
    for result, expected in zip(got, want):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        torch.testing.assert_close(result, expected)


def block(x, w, b, up, down):
    h = F.layer_norm(x, (x.shape[-1],), w, b)
    h = F.linear(F.gelu(F.linear(h, up)), down)
    return (x + h, torch.softmax(h, -1).amax(-1))


def weights(width=24):
    generator = torch.Generator().manual_seed(0)
    sizes = [(width,), (width,), (3 * width, width), (width, 3 * width)]
    return [torch.randn(size, generator=generator) * 0.3 for size in sizes]


def test_a_block_of_layers_gives_eagers_numbers_and_counts_its_calls():
    inputs = (torch.randn(6, 24), *weights())
    artifact = compiled(block, *inputs, name="block")
    assert_matches(artifact, block, *inputs)
    assert artifact.extern_calls == 2 and 2 <= artifact.kernels <= 4
    assert set(artifact.provenance.values()) == {"native", "library"}
    assert "def call(" in artifact.describe() and 'extern "C"' in artifact.describe()


def test_large_inputs_run_on_all_threads_and_small_ones_too():
    for rows in (1, 3, 5000):
        inputs = (torch.randn(rows, 24), *weights())
        assert_matches(compiled(block, *inputs), block, *inputs)


def test_symbolic_sizes_are_compiled_once():
    inputs = (torch.randn(6, 24), *weights())
    artifact = compiled(block, *inputs, tracing_mode="symbolic")
    for rows in (2, 3, 6, 40, 700):
        assert_matches(artifact, block, torch.randn(rows, 24), *weights())


def test_equal_graphs_share_one_compiler_run(monkeypatch):
    runs = []
    compile_source = build.compile_source
    monkeypatch.setattr(build, "compile_source", lambda *args: (runs.append(args), compile_source(*args)))
    first = compiled(lambda x: (torch.exp(x) + 1,), torch.randn(9))
    second = compiled(lambda y: (torch.exp(y) + 1,), torch.randn(9))
    assert len(runs) == 1 and first.call is not second.call
    assert_matches(second, lambda x: (torch.exp(x) + 1,), torch.randn(9))


def test_a_graph_of_extern_calls_only_needs_no_kernel(monkeypatch):
    monkeypatch.setattr(build, "compile_source", None)
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    artifact = compiled(lambda a, b: (torch.mm(a, b),), a, b)
    assert (artifact.kernels, artifact.extern_calls) == (0, 1)
    assert_matches(artifact, lambda a, b: (torch.mm(a, b),), a, b)


def test_an_index_out_of_range_raises_as_eager_does():
    def look_up(table, index):
        return (F.embedding(index, table) * 2,)

    table, good, bad = torch.randn(5, 3), torch.tensor([0, 4]), torch.tensor([0, 5])
    artifact = compiled(look_up, table, good)
    assert_matches(artifact, look_up, table, good)
    with pytest.raises(IndexError) as expected:
        look_up(table, bad)
    with pytest.raises(IndexError) as raised:
        artifact.call(table, bad)
    assert str(raised.value) == str(expected.value)


def test_a_constant_of_the_graph_is_used():
    constant = torch.randn(4)

    def fn(x):
        return (x + constant,)

    x = torch.randn(4)
    assert_matches(compiled(fn, x, tracing_mode="real"), fn, x)


def test_bad_generated_code_raises_compile_failed_with_the_log(monkeypatch):
    from core_inductor import compile as pipeline

    compile_fx = pipeline.compile_fx

    def broken(graph):
        program = compile_fx(graph)
        program.cpp_source += "this is no C++"
        return program

    monkeypatch.setattr(pipeline, "compile_fx", broken)
    with pytest.raises(CompileFailed, match="C\\+\\+ compiler") as failure:
        compiled(lambda x: (x + 1,), torch.randn(3))
    assert "error:" in failure.value.log


def test_warm_calls_enter_no_python_file_of_the_plugin():
    inputs = (torch.randn(6, 24), *weights())
    artifact = compiled(block, *inputs)
    artifact.call(*inputs)
    entered = []
    sys.setprofile(lambda frame, event, arg: entered.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        artifact.call(*inputs)
    finally:
        sys.setprofile(None)
    assert [name for name in entered if not name.startswith("<inductor")] == []


def test_threads_compile_and_call_at_the_same_time():
    failures = []

    def traced(width):  # make_fx itself is not made for threads
        fn, x = lambda x: (torch.sigmoid(x * width).sum(-1),), torch.randn(7, width)
        return width, fn, x, make_fx(fn, tracing_mode="fake")(x)

    def work(width, fn, x, graph):
        artifact = InductorBackend().compile(graph, (x,), CompileContext())
        for _ in range(20):
            if not torch.allclose(artifact.call(x)[0], fn(x)[0], rtol=1e-5):
                failures.append(width)

    threads = [threading.Thread(target=work, args=traced(width)) for width in (3, 17, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_artifact_is_freed_with_its_kernels():
    import gc
    import weakref

    artifact = compiled(lambda x: (x.tanh() + 1,), torch.randn(9))
    kernel = artifact.call.__globals__["k0"]
    library = weakref.ref(kernel.library)
    del kernel, artifact
    gc.collect()
    assert library() is None
