"""What a program made or was given lives no longer for having been captured."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from agreement import agree

import core


class Thing:
    count = 0


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def add_one(x, thing):
    return x + 1


def with_break(x, thing):
    thing.count = 2
    if x.sum() > 0:
        thing.count = 1
    return x + 1


def with_closures(x, thing):
    pair = [x * 2, thing]

    def inner():
        return pair[0] + len(pair)

    return inner()


@pytest.mark.parametrize("fn", [add_one, with_break, with_closures], ids=lambda fn: fn.__name__)
def test_arguments_of_the_first_call_are_freed_without_the_collector(fn, no_collector):
    x, thing = torch.ones(3), Thing()
    links = weakref.ref(x), weakref.ref(thing)
    core.compile(fn, backend="eager")(x, thing)
    assert core.stats()["graphs"] >= 1
    del x, thing
    assert [link() for link in links] == [None, None]


def test_a_generator_left_in_a_try_is_closed_when_the_function_ends(no_collector):
    log = []

    def numbers(name):
        try:
            yield 1
            yield 2
        finally:
            log.append(name)

    def fn(x):
        waiting = numbers("waiting")
        x = x + next(waiting)
        for number in numbers("loop"):
            x = x * number
            break
        log.append("end")
        return x

    for subject in (fn, core.compile(fn, backend="eager")):
        log.clear()
        subject(torch.ones(3))
        assert log == ["loop", "end", "waiting"]
    assert core.stats()["skipped"] == 1


def test_a_generator_left_outside_of_any_try_stays_in_the_graph():
    def numbers():
        yield 1
        yield 2

    def fn(x):
        return x + next(numbers())

    stats = agree(fn, torch.ones(3))
    assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_a_generator_begun_before_a_break_ends_with_its_loop(no_collector):
    ended = []

    def program(x):
        for number in enumerate([1, 2]):

            def begun(which):
                print(end="")
                try:
                    yield None
                finally:
                    ended.append(which)

            generator = begun(number)
            next(generator)
        return x + 1

    for _ in range(2):
        core.compile(program, backend="eager")(torch.ones(2))
        assert ended == [(0, 1), (1, 2)]
        ended.clear()


def raises_in_the_loop(items, absent):
    for item in items:
        del absent[item]


def raises_behind_a_break(items, absent):
    print(end="")
    for item in items:
        del absent[item + "s"]


@pytest.mark.parametrize("fn", [raises_in_the_loop, raises_behind_a_break], ids=lambda fn: fn.__name__)
def test_a_generator_whose_loop_raises_ends_before_the_caller_sees_the_exception(fn, no_collector):
    log = []

    def items():
        try:
            yield "key"
        finally:
            log.append(torch.ones(1))

    def program(x):
        fn(items(), {})
        return x

    core.compile(lambda x: x, backend="eager", dynamic=True)(torch.ones(2))  # imports what capture needs
    compiled = core.compile(program, backend="eager")
    for _ in range(3):
        with pytest.raises(KeyError):
            compiled(torch.ones(2))
        assert len(log) == 1
        log.clear()


class Row(list):
    pass


class Table(dict):
    pass


@pytest.mark.parametrize("make", [lambda x: Row([x]), lambda x: Table({0: x})], ids=["list", "dict"])
def test_containers_of_a_subclass_are_freed_without_the_collector(make, no_collector):
    x = torch.ones(3)
    link = weakref.ref(x)
    core.compile(lambda rows: rows[0] + 1, backend="eager")(make(x))
    del x
    assert link() is None
