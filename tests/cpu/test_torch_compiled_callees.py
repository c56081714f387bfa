"""Functions that torch.compile made, called by captured code; the switches that tell how code is run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from observed import BACKENDS, agrees

import core

FACTOR = 2.0


def scaled(x):
    return x.sin() * FACTOR


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_a_function_of_torch_compile_is_traced_as_the_function_it_was_made_of(backend):
    def build():
        peer = torch.compile(scaled, backend="eager")
        return lambda x: peer(x) + 1, (torch.randn(3, requires_grad=True),)

    agrees(build, backend)


def test_another_function_in_its_place_is_noticed():
    peers = [torch.compile(fn, backend="eager") for fn in (scaled, lambda x: x.cos())]
    compiled = core.compile(lambda peer, x: peer(x), backend="eager", fullgraph=True)
    x = torch.randn(3)
    for peer, want in zip([*peers, *peers], [x.sin() * 2, x.cos()] * 2):
        torch.testing.assert_close(compiled(peer, x), want)
    assert core.stats()["graphs"] == 2


def test_a_disabled_function_breaks_the_graph(backend):
    def build():
        disabled = torch._dynamo.disable(scaled)
        return lambda x: disabled(x * 2) + 1, (torch.randn(3),)

    agrees(build, backend, graphs=2, breaks=1)


UNLIKE_BRANCHES = """
import sys
sys.path.insert(0, {folder!r})
import torch
from observed import agrees

def build():
    return lambda x: torch.cond(x.sum() > 0, lambda x: x.sum(), lambda x: x.cos(), (x,)), (torch.randn(3),)

assert agrees(build, {backend!r}, graphs=None, breaks=None)["breaks"] >= 1
print("fine")
"""


@pytest.mark.slow
def test_an_error_under_torch_compile_behind_a_break_is_raised(backend, tmp_path):
    """torch.cond of unlike branches: the graph breaks, and torch's compiler raises beneath our hook.

    In a process of its own, for torch's compiler leaves its evaluator behind after the error.
    """
    program = tmp_path / "unlike_branches.py"
    program.write_text(UNLIKE_BRANCHES.format(folder=str(Path(__file__).parent), backend=backend))
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.strip() == "fine", done.stderr[-3000:]


def test_switches_tell_that_code_is_captured():
    def fn(x):
        compiling = torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling()
        return x + 1, compiling, (torch.jit.is_scripting(), torch.jit.is_tracing(), torch.compiler.is_exporting())

    result, compiling, other = core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert compiling == (True, True) and other == (False, False, False)
    assert fn(torch.ones(2))[1] == (False, False)
    assert core.stats()["graphs"] == 1


class Outer(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


def compiled_in_place(module):
    module.compile(backend="eager")
    return module


@pytest.mark.parametrize("make", [lambda module: torch.compile(module, backend="eager"), compiled_in_place])
def test_a_module_of_torch_compile_is_traced_as_the_module_behind_it(backend, make):
    def build():
        return Outer(make(torch.nn.Linear(3, 3))), (torch.randn(2, 3),)

    agrees(build, backend)


@pytest.mark.parametrize("nested", [True, False])
def test_a_module_that_torch_compiled_in_place_runs_behind_a_break_too(nested):
    inner = compiled_in_place(torch.nn.Linear(3, 3))

    @core.disable
    def apart(x):
        return x

    compiled = core.compile(lambda x: inner(apart(x + 1)) * 2, backend="eager", nested=nested)
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), inner(x + 1) * 2)


def test_compiling_what_torch_compile_made_compiles_what_is_behind_it():
    module = torch.nn.Linear(3, 3)
    x = torch.randn(2, 3)
    for made in (torch.compile(module, backend="eager"), torch.compile(module.forward, backend="eager")):
        core.reset()
        torch.testing.assert_close(core.compile(made, backend="eager", fullgraph=True)(x), module(x))
        assert core.stats()["graphs"] == 1


def test_modules_are_made_inside_after_torch_compile_was_used():
    torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(2))
    compiled = core.compile(lambda x: torch.nn.Linear(4, 2)(x), backend="eager", fullgraph=True)
    assert compiled(torch.ones(3, 4)).shape == (3, 2)
    assert core.stats()["graphs"] == 1
