"""Names that a program binds anew: builtins, methods on objects; and marks that make a tensor a parameter."""

from __future__ import annotations

import builtins
import random

import torch
from torch.testing._internal.two_tensor import TwoTensor

import core


def test_a_builtin_that_was_replaced_for_a_while_is_noticed_at_each_call():
    class Marked:
        pass

    def fn(x, y):
        return x + 1 if isinstance(y, Marked) else x - 1

    core.reset()
    real = builtins.isinstance
    fast = core.compile(fn, backend="eager", fullgraph=True)
    x, y = torch.zeros(2), Marked()
    for _ in range(2):
        try:
            builtins.isinstance = lambda value, cls: False if real(value, Marked) else real(value, cls)
            replaced = fast(x, y)
        finally:
            builtins.isinstance = real
        assert torch.equal(replaced, x - 1)
        assert torch.equal(fast(x, y), x + 1)
    assert core.stats()["graphs"] >= 2


def test_a_method_kept_from_before_its_name_was_taken_is_not_looked_up_again():
    def made():
        source = random.Random(1)
        kept = source.random

        def doubled():
            return 2 * kept()

        source.random = doubled
        return source

    def fn(x, source):
        return x + source.random()

    fast = core.compile(fn, backend="eager")
    assert torch.equal(fast(torch.zeros(2), made()), fn(torch.zeros(2), made()))


def test_a_tensor_of_a_subclass_that_is_marked_as_a_parameter_is_one():
    plain = torch.randn(2)
    marked = torch.nn.Parameter(TwoTensor(plain, plain))

    def fn(weight):
        return weight + 1 if isinstance(weight, torch.nn.Parameter) else weight + 2

    fast = core.compile(fn, backend="eager")
    for weight in (marked, TwoTensor(plain, plain), marked):
        assert torch.equal(fast(weight).a, fn(weight).a)
