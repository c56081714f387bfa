"""isolate="process": the compiler runs elsewhere; its crash, hang or interruption costs an error and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import plugin_site
import pytest
import torch

import core
from core.backends import isolation, stored
from core.backends.registry import Registry
from core.errors import BackendFailed, CompilerDied, CompileTimedOut, InvalidOption, IsolationImpossible
from core.plugin import PluginBug

ROOT = Path(__file__).parents[2]

# Compiles a graph by its source text and the constants it holds, and does on the way what a variable tells it.
PLUGIN = """
import json, os, signal, subprocess, sys, threading, time
import torch
from core.plugin import Artifact, Backend, Capabilities, CompileFailed, Finding, Option, Unsupported, hookimpl

class Alpha(Backend):
    name = "alpha"
    version = "1.0"
    capabilities = Capabilities(graph_level="aten-functional", serializable=True)

    def options(self):
        return {"level": Option(int, 1), "extra": Option(object, None)}

    def compile(self, graph, fake_inputs, ctx):
        note = os.environ.get("ALPHA_NOTE")
        if note:
            with open(note, "a") as file:
                file.write(f"{os.getpid()} {ctx.options['level']} {ctx.mode} {torch.get_default_dtype()}\\n")
        BEHAVIOUR[os.environ.get("ALPHA_DOES", "compiles")](graph, ctx)
        values = [node.meta["val"] for node in graph.graph.nodes if node.op == "call_function"]
        assert all(value is not None for value in values)
        return artifact(graph.code)

    def serialize(self, artifact):
        return artifact.code.encode()

    def deserialize(self, blob, ctx):
        return artifact(blob.decode())

def artifact(code):
    namespace = {"torch": torch, "device": torch.device, "inf": float("inf"), "nan": float("nan")}
    exec(code, namespace)
    made = Artifact(call=lambda *inputs: namespace["forward"](None, *inputs))
    made.code = code
    return made

def hang(graph, ctx):
    threading.Event().wait()

def hang_with_child(graph, ctx):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(os.environ["ALPHA_NOTE"], "a") as file:
        file.write(f"{child.pid} child\\n")
    threading.Event().wait()

def unsupported(graph, ctx):
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    raise Unsupported(nodes[:1], "no such unit")

def fail(graph, ctx):
    raise CompileFailed("linking", "undefined reference")

def bug(graph, ctx):
    raise KeyError("a table")

def report(graph, ctx):
    print("to standard output")
    ctx.report(Finding("warning", "slow path", "buy a chip"))

BEHAVIOUR = {
    "compiles": lambda graph, ctx: None,
    "hangs": hang,
    "hangs with a child": hang_with_child,
    "ends": lambda graph, ctx: (print("about to end", file=sys.stderr, flush=True), os._exit(3)),
    "crashes": lambda graph, ctx: os.kill(os.getpid(), signal.SIGSEGV),
    "unsupported": unsupported,
    "fails": fail,
    "has a bug": bug,
    "reports": report,
    "changes the process": lambda graph, ctx: torch.set_default_dtype(torch.float64),
}

@hookimpl
def core_backend():
    return Alpha()
