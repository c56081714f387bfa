"""What special methods return is what Python demands of it, or raises what Python raises."""

from __future__ import annotations

import operator
from typing import NamedTuple

import pytest
import torch
from observed import agrees

import core

NUMBERS = [1, 0, -1, True, 2.0, None, "a", NotImplemented, 2**70]


class Whole(int):
    pass


def returning(name, value):
    return type("Answering", (), {name: lambda self, *args: value})()


def program(function, name, value):
    item = returning(name, value)

    def fn(x):
        return function(item), x + 1

    return lambda: (fn, (torch.ones(2),))


@pytest.mark.parametrize("function", [bool, operator.not_, operator.truth], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", ["__bool__", "__len__"])
@pytest.mark.parametrize("value", NUMBERS, ids=repr)
def test_truth_of_an_object(function, name, value):
    agrees(program(function, name, value), graphs=None, breaks=None)


@pytest.mark.parametrize("name, function", [("__len__", len), ("__hash__", hash)])
@pytest.mark.parametrize("value", [*NUMBERS, Whole(4)], ids=repr)
def test_length_and_hash_of_an_object(name, function, value):
    agrees(program(function, name, value), graphs=None, breaks=None)


@pytest.mark.parametrize("value", [3, 2.0, None, "a"], ids=repr)
def test_number_that_an_object_is_as_an_index(value):
    agrees(program(operator.index, "__index__", value), graphs=None)


@pytest.mark.parametrize("value", ["text", 3, None], ids=repr)
def test_text_of_a_formatted_object(value):
    agrees(program(lambda item: f"{item:>8}", "__format__", value), graphs=None)


def test_truth_of_an_object_that_answers_with_a_tensor():
    agrees(program(bool, "__bool__", torch.tensor(True)), graphs=0)


def test_truth_of_a_class_whose_metaclass_answers():
    class Meta(type):
        def __bool__(cls):
            return 3

    class Made(metaclass=Meta):
        pass

    def fn(x):
        return x + 1 if Made else x - 1

    agrees(lambda: (fn, (torch.ones(2),)), graphs=0)


@core.disable
def outside():
    """A call that breaks the graph."""


class Vector(NamedTuple):
    """A named tuple that adds, compares, indexes and is counted in its own way."""

    x: torch.Tensor
    y: torch.Tensor
    label: int = 3

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __mul__(self, factor):
        return self._replace(x=self.x * factor, y=self.y * factor)

    def __eq__(self, other):
        return isinstance(other, Vector) and self.label == other.label

    def __hash__(self):
        return self.label

    def __getitem__(self, index):
        return Vector(self.x[index], self.y[index])

    def __len__(self):
        return 3 + len(self.x)

    def __bool__(self):
        return False


def test_named_tuples_with_operators_of_their_own():
    def fn(x, y):
        one, other = Vector(x, y), Vector(y, y, 4)
        total = one + other
        first, second, label = total
        return total, one == other, total == one, len(one), one[0], {one: 1}[total], first * second, 1 if one else 2

    agrees(lambda: (fn, (torch.ones(2), torch.arange(2.0))))


def test_a_named_tuple_with_operators_of_its_own_as_an_argument_and_across_a_break():
    def fn(vector):
        twice = vector + vector
        outside()
        return twice + vector, twice.label, Vector._fields, vector._asdict()

    agrees(lambda: (fn, (Vector(torch.ones(2), torch.zeros(2)),)), graphs=2, breaks=1)


def test_plain_named_tuples_stay_tuples_with_names():
    class Pair(NamedTuple):
        first: torch.Tensor
        second: torch.Tensor

    def fn(pair):
        return pair + pair, pair[0] * pair.second, len(pair), pair == pair, repr(Pair(1, 2))

    agrees(lambda: (fn, (Pair(torch.ones(2), torch.zeros(2)),)))
