"""Handlers around an operation that may raise behind a write: which of them end the graph before it."""

from __future__ import annotations

import builtins

from test_errors_of_kernels import LOG, agree, bad, good

import core


def test_what_a_block_undoes_at_its_end_is_undone_where_plain_python_began_the_block():
    def begun_inside(x, i):
        state = {"depth": 0}
        x.add_(1)
        state["depth"] += 1
        try:
            return x[i]
        finally:
            state["depth"] -= 1

    def begun_before(x, i):
        LOG.append("begun")
        try:
            print(end="")
            x.add_(1)
            return x[i]
        finally:
            LOG.append("ended")

    agree(begun_inside, good, good, graphs=1, breaks=0)
    core.reset()
    agree(begun_before, good, bad, good, graphs=1, breaks=2)


def test_a_class_with_a_dotted_name_is_one_that_may_match():
    def fn(x, i):
        x.add_(1)
        try:
            return x[i]
        except builtins.IndexError:
            return x

    agree(fn, good, bad, good, breaks=1)
