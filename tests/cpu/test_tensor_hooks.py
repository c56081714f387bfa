"""Hooks that a compiled function registers on tensors: when they run, what they see, and where the graph ends."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.utils.hooks import RemovableHandle

import core

BACKENDS = ("eager", "aot_eager")


def leaf():
    return torch.tensor([1.0, 2.0, 3.0], requires_grad=True)


def gradients(call, runs=1):
    """The input's gradient after each run."""
    found = []
    for _ in range(runs):
        x = leaf()
        results = call(x)
        sum(r.sum() for r in (results if isinstance(results, tuple) else (results,))).backward()
        found.append(x.grad)
    return found


def check(fn, *, graphs=1, fullgraph=True):
    """Gradients of two runs are eager's, with so many graphs, in each backend."""
    (expected,) = gradients(fn)
    for backend in BACKENDS:
        core.reset()
        before = core.stats()
        found = gradients(core.compile(fn, backend=backend, fullgraph=fullgraph), runs=2)
        after = core.stats()
        assert all(torch.allclose(gradient, expected) for gradient in found), (backend, found, expected)
        assert after["graphs"] - before["graphs"] == graphs
        # the class of handles counts them: what runs behind a real registration is compiled again when that is known
        assert after["recompiles"] - before["recompiles"] == (0 if fullgraph else 1)


def test_a_hook_on_an_input_sees_the_gradient_of_all_uses():
    def fn(x):
        x.register_hook(lambda g: g * 2)
        return x * 3, x.sin()

    check(fn)


def test_a_hook_on_an_input_may_use_what_the_graph_computed():
    def fn(x):
        y = x.sin()
        x.register_hook(lambda g: g + y)
        return y.cos()

    check(fn)


def test_hooks_on_an_input_run_in_the_order_of_their_registration():
    class Box:
        handle = None

    box = Box()

    def fn(x):
        x.register_hook(lambda g: g + 1)
        box.handle = x.register_hook(lambda g: g * 2)
        x.register_hook(lambda g: g - 3)
        return x * 3

    check(fn)
    assert isinstance(box.handle, RemovableHandle)


def test_a_removed_hook_does_not_run_and_its_handle_comes_back():
    def fn(x):
        handle = x.register_hook(lambda g: g * 2)
        y = x * x
        handle.remove()
        handle.remove()
        return y, handle, handle

    x = leaf()
    y, first, second = core.compile(fn, backend="eager", fullgraph=True)(x)
    y.sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())
    assert isinstance(first, RemovableHandle) and first is second


def test_a_hook_after_accumulation_runs_when_the_leaf_has_its_gradient():
    seen = []

    def fn(x):
        x.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.clone()))
        return x * 3

    check(fn)
    assert [g.tolist() for g in seen] == [[3.0] * 3] * 5


def test_a_hook_on_an_inner_tensor_is_part_of_the_backward():
    def fn(x):
        y = x * 2
        y.register_hook(lambda g: g.clamp(-0.5, 0.5))
        return y.sin(), y * 3

    check(fn)


def test_hooks_on_an_inner_tensor_that_is_returned_see_outer_uses():
    def fn(x):
        y = x.sin()
        w = x.cos()
        y.register_hook(lambda g: g * w)
        y.register_hook(lambda g: None)
        return y * 3, y

    check(fn)


def test_a_partial_is_a_hook_and_a_removed_one_leaves_the_graph():
    def scaled(gradient, *, by):
        return gradient * by

    def fn(x):
        y = x * 2
        y.register_hook(functools.partial(scaled, by=3))
        with y.register_hook(functools.partial(scaled, by=100)):
            z = y * 3
        return z

    check(fn)


def test_a_hook_that_keeps_a_log_is_registered_by_python_and_the_graph_ends_there():
    log = []

    def fn(x):
        y = x * 2
        y.register_hook(lambda g: log.append(1))
        return y.sin()

    check(fn, graphs=3, fullgraph=False)
    assert len(log) == 5
    with pytest.raises(core.errors.Unsupported, match="hook"):
        core.compile(fn, backend="eager", fullgraph=True)(leaf())


def test_a_variable_that_changes_after_the_registration_is_seen_as_it_is_later():
    def fn(x):
        factor = 2
        y = x * 2
        y.register_hook(lambda g: g * factor)
        factor = 3
        return y.sin()

    check(fn, graphs=3, fullgraph=False)


def test_a_hook_on_an_input_that_is_written_to_is_registered_by_python():
    def fn(x):
        y = x * 1
        return inner(y)

    def inner(y):
        y.register_hook(lambda g: g * 2)
        y.mul_(3)
        return y.sin()

    compiled = core.compile(inner, backend="eager")
    (expected,) = gradients(fn)
    assert torch.allclose(gradients(lambda x: compiled(x * 1))[0], expected)
    with pytest.raises(core.errors.Unsupported, match="written to"):
        core.compile(inner, backend="eager", fullgraph=True)(leaf() * 1)


def test_registering_on_a_tensor_without_gradient_raises_as_in_eager():
    def fn(x):
        try:
            x.register_hook(lambda g: g)
        except RuntimeError:
            return x + 1
        return x

    assert torch.equal(core.compile(fn, backend="eager", fullgraph=True)(torch.zeros(2)), torch.ones(2))


def test_gradients_taken_in_the_same_graph_do_not_miss_a_hook():
    def fn(x):
        x.register_hook(lambda g: g * 2)
        return torch.autograd.grad((x * 3).sum(), x)[0]

    expected = fn(leaf())
    assert torch.equal(core.compile(fn, backend="eager")(leaf()), expected)


def test_a_graph_module_is_compiled_like_the_module_it_was_traced_from():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    traced = torch.fx.symbolic_trace(module)
    x = torch.randn(2, 3)
    before = core.stats()
    assert torch.equal(core.compile(traced, backend="eager", fullgraph=True)(x), module(x))
    assert core.stats()["graphs"] - before["graphs"] == 1
