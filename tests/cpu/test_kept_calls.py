"""Compiling the same function or module again: one compile, however short each callable lives."""

import copy
import functools
import gc
import pickle
import weakref

import pytest
import torch

import core
from core.kept_calls import MOST

X = torch.arange(3.0)


class Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))
        self.me = [self]

    def forward(self, x):
        return x * self.factor


def doubled(x):
    return x * 2


def frames():
    return core.stats()["frames"]


@pytest.mark.parametrize("target", [doubled, Scaled(2.0), Scaled(2.0).forward], ids=["function", "module", "method"])
def test_what_is_compiled_in_a_loop_is_compiled_once(target):
    for _ in range(4):
        assert torch.equal(core.compile(target, backend="eager")(X), X * 2)
        gc.collect()
    assert frames() == 1
    core.compile(target, backend="eager", dynamic=False)(X)
    assert frames() == 2
    core.reset()
    assert torch.equal(core.compile(target, backend="eager")(X), X * 2)
    assert frames() == 1


def test_a_module_compiled_twice_over_has_the_entries_of_the_first():
    module = Scaled(3.0)
    compiled = [core.compile(module, backend="eager")]
    compiled.append(core.compile(compiled[0], backend="eager"))
    compiled.append(core.compile(Scaled(3.0), backend="eager"))
    assert all(torch.equal(call(X), X * 3) for call in compiled)
    assert frames() == 2
    copied = copy.deepcopy(compiled[0])
    copied.factor.data.fill_(5.0)
    assert torch.equal(copied(X), X * 5) and torch.equal(compiled[0](X), X * 3)


def test_a_module_whose_class_gets_another_call_is_called_by_that():
    class Net(Scaled):
        pass

    net = Net(2.0)
    assert torch.equal(core.compile(net, backend="eager")(X), X * 2)
    Net.__call__ = lambda self, x: self.forward(x) + 1
    assert torch.equal(core.compile(net, backend="eager")(X), X * 2 + 1)


def test_functions_and_modules_go_with_what_was_compiled_of_them():
    def made(big):
        return lambda x: x + big.sum()

    def uses(kind):
        big = torch.ones(10)
        target = made(big) if kind == "function" else Scaled(2.0)
        core.compile(target, backend="aot_eager")(X)
        return weakref.ref(target), weakref.ref(big if kind == "function" else target.factor)

    for kind in ("function", "module"):
        links = uses(kind)
        gc.collect()  # the module; with it goes the table's hold on the rest
        gc.collect()
        assert [link() for link in links] == [None, None]


def test_a_function_keeps_its_latest_callables_only():
    def fn(x):
        return x + 1

    links = [weakref.ref(core.compile(fn, backend=lambda module, inputs: module)) for _ in range(MOST + 3)]
    gc.collect()
    assert [link() is not None for link in links] == [False] * 3 + [True] * MOST


def test_a_wrapper_and_copies_take_nothing_over():
    def fn(x):
        return x + 1

    core.compile(fn, backend="eager")(X)
    assert pickle.loads(pickle.dumps(fn.__dict__)) == copy.deepcopy(fn.__dict__) == {"_core_kept_calls": None}

    def wrapped():
        @functools.wraps(fn)
        def wrapper(x):
            return fn(x) * 2

        assert torch.equal(core.compile(wrapper, backend="eager")(X), (X + 1) * 2)
        return weakref.ref(wrapper)

    gone = wrapped()
    gc.collect()
    assert gone() is None
