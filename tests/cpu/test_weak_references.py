"""Weak references inside compiled functions: the object while it lives, None afterwards."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import core


def compiled(fn):
    core.reset()
    return core.compile(fn, backend="eager", fullgraph=True)


def graphs():
    return core.stats()["graphs"]


def test_a_referent_that_dies_is_seen_to_be_gone():
    def fn(ref, y):
        x = ref()
        return y + 1 if x is not None else y - 1

    x, y = torch.zeros(2), torch.zeros(2)
    ref, before = weakref.ref(x), graphs()
    call = compiled(fn)
    assert call(ref, y).tolist() == call(ref, y).tolist() == [1.0, 1.0]
    del x
    gc.collect()
    assert ref() is None  # the compiled code does not hold it
    assert call(ref, y).tolist() == call(ref, y).tolist() == [-1.0, -1.0]
    assert graphs() - before == 2


def test_a_referent_is_computed_with_and_is_one_object_with_what_else_reaches_it():
    def fn(ref, x, y):
        return ref() * y, ref() is x, ref() is y

    x, y = torch.full((2,), 3.0), torch.ones(2)
    result, same, other = compiled(fn)(weakref.ref(x), x, y)
    assert result.tolist() == [3.0, 3.0] and same is True and other is False


class Box:
    value = 4


def test_attributes_of_a_referent_are_guarded():
    def fn(ref, y):
        return y * ref().value

    box, y = Box(), torch.ones(2)
    call = compiled(fn)
    assert call(weakref.ref(box), y).tolist() == [4.0, 4.0]
    box.value = 5
    assert call(weakref.ref(box), y).tolist() == [5.0, 5.0]


def test_a_reference_made_inside_is_called_and_given_back():
    def fn(x):
        ref = weakref.ref(x)
        return ref() + 1, ref, weakref.ref(x) is ref

    x = torch.zeros(2)
    result, ref, same = compiled(fn)(x)
    assert result.tolist() == [1.0, 1.0] and ref() is x and same is True


def test_a_reference_to_what_the_graph_makes_is_not_traced():
    def fn(x):
        y = x + 1
        ref = weakref.ref(y)
        return x * (2 if ref() is None else 3)

    with pytest.raises(core.errors.Unsupported, match="weak reference"):
        compiled(fn)(torch.ones(2))
