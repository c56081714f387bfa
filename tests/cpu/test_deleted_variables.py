"""Variables that are deleted behind a graph break: what asks for them afterwards finds nothing, as in eager."""

# ruff: noqa: F821 - names that are not bound are what is tested

from __future__ import annotations

import pytest
import torch

import core


def returned(x):
    value = 1
    print(end="")
    del value
    return value


def on_one_way(x):
    value = None
    if x.sum().item():
        del value
    return x + 1, value


def deleted_twice(x):
    value = x.sin()
    print(end="")
    del value
    try:
        del value
    except UnboundLocalError as error:
        return str(error)
    return None


def in_a_closure(x):
    value = x + 1

    def inner():
        return value

    print(end="")
    del value
    try:
        return inner()
    except NameError as error:
        return str(error)


def in_a_function_as_written(x):
    print(end="")
    found = []
    try:
        found.append(value)
    except NameError as error:
        found.append((type(error), str(error), error.__context__))
    finally:
        found.append(lambda: value)
    value = 2
    found.append(value)
    del value
    try:
        with torch.no_grad():
            del value
    except NameError as error:
        found.append((type(error), str(error), error.__traceback__.tb_lineno))
    del found[1]

    def gives():
        yield x

    run = gives()
    next(run)
    return found


def an_argument(x, given=3):
    other = given
    print(end="")
    del given
    try:
        return x + given
    except UnboundLocalError:
        return x + other


def of_a_loop(x):
    for turn in range(3):
        if turn == 1:
            print(end="")
            del turn
            return x + turn
    return x


def outcome(function):
    x = torch.ones(3)
    try:
        return repr(function(x))
    except UnboundLocalError as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "program", [returned, on_one_way, deleted_twice, in_a_closure, in_a_function_as_written, an_argument, of_a_loop]
)
def test_a_deleted_variable_is_not_bound(program):
    compiled = core.compile(program, backend="eager")
    assert outcome(compiled) == outcome(program)
    assert outcome(compiled) == outcome(program)
    assert core.stats()["breaks"] > 0
