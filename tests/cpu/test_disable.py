"""Turning core off: CORE_DISABLE, compile(disable=True) and core.disable."""

import types

import pytest
import torch

import core


def double(x):
    return x * 2


@pytest.fixture
def off(monkeypatch):
    monkeypatch.setenv("CORE_DISABLE", "1")


def test_compile_is_the_identity_while_core_is_disabled(off):
    module = torch.nn.Linear(2, 2)
    bound = module.forward
    for target in (double, module, bound, torch.relu, types.SimpleNamespace(__call__=None).__class__):
        assert core.compile(target) is target
    assert core.compile(fullgraph=True)(double) is double
    assert core.optimize("eager")(double) is double
    double(torch.ones(2))
    assert core.stats()["frames"] == 0


def test_a_disabled_compile_asks_for_no_backend(off):
    assert core.compile(double, backend="no-such-backend") is double


def test_options_are_checked_also_while_core_is_disabled(off):
    with pytest.raises(core.InvalidOption):
        core.compile(double, mode="no-such-mode")


def test_zero_and_nothing_leave_core_on(monkeypatch):
    for value in ("0", ""):
        monkeypatch.setenv("CORE_DISABLE", value)
        assert core.compile(double, backend="eager") is not double


def test_a_callable_compiled_before_makes_no_new_entries_while_core_is_disabled(monkeypatch):
    compiled = core.compile(double, backend="eager")
    compiled(torch.ones(2))
    monkeypatch.setenv("CORE_DISABLE", "1")
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert len(compiled.entries()) == 1 and core.stats()["frames"] == 1
    monkeypatch.delenv("CORE_DISABLE")
    compiled(torch.ones(3))
    assert len(compiled.entries()) == 2


def test_disable_true_returns_the_function_itself():
    assert core.compile(double, disable=True) is double


def test_a_disabled_function_runs_as_written_inside_compiled_code():
    seen = []

    @core.disable
    def plain(x):
        seen.append(type(x))
        return x + 1

    def outer(x):
        return plain(x * 2) * 3

    x = torch.arange(3.0)
    result = core.compile(outer, backend="eager")(x)
    assert torch.equal(result, (x * 2 + 1) * 3)
    assert seen == [torch.Tensor]
    assert core.stats()["breaks"] == 1 and core.stats()["graphs"] == 2


@pytest.mark.parametrize("decorate", [core.disable, torch.compiler.disable])
def test_what_a_disabled_function_calls_is_captured_unless_that_is_disabled_too(decorate):
    def inner(x):
        return x + 2

    for recursive, graphs in ((False, 1), (True, 0)):
        core.reset()
        before = core.stats()["graphs"]
        call = core.compile(decorate(lambda x: inner(x) * 3, recursive=recursive), backend="eager")
        assert call(torch.ones(2)).tolist() == call(torch.ones(2)).tolist() == [9.0, 9.0]
        assert core.stats()["graphs"] - before == graphs
