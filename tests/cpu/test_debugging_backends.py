"""The debugging backends give eager's results, each from the graph of its level."""

from __future__ import annotations

import copy

import pytest
import torch

import core
from core.backends.registry import DEBUGGING


@pytest.mark.parametrize("backend", DEBUGGING)
def test_results_and_gradients_are_those_of_eager(backend):
    core.reset()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.GELU(), torch.nn.LayerNorm(4))
    theirs = copy.deepcopy(module)
    x = torch.randn(3, 4)
    compiled = core.compile(module, backend=backend)
    for _ in range(2):
        got, want = compiled(x), theirs(x)
        got.sum().backward()
        want.sum().backward()
        torch.testing.assert_close(got, want)
    for mine, expected in zip(module.parameters(), theirs.parameters()):
        torch.testing.assert_close(mine.grad, expected.grad)
    for mine, expected in zip(module.buffers(), theirs.buffers()):
        torch.testing.assert_close(mine, expected)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def test_the_decomposed_level_has_more_and_smaller_operators():
    calls = {}
    for backend in ("aot_eager", "aot_eager_decomp_partition"):
        core.reset()
        core.compile(torch.nn.functional.huber_loss, backend=backend)(torch.ones(3), torch.zeros(3))
        calls[backend] = core.stats()["extern_calls"]
    assert calls["aot_eager"] == 1 < calls["aot_eager_decomp_partition"]


def test_steps_between_integers_are_rounded_as_the_operator_rounds_them():
    def steps(x):
        return torch.linspace(0, 7, 50, dtype=torch.int64) + x

    run = core.compile(steps, backend="aot_eager_decomp_partition", fullgraph=True)
    assert torch.equal(run(torch.tensor(1)), steps(torch.tensor(1)))


def test_what_is_taken_apart_keeps_the_operators_dtype_and_strides():
    def program(x, image):
        moved = image.roll(1, 1)
        pieces = moved.unfold(1, 2, 2), moved.as_strided((2, 3), (5, 7)), moved.permute(0, 2, 3, 1).view(-1)
        return torch.nn.functional.huber_loss(x.half(), x), moved, *pieces

    arguments = torch.randn(3), torch.randn(2, 4, 4, 4).contiguous(memory_format=torch.channels_last)
    run = core.compile(program, backend="aot_eager_decomp_partition", fullgraph=True)
    for found, expected in zip(run(*arguments), program(*arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, check_stride=True)
