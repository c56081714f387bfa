"""torch.set_default_device is a mode under every call: capture goes on, and guards hold which device it is."""

from __future__ import annotations

import contextlib

import pytest
import torch

import core
import core.events


@pytest.fixture(autouse=True)
def no_default_afterwards():
    yield
    torch.set_default_device(None)


def factories(x):
    made = torch.ones(3), torch.arange(3), torch.tensor([1.0, 2.0, 3.0]) * 2, torch.full((3,), 2.0)
    return *made, x.sin() + torch.zeros(3), torch.nn.functional.relu(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_factories_are_captured_under_a_default_device(backend):
    torch.set_default_device("cpu")
    compiled = core.compile(factories, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), factories(x))
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def test_another_default_device_is_another_entry():
    def program(x):
        return torch.ones(2), x + 1

    compiled = core.compile(program, backend="eager")
    x = torch.randn(3)
    for device in (None, "meta", None, "meta"):
        torch.set_default_device(device)
        assert compiled(x)[0].device.type == (device or "cpu")
        torch.testing.assert_close(compiled(x)[1], x + 1)


def test_a_module_made_inside_is_one_graph():
    def program(x):
        return torch.nn.Linear(4, 2)(x)

    compiled = core.compile(program, backend="eager", fullgraph=True)
    x = torch.randn(3, 4)
    for seed in range(2):
        torch.manual_seed(seed)
        expected = program(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected)
    assert core.stats()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_inside_of_device_contexts_calls_are_captured(backend):
    compiled = core.compile(factories, backend=backend, fullgraph=True)
    x = torch.randn(3)
    for contexts in ((torch.device("cpu"),), (torch.device("cpu"), torch.device("cpu"))):
        for _ in range(2):  # each makes a context of its own
            with contextlib.ExitStack() as stack:
                for device in contexts:
                    stack.enter_context(device)
                torch.testing.assert_close(compiled(x), factories(x))
    assert (core.stats()["graphs"], core.stats()["breaks"], core.stats()["recompiles"]) == (2, 0, 1)


def test_another_device_of_the_context_is_another_entry():
    def program(x):
        with torch.device("cpu"):
            inner = torch.ones(2)
        return torch.ones(2), inner, torch.get_default_device(), x + 1

    compiled = core.compile(program, backend="eager")
    x = torch.randn(3)
    torch.set_default_device("cpu")
    for device in ("cpu", "meta", "cpu", "meta"):
        with torch.device(device):
            made, inner, default, result = compiled(x)
            assert (made.device.type, default.type) == (device, device)
        assert inner.device.type == "cpu" and torch.equal(result, x + 1)
    assert torch._C._len_torch_function_stack() == 1


def test_behind_a_break_the_context_stands_and_its_calls_are_captured():
    def inner(x):
        return torch.ones(2) + x.sum()

    def program(x):
        y = x + 1
        core.disable(lambda: None)()
        return inner(y) + torch.zeros(2)

    compiled = core.compile(program, backend="eager")
    x = torch.randn(3)
    with torch.device("cpu"):
        assert torch.equal(compiled(x), program(x))
    assert core.stats()["graphs"] == 2 and core.stats()["skipped"] == 0


def test_an_event_names_the_mode_under_which_a_call_runs_as_written():
    from torch.overrides import BaseTorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Sees(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    told = []
    stop = core.events.subscribe(
        lambda event: told.append(event.reason) if isinstance(event, core.events.FellBack) else None
    )
    compiled, x = core.compile(lambda x: x.sin() + 1, backend="eager"), torch.ones(2)
    try:
        with Sees() as mode:
            compiled(x)
        with BaseTorchFunctionMode():
            compiled(x)
    finally:
        stop()
    assert mode.seen == ["aten.sin.default", "aten.add.Tensor"]
    assert ["Sees" in told[0], "BaseTorchFunctionMode" in told[1], len(told)] == [True, True, 2]
    with Sees():
        report = core.explain(lambda x: x.sin() + 1, backend="eager")(torch.ones(2))
    assert "Sees" in str(report)