"""


@pytest.fixture
def alpha(tmp_path, monkeypatch):
    """The plugin installed, a registry that knows it, no store; returns the file in which compiles leave a note."""
    site = tmp_path / "site"
    site.mkdir()
    plugin_site.add_distribution(site, "core-alpha", "alpha", source=PLUGIN)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CORE_STORE_ARTIFACTS", "0")
    monkeypatch.setenv("ALPHA_NOTE", str(tmp_path / "note"))
    monkeypatch.setattr("core.backends.registry._default", Registry())
    stored.default_store.cache_clear()
    core.reset()
    yield tmp_path / "note"
    stored.default_store.cache_clear()
    for name in [name for name in sys.modules if name.startswith("core_alpha_plugin")]:
        del sys.modules[name]


def function(x):
    return torch.relu(x) * 2 + x.sum(dim=0, keepdim=True)


def run(monkeypatch=None, does="compiles", fn=function, x=None, **options):
    if monkeypatch is not None:
        monkeypatch.setenv("ALPHA_DOES", does)
    x = torch.randn(4, 3) if x is None else x
    # A lambda of its own: nothing compiled before is shared.
    return core.compile(lambda x: fn(x), backend="alpha", fallback=(), isolate="process", **options)(x), fn(x)


def pids(note):
    return [int(line.split()[0]) for line in note.read_text().splitlines()]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_graph_is_compiled_in_another_process_and_runs_in_this_one(alpha):
    ours, theirs = run(options={"level": 7})
    assert torch.equal(ours, theirs)
    pid, level, mode, _ = alpha.read_text().split()
    assert int(pid) != os.getpid() and (level, mode) == ("7", "inference")
    assert not alive(int(pid))


@pytest.mark.slow
def test_training_compiles_forward_and_backward_there(alpha):
    x = torch.randn(4, 3, requires_grad=True)
    twin = x.detach().clone().requires_grad_()
    core.compile(function, backend="alpha", fallback=(), isolate="process")(x).sum().backward()
    function(twin).sum().backward()
    assert torch.equal(x.grad, twin.grad)
    assert [line.split()[2] for line in alpha.read_text().splitlines()] == ["forward", "backward"]
    assert os.getpid() not in pids(alpha)


@pytest.mark.slow
def test_flags_of_this_process_are_those_of_the_other_and_its_changes_stay_there(alpha, monkeypatch):
    torch.set_default_dtype(torch.float64)
    try:
        run()
        assert alpha.read_text().split()[3] == "torch.float64"
    finally:
        torch.set_default_dtype(torch.float32)
    ours, theirs = run(monkeypatch, "changes the process")
    assert torch.equal(ours, theirs) and torch.get_default_dtype() is torch.float32


def test_without_isolate_the_compile_is_in_this_process(alpha):
    core.compile(lambda x: function(x), backend="alpha", fallback=())(torch.randn(4, 3))
    assert pids(alpha) == [os.getpid()]


@pytest.mark.parametrize(
    "does, error, words",
    [
        ("ends", CompilerDied, ["ended with status 3", "it wrote:\nabout to end", "example.org/alpha/issues"]),
        ("crashes", CompilerDied, ["CORE-B012", "was killed by SIGSEGV", "alpha (core-alpha 1.0)"]),
        ("fails", BackendFailed, ["linking failed:\nundefined reference", "alpha (core-alpha 1.0)"]),
        ("unsupported", core.BackendError, ["alpha: no such unit", "relu"]),
        ("has a bug", PluginBug, ["KeyError: 'a table'", "core_alpha_plugin/__init__.py", "in bug"]),
    ],
)
@pytest.mark.slow
def test_what_goes_wrong_there_is_an_error_here(alpha, monkeypatch, does, error, words):
    with pytest.raises(error) as caught:
        run(monkeypatch, does)
    assert not [each for each in words if each not in str(caught.value)]
    assert pids(alpha) and not any(alive(pid) for pid in pids(alpha))


@pytest.mark.slow
def test_a_compiler_that_dies_leaves_the_graph_to_the_fallback_when_that_is_wanted(alpha, monkeypatch):
    monkeypatch.setenv("ALPHA_DOES", "crashes")
    x = torch.randn(4, 3)
    options = dict(backend="alpha", fallback="eager", on_failure="fallback", isolate="process")
    assert torch.equal(core.compile(lambda x: function(x), **options)(x), function(x))
    assert pids(alpha) and os.getpid() not in pids(alpha)


@pytest.mark.slow
def test_past_the_deadline_the_process_is_killed_with_what_it_started(alpha, monkeypatch):
    class Impatient(subprocess.Popen):
        """Its deadline is over once the compiler has started a process of its own."""

        def wait(self, timeout=None):
            if timeout is None:
                return super().wait()
            while self.poll() is None and not (alpha.exists() and len(pids(alpha)) == 2):
                time.sleep(0.05)
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr(isolation.subprocess, "Popen", Impatient)
    with pytest.raises(CompileTimedOut) as caught:
        run(monkeypatch, "hangs with a child", deadline_s=30)
    assert caught.value.id == "CORE-B011" and isinstance(caught.value, BackendFailed)
    assert "did not compile within 30 s" in caught.value.what and "deadline_s" in caught.value.remedy
    assert len(pids(alpha)) == 2 and not any(alive(pid) for pid in pids(alpha))


INTERRUPTED = """
import torch, core
try:
    core.compile(lambda x: x * 2 + 1, backend="alpha", fallback=(), isolate="process")(torch.ones(3))
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
def test_an_interrupt_ends_the_compile_and_its_process(alpha, tmp_path):
    paths = os.pathsep.join((str(tmp_path / "site"), str(ROOT)))
    env = {**os.environ, "ALPHA_DOES": "hangs with a child", "PYTHONPATH": paths}
    program = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, env=env)
    while program.poll() is None and not (alpha.exists() and len(pids(alpha)) == 2):
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=120)
    assert out == "interrupted\n"
    assert len(pids(alpha)) == 2 and not any(alive(pid) for pid in pids(alpha))


@pytest.mark.slow
def test_reports_come_over_and_prints_stay_there(alpha, monkeypatch, capfd):
    from core import events

    seen = []
    stop = events.subscribe(seen.append)
    run(monkeypatch, "reports")
    stop()
    texts = [event.finding.text for event in seen if isinstance(event, events.BackendReported)]
    assert "slow path" in texts and "to standard output" not in capfd.readouterr().out


# -- what can't go over -----------------------------------------------------------------------------------------------


def refused(**options):
    with pytest.raises(IsolationImpossible) as caught:
        options.setdefault("backend", "alpha")
        core.compile(lambda x: function(x), isolate="process", fallback=(), **options)(torch.randn(4, 3))
    assert caught.value.id == "CORE-B013" and "leave isolate out" in caught.value.remedy
    return caught.value.what


def test_backends_that_can_not_serialize_are_refused_when_compile_is_called(alpha):
    with pytest.raises(IsolationImpossible, match="it can't serialize its artifacts"):
        core.compile(function, backend="eager", isolate="process")
    with pytest.raises(IsolationImpossible, match="it is an object of this process"):
        core.compile(function, backend=lambda gm, inputs: gm, isolate="process")


def test_options_and_sizes_that_are_no_data_are_refused(alpha):
    assert "an option that is no plain data" in refused(options={"extra": object()})
    assert "sizes that are symbols" in refused(dynamic=True)
    assert not alpha.exists()


@pytest.mark.parametrize(
    "options", [{"isolate": "thread"}, {"isolate": True}, {"deadline_s": 0}, {"deadline_s": "5"}, {"deadline_s": True}]
)
def test_wrong_options_are_errors(options):
    with pytest.raises(InvalidOption, match=next(iter(options))):
        core.compile(function, backend="eager", **options)


@pytest.mark.slow
def test_a_stored_artifact_needs_no_process(alpha, monkeypatch):
    monkeypatch.setenv("CORE_STORE_ARTIFACTS", "1")
    run()
    core.reset()
    ours, theirs = run(monkeypatch, "ends")
    assert torch.equal(ours, theirs) and len(pids(alpha)) == 1
