"""Modes with a __torch_function__ and `with torch.device(...)` inside captured functions, in the order of the stack."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

import core

X = torch.arange(6.0).reshape(2, 3)
LINEAR = torch.nn.Linear(3, 3)


class Logs(TorchFunctionMode):
    """Keeps the names of all that it is asked about."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append((func.__name__, len(args), sorted(kwargs or {})))
        return func(*args, **(kwargs or {}))


class Scales(TorchFunctionMode):
    """Multiplies what torch.sin gives."""

    def __init__(self, factor):
        self.factor = factor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func is torch.sin else result


class Swaps(TorchFunctionMode):
    """Multiplies where the program adds."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.add, torch.Tensor.add):
            return torch.mul(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class Doubles(TorchFunctionMode):
    """Gives new tensors another dtype."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in (torch.ones, torch.arange):
            kwargs.setdefault("dtype", torch.float64)
        return func(*args, **kwargs)


class Forbids(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            raise RuntimeError("no sines here")
        return func(*args, **(kwargs or {}))


def snapshot(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device, value.requires_grad, value.tolist()
    if isinstance(value, (tuple, list)):
        return [type(value), *map(snapshot, value)]
    return value


def agree(fn, calls=3):
    """Results of eager and compiled, the modes that each leaves, and the log; the totals of core.stats()."""
    seen = []
    for compiled in (False, True):
        logs = Logs()
        core.reset()
        run = core.compile(fn, backend="eager") if compiled else fn
        results = [snapshot(run(X.clone(), logs)) for _ in range(calls)]
        seen.append((results, logs.names, torch._C._len_torch_function_stack(), torch.is_grad_enabled()))
    assert seen[0] == seen[1]
    return core.stats()


def functions(x, logs):
    with logs:
        y = torch.add(x, 3, alpha=2).sin() * 2
    return torch.add(y, 1)


def operators(x, logs):
    with logs:
        y = 2 - (x + 1) * 3 / 2
        y += 1
        y = -y @ x.T
        return 2**y, y > 1, y == y, abs(y), y // 2, y % 3


def items_and_attributes(x, logs):
    with logs:
        y = x[0] + x[:, 1:].sum()
        z = x.clone()
        z[0, 1] = 7
        return y, z, x.shape, x.dtype, x.requires_grad, len(x), x.dim(), x.size(0), x.T, x.ndim


def modules(x, logs):
    with logs:
        return torch.nn.functional.gelu(LINEAR(x)), torch.cat([x, x]), torch.where(x > 1, x, -x)


def new_tensors(x, logs):
    with logs:
        return torch.ones(3) + torch.arange(3), torch.zeros_like(x), x.new_ones(2), torch.tensor([1.0, 2.0])


def grad_modes(x, logs):
    with logs, torch.no_grad():
        y = LINEAR(x)
    with torch.no_grad(), logs:
        z = LINEAR(x)
    return y, z, LINEAR(x)


def one_in_another(x, logs):
    with Scales(2.0):
        with Scales(3.0), logs:
            y = torch.sin(x)
        z = torch.sin(x)
    return y, z, torch.sin(x)


def another_operation(x, logs):
    with Swaps(), logs:
        return torch.add(x, 3), x + 3, x - 3


def new_tensors_of_another_dtype(x, logs):
    with Doubles():
        return torch.ones(3) + torch.arange(3), torch.zeros(2)


def an_exception(x, logs):
    try:
        with logs, Forbids():
            y = torch.sin(x)
    except RuntimeError as error:
        y = str(error)
    return y, torch.sin(x)


def a_mode_that_does_nothing(x, logs):
    with BaseTorchFunctionMode(), logs:
        return torch.sin(x) + 1


def modes_switched_off(x, logs):
    with logs:
        y = torch.sin(x)
        with torch._C.DisableTorchFunction():
            y = torch.cos(y) + torch.ones(3)
        return torch.sin(y)


def an_exit_stack(x, logs):
    with contextlib.ExitStack() as stack:
        stack.enter_context(logs)
        stack.enter_context(torch.device("cpu"))
        y = torch.sin(x) + torch.ones(3)
    return torch.cos(y)


def devices(x, logs):
    with torch.device("cpu"), logs:
        y = torch.ones(3) + x
    with x.device as device:
        return y, torch.zeros(3, device=None), torch.get_default_device(), device


@pytest.mark.parametrize(
    "fn",
    [
        functions,
        operators,
        items_and_attributes,
        modules,
        new_tensors,
        grad_modes,
        one_in_another,
        another_operation,
        new_tensors_of_another_dtype,
        an_exception,
        a_mode_that_does_nothing,
        modes_switched_off,
        an_exit_stack,
        devices,
    ],
    ids=lambda fn: fn.__name__,
)
def test_a_mode_inside_is_traced_in_one_graph(fn):
    stats = agree(fn)
    assert stats["breaks"] == 0, stats


def a_break_in_the_region(x, logs):
    with logs:
        y = torch.sin(x)
        core.disable(lambda: logs.names.append("plain"))()
        y = torch.cos(y)
    return torch.sin(y)


def the_truth_of_a_tensor(x, logs):
    with logs:
        return torch.sin(x) if x.sum() > 3 else torch.cos(x)


def a_loop_over_a_tensor(x, logs):
    with logs:
        return [row + 1 for row in x]


def a_mode_left_on(x, logs):
    logs.__enter__()
    return torch.sin(x)


@pytest.mark.parametrize(
    "fn", [a_break_in_the_region, the_truth_of_a_tensor, a_loop_over_a_tensor], ids=lambda fn: fn.__name__
)
def test_behind_a_break_the_real_mode_is_asked(fn):
    agree(fn)


def test_a_mode_that_is_left_on_is_on_afterwards():
    logs = Logs()
    fast = core.compile(a_mode_left_on, backend="eager")
    with contextlib.ExitStack() as stack:
        fast(X, logs)
        stack.callback(logs.__exit__, None, None, None)
        assert torch._C._len_torch_function_stack() == 1
        torch.cos(X)
    assert [name for name, *_ in logs.names] == ["sin", "cos"]


def test_another_class_of_mode_is_captured_anew():
    def fn(x, mode):
        with mode:
            return torch.sin(x)

    core.reset()
    fast = core.compile(fn, backend="eager")
    for mode in (Scales(2.0), Swaps(), Scales(3.0)):
        assert torch.equal(fast(X, mode), fn(X, mode))
    assert core.stats()["breaks"] == 0
