"""Objects of C that traced code makes for itself, and sets of classes and functions from outside."""

from __future__ import annotations

import functools
import threading

import torch

import core


class Base:
    pass


def outside():
    return 1


KINDS = frozenset({list, tuple, dict})
MARKED = {Base, int}
FUNCTIONS = {outside, len}


def test_a_function_made_inside_keeps_its_results():
    runs = []

    def fn(x):
        @functools.lru_cache(maxsize=2)
        def scaled(a, b=1):
            runs.append(a)
            return a * 2 + b

        @functools.cache
        def fibonacci(n):
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

        class Holder:
            @functools.lru_cache  # noqa: B019 - the class goes with the call
            def next(self, k):
                return k + 1

        holder = Holder()
        results = [scaled(1), scaled(2), scaled(1), scaled(3), scaled(2), scaled(1, b=4), scaled(1.0), scaled(True)]
        info = tuple(scaled.cache_info())
        scaled.cache_clear()
        methods = holder.next(1) + holder.next(1), Holder.next.cache_info().hits
        return x + fibonacci(20), results, info, scaled.cache_info().currsize, methods, scaled.__name__

    core.reset()
    x = torch.ones(2)
    result = core.compile(fn, backend="eager", fullgraph=True)(x)
    seen = list(runs)
    runs.clear()
    expected = fn(x)
    assert torch.equal(result[0], expected[0]) and result[1:] == expected[1:]
    assert seen == runs
    assert core.stats()["graphs"] == 1


def test_a_function_that_is_given_back_is_made_by_python():
    core.reset()
    fast = core.compile(lambda x: (x + 1, functools.lru_cache(outside)), backend="eager")
    result, kept = fast(torch.ones(2))
    assert type(kept) is type(functools.lru_cache(outside)) and kept() == 1
    assert torch.equal(result, torch.full((2,), 2.0))
    assert core.stats()["breaks"] == 1


def test_a_lock_made_inside_is_free():
    def fn(x):
        lock = threading.RLock()
        with lock, lock:
            x = x + 1
        try:
            lock.release()
        except RuntimeError as error:
            return x, str(error)
        return x, ""

    result, text = core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))
    assert torch.equal(result, torch.full((2,), 2.0)) and text == fn(torch.ones(2))[1]


def test_sets_of_classes_and_functions_are_guarded_by_what_is_in_them():
    def fn(x, cls):
        return x + 1, cls in KINDS, cls in MARKED, outside in FUNCTIONS, print in FUNCTIONS, int in (MARKED | {float})

    core.reset()
    fast = core.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(1)
    for cls in (list, Base, list):
        assert fast(x, cls)[1:] == fn(x, cls)[1:]
    assert core.stats()["graphs"] == 2
    MARKED.add(list)
    try:
        assert fast(x, list)[1:] == fn(x, list)[1:] and fast(x, list)[2]
    finally:
        MARKED.discard(list)
    assert not fast(x, list)[2]
