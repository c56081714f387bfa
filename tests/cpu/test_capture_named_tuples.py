"""Objects of namedtuple classes with an instance dict, and itertools.compress over what a graph holds."""

from __future__ import annotations

import collections
import collections.abc
import gc
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


def test_a_named_tuple_class_made_inside_is_made_anew_by_each_call_without_recompiling():
    def fn(x):
        made = collections.namedtuple("Made", ["a", "b", "c"], defaults=(None, 1))
        pair = made(x, b=x + 1)
        facts = made.__name__, made.__module__, made._fields, made._field_defaults, isinstance(pair, made)
        return made, pair, pair._replace(c=pair.a + pair.b), facts, made._make([1, 2, 3])._asdict()

    core.reset()
    fast = core.compile(fn, backend="eager", fullgraph=True)
    first = fast(X)
    gc.collect()
    second, want = fast(X), fn(X)
    for got in (first, second):
        assert type(got[1]) is got[0] and type(got[2]) is got[0] and got[3:] == want[3:]
        assert torch.equal(got[1].b, X + 1) and got[1].c == 1 and torch.equal(got[2].c, X + X + 1)
    assert first[0] is not second[0]
    stats = core.stats()
    assert (stats["frames"], stats["graphs"], stats["recompiles"]) == (1, 1, 0)


def test_a_named_tuple_class_made_before_a_graph_break_goes_on_behind_it():
    def fn(x):
        made = collections.namedtuple("Made", "a b")
        pair = made(x, x + 1)
        print(end="")
        return type(pair) is made, tuple(made(pair.b * 2, pair.a))

    check(fn, X, graphs=None, breaks=1, calls=1)


def test_a_wrong_field_name_is_the_error_of_the_program():
    def fn(x):
        try:
            collections.namedtuple("Made", "a a")
        except ValueError as error:
            return x + 1, str(error)

    check(fn, X)


def test_callable_types_are_written_inside():
    def fn(x):
        def apply(function: collections.abc.Callable[[int], int]):
            return function(x)

        return apply(lambda y: y + 1), isinstance(apply, collections.abc.Callable)

    check(fn, X)


def test_questions_about_a_tensor_by_keyword():
    def fn(x):
        y = x + 1
        return y, torch.is_floating_point(input=y), torch.is_complex(input=y)

    check(fn, X)
