"""types.SimpleNamespace and subclasses of it: made, read, changed and compared in captured code."""

from __future__ import annotations

import copy
import types

import torch
from agreement import agree, notices_each

import core

X = torch.arange(6.0).reshape(2, 3)


def test_a_namespace_lives_and_leaves_in_one_graph():
    def fn(x):
        made = types.SimpleNamespace(a=x + 1, b=2)
        made.c = made.a * made.b
        del made.b
        return made, made.c + 1, hasattr(made, "b"), vars(made)["c"], getattr(made, "z", 5)

    stats = agree(fn, X)
    assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_changes_of_a_namespace_from_outside_are_written_back():
    def fn(x, state):
        state.count += 1
        state.last = x * state.count
        state.__dict__["seen"] = True
        return state.last + 1

    stats = agree(fn, X, types.SimpleNamespace(count=1))
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (1, 0, 0)


def test_namespaces_are_equal_when_their_attributes_are():
    def fn(x, one, other):
        new = types.SimpleNamespace(a=1, b="x")
        return x + (one == other), one == new, one != other, one == 3, new == types.SimpleNamespace(a=1, b="x")

    stats = agree(fn, X, types.SimpleNamespace(a=1, b="x"), types.SimpleNamespace(b="x", a=2))
    assert stats["breaks"] == 0


def test_a_subclass_with_methods_and_an_init_of_its_own():
    class Config(types.SimpleNamespace):
        scale = 3

        def __init__(self, width, **rest):
            super().__init__(width=width, **rest)
            self.depth = width * 2

        def apply(self, x):
            return x * self.scale + self.depth

    def fn(x):
        config = Config(2, name="n")
        return config.apply(x), config.name, config.width

    stats = agree(fn, X)
    assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_wrong_arguments_raise_what_eager_raises():
    def fn(x):
        try:
            types.SimpleNamespace(1, 2)
        except TypeError as error:
            return x + 1, str(error)

    assert agree(fn, X)["breaks"] == 0


@notices_each
def test_each_change_of_an_attribute():
    state = types.SimpleNamespace(factor=2)

    def fn(x):
        return x * state.factor * getattr(state, "other", 1)

    def another_value():
        state.factor = 5

    def another_attribute():
        state.other = 7

    def gone_again():
        del state.other

    return fn, (X,), [another_value, another_attribute, gone_again]


def test_a_namespace_survives_a_break():
    def fn(x):
        made = types.SimpleNamespace(a=x + 1)
        print(made.a.shape)
        made.b = made.a * 2
        return made

    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        got, want = compiled(X), fn(copy.copy(X))
        assert torch.equal(got.a, want.a) and torch.equal(got.b, want.b)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (2, 1)
