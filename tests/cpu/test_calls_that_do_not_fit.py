"""Calls whose arguments a function does not take raise what Python raises, word by word."""

from __future__ import annotations

import pytest
import torch
from observed import agrees


def one(a, b=1, *, c):
    return a


def two(a, *, c, d, e=2):
    return a


def none():
    return 1


def placed(a, b, /, c=3):
    return a


def open_ended(a, *rest, **named):
    return a


class Box:
    def __init__(self, size):
        self.size = size

    def grow(self, by):
        return self.size + by


CALLS = {
    "too many beside a keyword": lambda: one(1, 2, 3, c=1),
    "too many": lambda: one(1, 2, 3),
    "first missing": lambda: one(c=1),
    "unknown keyword": lambda: one(1, c=1, d=2),
    "twice": lambda: one(1, a=2, c=1),
    "keyword missing": lambda: one(1),
    "two keywords missing": lambda: two(1),
    "too many and keyword missing": lambda: two(1, 2, c=1),
    "one too many for none": lambda: none(1),
    "keyword for none": lambda: none(x=1),
    "several missing": lambda: placed(),
    "placed by keyword": lambda: placed(a=1, b=2),
    "too many with default": lambda: placed(1, 2, 3, 4),
    "missing before the rest": lambda: open_ended(b=1),
    "object without size": lambda: Box(),
    "object with too much": lambda: Box(1, 2),
    "method without argument": lambda: Box(1).grow(),
    "method with too much": lambda: Box(1).grow(1, 2),
    "method without object": lambda: Box.grow(),
    "lambda": lambda: (lambda: 1)(2),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_does_not_fit_raises_what_python_raises(call):
    def fn(x):
        try:
            call()
        except TypeError as error:
            return str(error), x + 1

    agrees(lambda: (fn, (torch.ones(2),)))


def test_a_function_made_inside_complains_under_its_own_name():
    def fn(x):
        start = 1

        def inner(a, b=start, *, c=2):
            return a

        try:
            inner(1, 2, 3)
        except TypeError as error:
            return str(error), x + inner(1)

    agrees(lambda: (fn, (torch.ones(2),)))
