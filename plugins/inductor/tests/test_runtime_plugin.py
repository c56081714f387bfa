"""The plugin object: what importing it costs, and what it does on a machine without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import types
import warnings
from pathlib import Path

import core_inductor
import pytest
import torch
from core_inductor import aten
from core_inductor.artifact import bind
from core_inductor.plugin import InductorBackend, core_backend
from torch.fx.experimental.proxy_tensor import make_fx

import core
from core.plugin import CompileContext, CompileFailed

PACKAGE = Path(core_inductor.__file__).parent


def run(code, **environment):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def graph_and_context(**fields):
    findings = []
    graph = make_fx(lambda x: (torch.ops.aten.relu(x) * 2, x.sum()))(torch.randn(4, 5))
    return graph, CompileContext(report=findings.append, **fields), findings


def test_importing_the_plugin_imports_no_torch_and_no_triton():
    code = "import core_inductor.plugin, sys; print(sorted({'torch', 'triton', 'sympy'} & set(sys.modules)))"
    result = run(code)
    assert result.stdout == "[]\n", result.stderr


def test_the_compile_path_imports_neither_triton_nor_the_peers():
    code = """
import sys, torch
import core_inductor.artifact
print(sorted({'triton', 'torch._dynamo', 'torch._inductor', 'ctypes.util'} & set(sys.modules)))
"""
    assert "triton" not in run(code).stdout and "_inductor" not in run(code).stdout


def test_a_users_own_core_folder_is_named_in_the_error(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import core_inductor.plugin"
    result = run(code)
    assert result.returncode != 0
    assert "CoreShadowed" in result.stderr and str(tmp_path / "core") in result.stderr and "-P" in result.stderr
    assert "[CORE-P002] core_inductor needs the compiler" in result.stderr and "remedy: rename" in result.stderr


def test_a_users_own_core_plugin_module_is_not_taken_for_the_compiler(tmp_path):
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("")
    (tmp_path / "core" / "plugin.py").write_text("Backend = object")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import core_inductor.plugin"
    result = run(code)
    assert "CoreShadowed" in result.stderr and str(tmp_path / "core") in result.stderr


def test_the_manifest_and_the_backend_agree():
    manifest = tomllib.loads((PACKAGE / "backend.toml").read_text())
    backend = core_backend()
    assert (manifest["name"], sorted(manifest["options"])) == (backend.name, sorted(backend.options()))
    for key, value in manifest["capabilities"].items():
        declared = getattr(backend.capabilities, key)
        assert (list(declared) if isinstance(declared, tuple) else declared) == value, key
    assert backend.version == core_inductor.__version__


def test_the_probe_accepts_the_cpu_and_names_an_unknown_device():
    backend = InductorBackend()
    assert backend.probe("cpu").ok and "compiler" in backend.probe("cpu").runtime_versions
    assert not backend.probe("xpu:0").ok and "xpu" in backend.probe("xpu:0").reason


def test_the_probe_without_a_compiler_says_that_graphs_run_through_torch(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    probe = InductorBackend().probe("cpu")
    assert probe.ok and "torch's kernels" in probe.reason and "g++" in probe.remedy


def test_without_a_compiler_graphs_run_through_torch_with_one_warning(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CORE_STRICT", raising=False)
    monkeypatch.setattr(aten, "_warned", set())
    graph, ctx, findings = graph_and_context()
    with pytest.warns(RuntimeWarning, match="g\\+\\+"):
        artifact = InductorBackend().compile(graph, (), ctx)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        InductorBackend().compile(graph, (), ctx)
    x = torch.randn(4, 5)
    relu, total = artifact.call(x)
    assert torch.equal(relu, x.relu() * 2) and torch.equal(total, x.sum())
    assert (artifact.kernels, artifact.extern_calls) == (0, 3)
    assert set(artifact.provenance.values()) == {"fallback"}
    assert len(findings) == 2 and "through torch's kernels" in findings[0].text and findings[0].remedy


@pytest.mark.parametrize("how", ["option", "strict"])
def test_without_a_compiler_compile_can_be_made_to_raise(monkeypatch, how):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CORE_STRICT", "1" if how == "strict" else "0")
    graph, ctx, _ = graph_and_context(options={"missing_compiler": "raise"} if how == "option" else {})
    with pytest.raises(CompileFailed, match="no C\\+\\+ compiler"):
        InductorBackend().compile(graph, (), ctx)


def test_the_cache_key_changes_with_the_compiler(monkeypatch):
    ctx = CompileContext()
    with_compiler = InductorBackend().cache_key(ctx)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert InductorBackend().cache_key(ctx) == b"aten" != with_compiler


def test_a_torch_that_the_extension_cannot_read_runs_graphs_through_torch(monkeypatch):
    from core_inductor.runtime import load

    def unknown(torch_module, samples):
        raise ImportError("an unknown layout")

    monkeypatch.delenv("CORE_STRICT", raising=False)
    monkeypatch.setattr(load, "_calibrated", False)
    monkeypatch.setattr(load._runtime, "calibrate", unknown)
    graph, ctx, findings = graph_and_context()
    with pytest.warns(RuntimeWarning, match="an unknown layout"):
        artifact = InductorBackend().compile(graph, (), ctx)
    assert artifact.kernels == 0 and "an unknown layout" in findings[0].text
    x = torch.randn(4, 5)
    assert torch.equal(artifact.call(x)[1], x.sum())


def test_generated_python_shows_its_lines_in_tracebacks_and_leaves_with_the_function():
    import gc
    import linecache
    import traceback

    program = types.SimpleNamespace(
        python_source="k = kernel(0)\n\ndef call(x):\n    return (1 / k(x),)\n", constants={}, callables={}
    )
    call = bind(program, [abs], "graph")
    assert call(-2) == (0.5,)
    with pytest.raises(ZeroDivisionError) as failure:
        call(0)
    assert "return (1 / k(x),)" in "".join(traceback.format_exception(failure.value))
    filename = call.__code__.co_filename
    assert filename in linecache.cache
    del call, failure
    gc.collect()
    assert filename not in linecache.cache


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_each_mode_is_known_and_said_to_change_nothing_on_the_cpu(mode):
    explanation = core.explain(lambda x: x + 1, backend="inductor", mode=mode)(torch.ones(3))
    assert torch.equal(explanation.result, torch.full((3,), 2.0))
    assert [mode in report.finding.text for report in explanation.findings] == [True]
