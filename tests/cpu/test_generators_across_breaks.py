"""Generators that live across a graph break: one that has not started comes back to Python as a new one."""

from __future__ import annotations

import contextlib

import pytest
import torch

import core


def counted(n, /, a, *rest, k=2, **more):
    yield n + a
    yield from rest
    yield k
    yield from more.values()


@contextlib.contextmanager
def noted(notes):
    notes.append("in")
    print(end="")
    try:
        yield 3
    finally:
        notes.append("out")


def of_all_kinds_of_arguments(x, notes):
    made = counted(1, 2, 3, 4, k=9, z=7)
    print(end="")
    return x + sum(made)


def of_an_expression(x, notes):
    made = (i * 2 for i in range(3))
    print(end="")
    return x + sum(made)


def of_a_closure(x, notes):
    def inner():
        notes.append("started")
        yield x
        yield x + 1

    made = inner()
    print(end="")
    notes.append("behind the break")
    return x + sum(made)


def of_a_closure_under_two_names(x, notes):
    first = counted(1, 2)
    second = first
    print(end="")
    return x + next(first) + next(second) * (first is second)


def of_a_manager(x, notes):
    with noted(notes) as three:
        x = x + three
    return x * 2


def of_a_manager_entered_later(x, notes):
    manager = contextlib.nullcontext() if notes else noted(notes)
    x = x + 1
    print(end="")
    with manager as three:
        return x + three


PROGRAMS = {
    of_all_kinds_of_arguments: 2,
    of_an_expression: 2,
    of_a_closure: 2,
    of_a_closure_under_two_names: 3,
    of_a_manager: 2,
    of_a_manager_entered_later: 3,
}


@pytest.mark.parametrize(("fn", "breaks"), PROGRAMS.items(), ids=[fn.__name__ for fn in PROGRAMS])
def test_a_generator_that_has_not_started_is_given_back(fn, breaks):
    core.reset()
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        ours, theirs = [], []
        torch.testing.assert_close(compiled(torch.ones(2), ours), fn(torch.ones(2), theirs))
        assert ours == theirs
    assert (core.stats()["breaks"], core.stats()["skipped"]) == (breaks, 0)


def test_a_returned_generator_starts_when_the_caller_wants():
    def fn(x, notes):
        def later():
            notes.append("started")
            yield x * 2

        return later(), x + 1

    core.reset()
    notes = []
    made, y = core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2), notes)
    assert notes == [] and torch.equal(y, torch.full((2,), 2.0))
    assert torch.equal(next(made), torch.full((2,), 2.0)) and notes == ["started"]
    assert core.stats()["breaks"] == 0


def test_a_started_generator_goes_when_the_exception_that_holds_its_frame_goes():
    def fn(x, notes):
        def waits():
            try:
                yield x * 2
                yield x
            finally:
                notes.append("left")

        made = waits()
        y = next(made)
        return y[notes.index("absent")]

    core.reset()
    compiled = core.compile(fn, backend="eager")
    for _ in range(3):
        seen = []
        for subject in (fn, compiled):
            notes = []
            try:
                subject(torch.ones(2), notes)
            except ValueError as error:
                held = error
            seen.append(list(notes))
            del held
            seen.append(list(notes))
        assert seen == [[], ["left"]] * 2
    assert core.stats()["recompiles"] == 0


def test_a_variable_that_loses_a_generator_where_all_variables_may_be_asked_for():
    log = []

    def program(x):
        for k in range(3):
            try:

                def items(k):
                    try:
                        yield x
                    finally:
                        log.append(k)

                waiting = items(k)
                print(end="")
                next(waiting)
                [][k]
            except IndexError:
                log.append(len(vars(Thing())))
        return x + 1

    compiled = core.compile(program, backend="eager")
    for fn in (program, compiled, compiled):
        log.clear()
        assert torch.equal(fn(torch.ones(2)), torch.full((2,), 2.0))
        assert log == [0, 0, 0, 1, 0, 2]


class Thing:
    pass
