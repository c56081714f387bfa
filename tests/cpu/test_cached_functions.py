"""Functions under functools.lru_cache: what they see, and what they leave, comes in eager's order."""

from __future__ import annotations

import functools

import pytest
import torch

import core

LOG: list = []
SETTINGS = {"factor": 2}
SCALE = 3


@functools.lru_cache
def noting(k):
    LOG.append(("body", k))
    return k * 2


@functools.lru_cache
def scaling(k):
    return k * factor()


def factor():
    return SETTINGS["factor"]


@functools.cache
def of_a_global(k):
    return k * SCALE


@functools.cache
def plain(k):
    return torch.arange(k).float()


CACHED = (noting, scaling, of_a_global, plain)


def notes_between(x, k):
    LOG.append(1)
    y = x * noting(k)
    LOG.append(2)
    return y


def counts_notes(x, k):
    before = len(LOG)
    y = x * noting(k)
    return y, len(LOG) - before


def changes_a_setting_first(x, k):
    SETTINGS["factor"] = k + 5
    return x * scaling(k)


def binds_a_global_first(x, k):
    global SCALE
    SCALE = k + 7
    return x * of_a_global(k)


def run(fn, compiled):
    """Results and everything left behind, over calls with arguments that come again."""
    global SCALE
    LOG.clear()
    SETTINGS["factor"], SCALE = 2, 3
    for cached in CACHED:
        cached.cache_clear()
    results = [compiled(torch.ones(2), k) for k in (1, 1, 2)]
    return repr(results), list(LOG), dict(SETTINGS), SCALE


@pytest.mark.parametrize(
    "fn", [notes_between, counts_notes, changes_a_setting_first, binds_a_global_first], ids=lambda fn: fn.__name__
)
def test_a_cached_function_that_reaches_what_was_changed_runs_where_it_stands(fn):
    core.reset()
    assert run(fn, core.compile(fn, backend="eager")) == run(fn, fn)
    assert core.stats()["graphs"] >= 1
    assert core.stats()["breaks"] >= 1


def test_a_cached_function_of_its_arguments_breaks_no_graph():
    core.reset()

    def fn(x, k):
        LOG.append(k)
        SETTINGS["seen"] = k
        return x + plain(2) * SETTINGS["factor"]

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    for cached in CACHED:
        cached.cache_clear()
    assert torch.equal(compiled(torch.ones(2), 1), fn(torch.ones(2), 1))
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (1, 0)


class Table:
    def __init__(self, factor):
        self.factor, self.rows = factor, 0

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def times(self, k):
        return self.scaled(k)

    @functools.cache  # noqa: B019
    def row(self, n):
        return torch.arange(n).float() * self.factor

    @functools.cache  # noqa: B019
    def counted(self, k):
        self.rows += 1
        return k

    def scaled(self, k):
        return k * self.factor


class Positions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2

    @functools.lru_cache  # noqa: B019
    def of(self, n):
        return torch.arange(n) * self.factor

    def forward(self, x):
        return x + self.of(x.shape[0])


def test_a_cached_method_of_an_object_from_outside_breaks_no_graph():
    def fn(x, table):
        return x * table.times(3) + table.row(2)

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    x, table, other = torch.ones(2), Table(2), Table(5)
    for each in (table, other, table):
        assert torch.equal(compiled(x, each), fn(x, each))
    other.factor = 7  # what is cached stays
    assert torch.equal(compiled(x, other), fn(x, other))
    Table.times.cache_clear()
    assert torch.equal(compiled(x, other), x * 21 + torch.tensor([0.0, 5.0]))
    net = Positions()
    assert torch.equal(core.compile(net, backend="eager", fullgraph=True)(x), net(x))


def test_a_cached_method_runs_where_it_stands_when_something_was_changed_or_it_writes():
    def changes(x, table):
        table.factor += 1
        return x * table.times(4)

    def writes(x, table):
        before = table.rows
        return x * table.counted(4) + before, table.rows

    for fn in (changes, writes):
        Table.times.cache_clear()
        Table.counted.cache_clear()
        mine, theirs = Table(2), Table(2)
        compiled = core.compile(fn, backend="eager")
        for _ in range(2):
            assert repr(compiled(torch.ones(2), mine)) == repr(fn(torch.ones(2), theirs))
        assert vars(mine) == vars(theirs)
