"""TorchScript functions, and higher-order operators that call a function as it is, inside compiled functions."""

from __future__ import annotations

import warnings

import pytest
import torch

import core

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)

    @torch.jit.script
    def scaled(x, factor: float = 2.0):
        return torch.cos(x) * factor

    @torch.jit.script
    def repeated(x, times: int):
        for _ in range(times):
            x = x * 2
        return x, times // 2

    @torch.jit.script
    def by_sign(x):
        if bool(x.sum() > 0):
            return x + 1
        return x - 1

    traced = torch.jit.trace(lambda x: x + 2, torch.ones(3))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_scripted_function_is_part_of_the_graph_with_gradients(backend):
    def fn(x):
        y, half = repeated(scaled(x, factor=3.0), 5)
        return traced(y) + half

    core.reset()
    fast = core.compile(fn, backend=backend, fullgraph=True)
    ours, theirs = (torch.linspace(0, 1, 4).requires_grad_() for _ in range(2))
    result, expected = fast(ours), fn(theirs)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert core.stats()["graphs"] == 1


def test_a_scripted_function_that_decides_by_data_breaks_the_graph():
    core.reset()
    fast = core.compile(lambda x: by_sign(x), backend="eager")
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(fast(x), by_sign(x))
    with pytest.raises(core.Unsupported, match="by_sign"):
        core.compile(lambda x: by_sign(x), backend="eager", fullgraph=True)(torch.ones(2))


def test_operators_that_call_a_function_are_traced_through():
    operators = torch.ops.higher_order

    def fn(x):
        y = operators.wrap(lambda a, k=1: a * x + k, x, k=2)
        (z,) = operators.strict_mode(lambda a: (a * y,), (x,))
        (w,) = operators.hints_wrapper(lambda a, b: (a + b,), (z,), {"b": y}, {"color": 1})
        return operators.wrap_with_set_grad_enabled(False, lambda a: a * 2, w) + w

    core.reset()
    x = torch.ones(2, requires_grad=True)
    result = core.compile(fn, backend="eager", fullgraph=True)(x)
    y = x * x + 2
    w = x * y + y
    assert torch.equal(result, w * 3)
    result.sum().backward()
    (expected,) = torch.autograd.grad((w.detach() * 2 + w).sum(), x)
    assert torch.equal(x.grad, expected)
    assert core.stats()["graphs"] == 1
