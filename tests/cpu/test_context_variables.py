"""contextvars.ContextVar: what a function reads is guarded, what it sets is set."""

from __future__ import annotations

import contextvars

import pytest
import torch

import core

SCALE = contextvars.ContextVar("scale", default=3)
BARE: contextvars.ContextVar = contextvars.ContextVar("bare")
X = torch.ones(2)


def reads(x):
    return x * SCALE.get() + BARE.get(1), SCALE.name


def reads_what_may_be_missing(x):
    try:
        return x * BARE.get()
    except LookupError as error:
        return x - 1, error.args[0] is BARE


def sets_for_a_while(x):
    token = SCALE.set(5)
    inner = BARE.set([x])
    try:
        y = x * SCALE.get() + BARE.get()[0]
    finally:
        BARE.reset(inner)
        SCALE.reset(token)
    return y * SCALE.get(), token.var is SCALE


def sets(x):
    SCALE.set(SCALE.get() + 1)
    BARE.set(x * 2)
    return x * SCALE.get()


def resets_behind_a_break(x):
    token = SCALE.set(7)
    y = x * SCALE.get()
    print(end="")
    SCALE.reset(token)
    return y + SCALE.get()


def in_context(fn, *changes):
    """Results of calls in contexts of their own, each with a change before it, and what the variables are behind."""

    def call(change):
        change()
        result = fn(X)
        return repr(result), SCALE.get(), repr(BARE.get("nothing"))

    return [contextvars.copy_context().run(call, change) for change in changes]


@pytest.mark.parametrize("fn", [reads, reads_what_may_be_missing, sets_for_a_while, sets])
def test_context_variables_are_part_of_the_traced_code(fn):
    compiled = core.compile(fn, backend="eager", fullgraph=True)
    changes = [lambda: None, lambda: None, lambda: SCALE.set(9), lambda: BARE.set(2), lambda: BARE.set([1.5])]
    if fn is not sets_for_a_while:
        del changes[-1]
    assert in_context(compiled, *changes) == in_context(fn, *changes)


def test_a_variable_that_is_reset_behind_a_break_has_its_real_token():
    core.reset()
    compiled = core.compile(resets_behind_a_break, backend="eager")
    assert in_context(compiled, *[lambda: None] * 3) == in_context(resets_behind_a_break, *[lambda: None] * 3)
    assert core.stats()["skipped"] == 0


def test_what_a_with_block_names_is_what_torch_gives():
    managers = (lambda: torch.autocast("cpu"), lambda: torch.profiler.record_function("part"), torch.no_grad)

    def fn(x, make):
        with make() as named:
            y = x + 1
        return y, type(named).__name__

    for make in managers:
        core.reset()
        x = torch.ones(3)
        assert core.compile(fn, backend="eager", fullgraph=True)(x, make)[1] == fn(x, make)[1]
