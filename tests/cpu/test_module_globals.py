"""State that two names reach: a module's attributes and its globals, an object's attributes, a list given to itself."""

from __future__ import annotations

import sys
import types

import pytest
import torch

import core

SOURCE = """
count = 0

def step(x):
    global count
    count += 1
    return x * count
"""


@pytest.fixture
def other():
    module = types.ModuleType("module_with_globals")
    exec(compile(SOURCE, "module_with_globals.py", "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def compiled(fn, *args):
    core.reset()
    before = core.stats()
    result = core.compile(fn, backend="eager", fullgraph=True)(*args)
    after = core.stats()
    assert after["graphs"] - before["graphs"] == 1 and after["breaks"] == before["breaks"]
    return result


def test_a_global_that_another_modules_function_stores_is_seen_through_the_module(other):
    def fn(x):
        return other.step(x) * other.count

    assert torch.equal(compiled(fn, torch.ones(2)), torch.ones(2))
    assert other.count == 1


def test_a_modules_attribute_set_from_outside_is_seen_by_its_own_functions(other):
    def fn(x):
        other.count = 5
        result = other.step(x)
        other.count = other.count * 2
        return result

    assert torch.equal(compiled(fn, torch.ones(2)), 6 * torch.ones(2))
    assert other.count == 12


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


def test_an_attribute_set_and_deleted_in_one_call_leaves_nothing_behind():
    def fn(x, pair):
        pair.c = x + 1
        del pair.c
        del pair.a
        return x + (2 if hasattr(pair, "c") else 3)

    pair = Pair(1, 2)
    assert torch.equal(compiled(fn, torch.zeros(2), pair), torch.full((2,), 3.0))
    assert vars(pair) == {"b": 2}


class Doubling(list):
    def twice(self, item):
        self.extend([item, item])


def test_a_list_subclass_is_extended_by_itself_as_it_was():
    def fn(items):
        items.extend(items)
        items.twice(items[2] + 1)
        return items

    items = Doubling([torch.ones(1), torch.zeros(1)])
    assert compiled(fn, items) is items
    assert [float(item) for item in items] == [1, 0, 1, 0, 2, 2]


def test_a_size_made_inside_is_a_size():
    def fn(x):
        size = torch.Size([x.shape[0], 2])
        return x + 1, size, isinstance(size, torch.Size)

    _, size, inside = compiled(fn, torch.ones(3))
    assert type(size) is torch.Size and size == (3, 2) and inside is True
