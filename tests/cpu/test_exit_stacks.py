"""contextlib.ExitStack, and methods bound by hand, inside one graph."""

from __future__ import annotations

import contextlib
import types

import pytest
import torch

import core


class Noted:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return len(self.log)

    def __exit__(self, kind, *rest):
        self.log.append(("out", kind and kind.__name__))
        return True


@contextlib.contextmanager
def numbered(log):
    log.append(1)
    yield log
    log.append(2)


def leaves_by_exception(x):
    log = []
    with numbered(log) as seen, contextlib.ExitStack() as stack:
        stack.enter_context(numbered(log))
        count = stack.enter_context(Noted(log))
        stack.callback(log.append, 7)
        x = x + len(seen) * count
        raise ValueError("left")
    return x, log


def hands_over(x):
    stack, log = contextlib.ExitStack(), []
    with stack:
        stack.enter_context(Noted(log))
        x = x * 2
        later = stack.pop_all()
    log.append("between")
    later.close()
    return x, log


def binds(x):
    method = types.MethodType(lambda self, times: self * times, x)
    return method(3) + method.__self__


@pytest.mark.parametrize("program", [leaves_by_exception, hands_over, binds])
def test_one_graph_does_what_eager_does(program):
    compiled = core.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        x = torch.randn(3)
        found, expected = compiled(x), program(x)
        assert str(found) == str(expected)
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


def test_binding_what_can_not_be_called_is_the_programs_error():
    def program(x):
        try:
            types.MethodType(3, x)
        except TypeError as error:
            return x + 1, str(error)

    x = torch.randn(3)
    assert core.compile(program, backend="eager", fullgraph=True)(x)[1] == program(x)[1]
    assert core.stats()["graphs"] == 1
