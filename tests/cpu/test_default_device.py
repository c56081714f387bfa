"""torch.set_default_device is a mode under every call: capture goes on, and guards hold which device it is."""

from __future__ import annotations

import pytest
import torch

import core


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
