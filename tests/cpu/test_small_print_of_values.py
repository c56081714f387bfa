"""Texts, hashes, conversions and orders of values in their less usual forms, compared with eager by text."""

import collections
import copy
import functools
import itertools
import typing

import pytest
import torch

import core

X = torch.ones(2)
from_hex = float.fromhex


def agrees(function):
    """Whether the function gives in one graph, beside an operation of tensors, what it gives in Python."""

    def program(x):
        return repr(function()), x + 1

    return core.compile(program, backend="eager", fullgraph=True)(X)[0] == repr(function())


def error_of(call, *args):
    try:
        return call(*args)
    except (TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"


class Rows(collections.UserList):
    """As it is."""


Pair = collections.namedtuple("Pair", "a b")


def errors_of_a_parser():
    def read(text):
        try:
            compile(text, "<text>", "exec")
        except SyntaxError as error:
            return str(error), error.lineno, error.msg

    return read("1 +"), read("x = ("), read("x, y: int"), read("def f():\n x: int\n global x")


def orders_of_a_function():
    key = functools.cmp_to_key(lambda x, y: (x > y) - (x < y))
    backwards = sorted([3, 1, 2], key=functools.cmp_to_key(lambda x, y: y - x))
    return backwards, max([1, 4], key=key), key(1) < key(2), key(1) == key(1), key(2) >= key(3)


def what_can_not_be_walked():
    return error_of(iter, len), error_of(list, 5), error_of(lambda: [*print]), error_of(lambda: next(iter(X.dim)))


def texts_of_collections():
    counted = collections.Counter("aab"), collections.Counter()
    return repr(counted), str(Rows([1, 2])), repr(collections.UserDict(a=1)), repr(int | str), repr(list[int])


def texts_of_classes_over_containers():
    class Items(list):
        pass

    class Members(set):
        pass

    class Named(dict):
        pass

    class Ordered(collections.OrderedDict):
        pass

    class Filled(collections.defaultdict):
        pass

    class Told(list):
        def __str__(self):
            return "told"

    made = [Items([1, 2]), Members("a"), Members(), Named(a=1), Ordered(a=1), Ordered(), Filled(), Told([1])]
    made[0].append(made[0])
    return [repr(value) for value in made], [str(value) for value in made], f"{made[1]} {made[-1]} {made[-1]!r}"


def numbers_from_texts_and_bytes():
    return from_hex("0x1.8p1"), float.fromhex("0x2p0"), int.from_bytes(b"\x01\x02", "big"), error_of(from_hex, "zz")


def hashes_and_addresses():
    frozen = frozenset([1])
    same = hash(Pair(1, 2)) == hash((1, 2)), hash((int, 1)) == hash((int, 1)), {Pair(1, 2): 1}[1, 2]
    return same, id(frozen) == id(frozenset(frozen)), id(frozen) == id(frozenset([1]))


def type_variables():
    one, two = typing.TypeVar("one"), typing.TypeVar("two", bound=int)
    found = [isinstance(1, int | one), len((one | int).__args__), error_of(isinstance, 1, one | int), one == two]
    return found, list[one][int], (two | str)[int], one.__name__, two.__bound__, one.__module__


def conversions():
    class Written:
        def __init__(self, value):
            self.value = value

        def __bytes__(self):
            return self.value

        def method(self):
            pass

    refused = [error_of(complex, {}), error_of(int, []), error_of(float, (1,)), error_of(bytes, Written(1))]
    refused.append(error_of(lambda: setattr(Written(1).method, "x", 1)))

    class Floating:
        def __init__(self, value):
            self.value = value

        def __float__(self):
            return self.value

    class Counted(Floating):
        __int__ = __complex__ = Floating.__float__

    refused += [error_of(kind, made(None)) for kind in (float, complex) for made in (Floating, Counted)]
    refused += [error_of(int, Counted(1.5)), error_of(int, Counted([])), error_of(int, Floating(1.5))]
    refused += [error_of(type(None), 1), error_of(type(...), 1), error_of(itertools.count, "a")]
    return (
        [complex(Floating(42.0)), float(Floating(1.5)), complex(Counted(1j)), int(Counted(3))],
        bytes(Written(b"q")),
        refused,
        {}.fromkeys("ab", 1),
        typing.get_origin(conversions),
        typing.get_args(list[int]),
    )


@pytest.mark.parametrize(
    "function",
    [
        errors_of_a_parser,
        orders_of_a_function,
        what_can_not_be_walked,
        texts_of_collections,
        texts_of_classes_over_containers,
        numbers_from_texts_and_bytes,
        hashes_and_addresses,
        conversions,
        type_variables,
    ],
)
def test_as_in_python(function):
    assert agrees(function)


def test_keys_of_a_function_for_items_that_only_a_run_can_tell():
    def program(x):
        rows = sorted([(2, x), (1, x + 1)], key=functools.cmp_to_key(lambda a, b: a[0] - b[0]))
        return rows[0][1] * 2 + rows[1][1]

    assert torch.equal(core.compile(program, backend="eager", fullgraph=True)(X), program(X))


class Reduced:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __reduce__(self):
        return type(self), (self.a, self.b), {"c": [1, 2]}


class Rebuilt(list):
    def __reduce__(self):
        return type(self), (), {"n": 1}, iter(list(self))


class Named:
    def __reduce__(self):
        return "Named"


def test_copies_follow_a_reduction_of_the_class():
    def copied():
        made, rows, named = Reduced([1], 2), Rebuilt([1, [2]]), Named()
        flat, deep = copy.copy(made), copy.deepcopy(made)
        few, all_ = copy.copy(rows), copy.deepcopy(rows)
        same = flat.a is made.a, deep.a is made.a, copy.copy(named) is named, few[1] is rows[1], all_[1] is rows[1]
        return same, deep.a, flat.c, deep.c, type(flat) is Reduced, list(few), few.n, list(all_)

    assert agrees(copied)
