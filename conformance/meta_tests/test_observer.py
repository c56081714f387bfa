"""What an artifact runs in torch is seen, and held against what its backend says."""

from __future__ import annotations

import sys
import types

import pytest
import torch
from core_conformance.assertions import assert_like_eager
from core_conformance.fixtures import generator_of, subject_of
from core_conformance.observer import Observation, base_name, observing

import core
from core.plugin import Artifact, Backend, Capabilities


class Interpreter(Backend):
    """Runs the graph through torch and says of each node what `claim` says."""

    name = "interpreter"
    version = "1"
    capabilities = Capabilities(graph_level="aten-functional")

    def __init__(self, claim, before=lambda: None):
        self.claim, self.before = claim, before

    def compile(self, graph, fake_inputs, ctx):
        self.before()
        calls = [node for node in graph.graph.nodes if node.op == "call_function"]
        said = {node.name: kind for node in calls if (kind := self.claim(node)) is not None}
        return Artifact(call=graph.forward, provenance=said)


def program(x):
    return torch.relu(x.exp() + 1).sum(0)


def checked(backend):
    with subject_of(backend, "cpu") as subject:
        assert_like_eager(
            subject, program, lambda g: [torch.randn(5, 7, generator=g)], generator=generator_of(0, "t"), calls=2
        )
        return subject.observed


def test_library_calls_that_are_declared_pass_and_are_counted():
    observed = checked(Interpreter(lambda node: "library"))
    assert observed.provenance == {"library": 4} and observed.artifacts == 1


@pytest.mark.parametrize(
    "claim",
    [lambda node: "native", lambda node: None, lambda node: "native" if "exp" in node.name else "library"],
    ids=["all native", "nothing said", "one of four native"],
)
def test_what_is_said_to_be_native_and_runs_in_torch_fails(claim):
    with pytest.raises(AssertionError, match=r"^\[provenance\] \w+ ran in torch"):
        checked(Interpreter(claim))


def test_native_loops_are_not_seen():
    observed = checked("inductor")
    assert observed.provenance["native"] == 4 and observed.kernels >= 1


def test_the_operators_of_an_artifact_are_counted_while_somebody_observes():
    with subject_of(Interpreter(lambda node: "library"), "cpu") as subject:
        compiled = subject.compile(program)
        x = torch.randn(5, 7)
        compiled(x)
        with observing() as seen:
            compiled(x)
            torch.cos(x)  # not the artifact's
        assert seen.calculations == {"exp": 1, "add": 1, "relu": 1, "sum": 1}
        with observing() as later:
            pass
        assert not later.ops and core.stats()["graphs"] == 1


def test_entering_another_compiler_fails():
    def enter():
        torch.jit.script(torch.nn.ReLU())

    with pytest.raises(AssertionError, match=r"^\[provenance\] another compiler was used: torch\.jit\.script"):
        checked_while_observed(Interpreter(lambda node: "library", enter))


def checked_while_observed(backend):
    """The backend compiles while it is observed, as when an artifact compiles at its first run."""
    with subject_of(backend, "cpu") as subject, observing() as seen:
        subject.compile(program)(torch.randn(2, 3))
    from core_conformance.assertions import _require_declared

    _require_declared(subject, seen)


def test_a_compiler_whose_module_appears_is_noted(monkeypatch):
    name = "torch._inductor.compile_fx"
    kept = sys.modules.pop(name, None)
    try:
        with observing() as seen:
            sys.modules[name] = types.ModuleType(name)
        assert seen.compilers == {f"{name}.compile_fx"}
    finally:
        sys.modules.pop(name, None)
        if kept is not None:
            sys.modules[name] = kept


@pytest.mark.parametrize(
    "operator, base",
    [
        ("aten.add_.Tensor", "add"),
        ("aten.add.out", "add"),
        ("add", "add"),
        ("aten.mm.default", "mm"),
        ("relu_", "relu"),
    ],
)
def test_forms_of_one_operator_have_one_name(operator, base):
    assert base_name(operator) == base


def test_memory_and_views_are_no_calculation():
    seen = Observation()
    seen.ops.update({"aten.empty.memory_format": 3, "aten.view.default": 1, "aten.mul.Tensor": 2})
    assert seen.calculations == {"mul": 2}
