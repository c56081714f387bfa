"""Objects of namedtuple classes with an instance dict, and itertools.compress over what a graph holds."""

from __future__ import annotations

import collections
import itertools

import torch
from compare import check

import core

X = torch.arange(6.0).reshape(2, 3)
Pair = collections.namedtuple("Pair", ["first", "second"])


class OpenPair(Pair):
    def total(self):
        return self.first + self.second + self.shift


class WithProperty(Pair):
    @property
    def both(self):
        return self.first, self.second

    @both.setter
    def both(self, value):
        self.kept = value


def test_attributes_of_a_named_tuple_made_inside():
    def fn(x):
        pair = OpenPair(x, x + 1)
        pair.shift = 2
        pair.shift = x * 3
        try:
            pair.first = x
        except AttributeError as error:
            pair.text = str(error)
        return pair.total(), pair.text, hasattr(pair, "shift"), hasattr(pair, "other"), pair

    core.reset()
    got, want = core.compile(fn, backend="eager", fullgraph=True)(X), fn(X)
    assert torch.equal(got[0], want[0]) and got[1:4] == want[1:4]
    assert type(got[4]) is OpenPair and torch.equal(got[4].shift, X * 3) and torch.equal(got[4].second, X + 1)


def test_attributes_of_a_named_tuple_from_outside_are_guarded_and_written_back():
    pair = OpenPair(X, X + 1)
    pair.shift = 1

    def fn(pair):
        pair.seen = pair.first * 2
        return pair.total()

    fast = core.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(fast(pair), X + X + 1 + 1) and torch.equal(pair.seen, X * 2)
    pair.shift = 5
    assert torch.equal(fast(pair), X + X + 1 + 5)


def test_a_property_of_a_named_tuple_is_set_by_its_setter():
    def fn(x):
        pair = WithProperty(x, x + 1)
        pair.both = x * 4
        return pair.kept, pair.both

    check(fn, X)


def test_compress_picks_by_selectors_and_comes_back_where_it_stands():
    def fn(x):
        rest = itertools.compress([x, x + 1, x + 2, x + 3], [1, 0, True, 1])
        return next(rest), list(itertools.compress("abcd", itertools.cycle([0, 1]))), rest

    core.reset()
    first, letters, rest = core.compile(fn, backend="eager", fullgraph=True)(X)
    assert torch.equal(first, X) and letters == ["b", "d"] and isinstance(rest, itertools.compress)
    assert [torch.equal(a, b) for a, b in zip(list(rest), (X + 2, X + 3))] == [True, True]
