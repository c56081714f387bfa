"""Dicts and sets of weak references inside compiled functions: reads are guarded, entries go when their objects do."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from compare import same

import core

X = torch.arange(3.0)


class Key:
    scale = 2


def compiled(fn, **options):
    core.reset()
    return core.compile(fn, backend="eager", **options)


def test_reading_a_dict_with_weak_keys():
    first, second = Key(), Key()
    table = weakref.WeakKeyDictionary({first: 3})

    def fn(x, key):
        return x * table.get(key, 1), key in table, len(table), x + table[first]

    fast = compiled(fn, fullgraph=True)
    for key in (first, second, first):
        assert same(fast(X, key), fn(X, key))
    table[second] = 5
    assert same(fast(X, second), fn(X, second))
    table[first] = 7
    assert same(fast(X, first), fn(X, first))


def test_reading_a_dict_with_weak_values():
    kept = Key()
    table = weakref.WeakValueDictionary({"a": kept})

    def fn(x):
        scale = table["a"].scale if "a" in table else 10
        return x * scale, sorted(table.keys()), [value.scale for value in table.values()]

    fast = compiled(fn, fullgraph=True)
    assert same(fast(X), fn(X))
    kept.scale = 4
    assert same(fast(X), fn(X))
    del kept
    gc.collect()
    assert len(table) == 0 and same(fast(X), fn(X))  # the compiled code does not hold it


def test_a_missing_entry_is_a_key_error():
    table = weakref.WeakValueDictionary()

    def fn(x):
        try:
            return x * table["a"].scale
        except KeyError as error:
            return x, error.args

    assert same(compiled(fn, fullgraph=True)(X), fn(X))


def test_a_weak_set():
    one, two = Key(), Key()
    members = weakref.WeakSet([one])

    def fn(x, key):
        return x + 1 if key in members else x, len(members), [member.scale for member in members]

    fast = compiled(fn, fullgraph=True)
    for key in (one, two, one):
        assert same(fast(X, key), fn(X, key))
    members.add(two)
    assert same(fast(X, two), fn(X, two))


def test_writing_is_left_to_python():
    one = Key()
    table = weakref.WeakValueDictionary()

    def fn(x):
        x = x + 1
        table["a"] = one
        return x * len(table)

    fast = compiled(fn)
    assert same(fast(X), fn(X)) and core.stats()["breaks"] == 1
    with pytest.raises(core.Unsupported, match="WeakValueDictionary"):
        compiled(fn, fullgraph=True)(X)


def test_an_object_in_a_variable_lives_to_the_end_of_the_function():
    def fn(x):
        key = Key()
        key.scale = 3
        table = weakref.WeakValueDictionary()
        table["a"] = key
        print(end="")
        return x * table["a"].scale, len(table)

    fast = compiled(fn)
    for _ in range(3):
        assert same(fast(X), fn(X))


def test_a_reference_to_an_object_of_the_closure():
    key, layer = Key(), torch.nn.Linear(3, 3)

    def fn(x):
        return weakref.ref(layer)()(x) * weakref.ref(key)().scale

    assert same(compiled(fn, fullgraph=True)(X), fn(X))
