"""torch.set_default_dtype inside captured functions: in force from there on, in the graph and behind it."""

from __future__ import annotations

import contextlib

import pytest
import torch

import core

X = torch.arange(6.0).reshape(2, 3)


@core.disable
def plain():
    pass


@pytest.fixture(autouse=True)
def default_dtype():
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def snapshot(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    return [snapshot(item) for item in value] if isinstance(value, (tuple, list)) else value


def agree(fn, backend="eager", calls=3):
    seen = []
    for compiled in (False, True):
        core.reset()
        run = core.compile(fn, backend=backend) if compiled else fn
        results = []
        for _ in range(calls):
            results.append((snapshot(run(X)), torch.get_default_dtype()))
            torch.set_default_dtype(torch.float32)
        seen.append(results)
    assert seen[0] == seen[1]
    return core.stats()


def there_and_back(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        y = torch.ones(3) * 0.1
    finally:
        torch.set_default_dtype(before)
    return x + y, torch.ones(2) / 3, torch.get_default_dtype()


def several(x):
    torch.set_default_dtype(torch.float64)
    a = torch.ones(3)
    torch.set_default_dtype(torch.bfloat16)
    b = torch.ones(3)
    torch.set_default_dtype(torch.float32)
    return a, b, torch.ones(3), torch.tensor(1.5)


def left_changed(x):
    torch.set_default_dtype(torch.float64)
    return x + torch.zeros(3), torch.tensor(0.1)


def whole_numbers(x):
    with of(torch.float64):
        y = torch.arange(3) * 0.1
    return x + y, torch.arange(3) / 2


@contextlib.contextmanager
def of(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def in_a_region(x):
    with of(torch.float64):
        y = torch.linspace(0, 1, 3)
    return x * y, torch.zeros(1)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [there_and_back, several, left_changed, in_a_region], ids=lambda fn: fn.__name__)
def test_a_switch_of_the_default_dtype_is_part_of_the_graph(fn, backend):
    stats = agree(fn, backend)
    assert (stats["breaks"], stats["graphs"], stats["recompiles"]) == (0, 1, 0)


def test_a_switch_is_in_force_behind_a_break():
    def fn(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(3)
        plain()
        z = torch.zeros(2)
        torch.set_default_dtype(torch.float32)
        return x + y, z, torch.tensor(1.0)

    stats = agree(fn)
    assert (stats["breaks"], stats["graphs"]) == (1, 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_whole_numbers_become_numbers_of_the_default_dtype(backend):
    agree(whole_numbers, backend)


def test_a_dtype_that_torch_refuses_raises_as_in_eager():
    def fn(x):
        try:
            torch.set_default_dtype(torch.int32)
        except TypeError as error:
            return x + 1, str(error)

    agree(fn)
