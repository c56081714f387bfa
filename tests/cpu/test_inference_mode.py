"""torch.inference_mode inside captured functions, around graph breaks and in exit stacks; tensors made in it."""

from __future__ import annotations

import contextlib

import pytest
import torch

import core

LINEAR = torch.nn.Linear(3, 3)
WEIGHT = torch.ones(3, requires_grad=True)


@core.disable
def plain(x):
    return x * 2


def made_in_inference_mode():
    with torch.inference_mode():
        return torch.arange(6.0).reshape(2, 3)


def outcome(fn, x):
    """What a call gives, with what only inference mode tells."""
    try:
        results = fn(x)
    except Exception as error:  # noqa: BLE001  whatever the program raises is compared
        return type(error), str(error)
    seen = [torch.is_inference_mode_enabled(), torch.is_grad_enabled()]
    for value in results if isinstance(results, tuple) else (results,):
        if isinstance(value, torch.Tensor):
            seen.append((value.tolist(), value.requires_grad, value.is_inference(), value._is_view()))
        else:
            seen.append(value)
    return seen


def agree(fn, make, backend="eager"):
    core.reset()
    fast = core.compile(fn, backend=backend)
    for _ in range(3):
        assert outcome(fast, make()) == outcome(fn, make())
    return core.stats()


def a_break_in_the_region(x):
    with torch.inference_mode():
        y = plain(x + 1)
        z = y + 1
    return z


def work_behind_the_region(x):
    with torch.inference_mode():
        y = plain(x + 1) + 1
    return y, (x * 2).sum(), torch.is_inference_mode_enabled(), torch.is_grad_enabled()


def a_region_in_a_region(x):
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            z = torch.ones(3) + 1
            with torch.inference_mode():
                y = plain(y) + 1
        return y + 1, z, torch.is_inference_mode_enabled()


def no_grad_around_the_region(x):
    with torch.no_grad():
        with torch.inference_mode():
            y = plain(x) + 1
        return y, x * 2, torch.is_grad_enabled()


def each_turn_of_a_loop(x):
    for weight in (1.0, 2.0, 3.0):
        with torch.inference_mode():
            y = plain(x * weight) + 1
        x = x + 1
    return y, x


@torch.inference_mode()
def decorated(x):
    return plain(LINEAR(x)) + 1


def an_exit_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        y = plain(x) + 1
    return y, x * 2


def an_exit_stack_of_many(x):
    with contextlib.ExitStack() as stack:
        for manager in (torch.no_grad(), torch.autocast("cpu"), torch.profiler.record_function("range")):
            stack.enter_context(manager)
        y = plain(x @ x.T) @ x
        seen = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    return y.float(), x * 2, seen, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")


def an_exception_out_of_the_region(x):
    try:
        with torch.inference_mode():
            y = plain(x) + 1
            raise KeyError("x")
    except KeyError:
        return y, x + 1, torch.is_inference_mode_enabled()


@pytest.mark.parametrize(
    ("fn", "breaks", "graphs"),
    [
        (a_break_in_the_region, 1, 2),
        (work_behind_the_region, 1, 2),
        (a_region_in_a_region, 1, 2),
        (no_grad_around_the_region, 1, 1),
        (each_turn_of_a_loop, 3, 4),
        (an_exit_stack, 1, 1),
        (an_exit_stack_of_many, 1, 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_break_in_a_region_is_the_only_one(fn, breaks, graphs):
    stats = agree(fn, lambda: torch.arange(6.0).reshape(2, 3).requires_grad_())
    assert (stats["breaks"], stats["graphs"]) == (breaks, graphs)


@pytest.mark.parametrize("fn", [decorated, an_exception_out_of_the_region], ids=lambda fn: fn.__name__)
def test_a_region_around_a_frame_or_an_exception_is_left_as_eager_leaves_it(fn):
    agree(fn, lambda: torch.arange(6.0).reshape(2, 3).requires_grad_())


def grown(x):
    return x * 2 + 1


def views(x):
    y = x.clone()
    y.mul_(3)
    return y, x.view(-1), x.t()[0], x.is_inference(), y.is_inference()


def beside_weights(x):
    return x.clone() * WEIGHT.sum(), x + WEIGHT


def without_gradients(x):
    with torch.no_grad():
        return LINEAR(x).relu()


def saved_for_backward(x):
    return (x * WEIGHT).sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "fn", [grown, views, beside_weights, without_gradients, saved_for_backward], ids=lambda fn: fn.__name__
)
def test_tensors_made_in_inference_mode_are_inputs_of_graphs(fn, backend):
    stats = agree(fn, made_in_inference_mode, backend)
    assert stats["breaks"] == 0


def test_a_write_into_a_tensor_of_inference_mode_raises_as_eager_does():
    def fn(x):
        x.add_(1)
        return x * 2

    agree(fn, made_in_inference_mode)
