"""Objects changed between calls: what they hold, what their special methods answer, members, fields, references."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
import weakref

import pytest
import torch
from mutations import check_mutation, wishes

X = torch.arange(6.0).reshape(2, 3) - 2


def args():
    return (X.clone(),)


def equality_of_a_user_class_changed(later):
    class A:
        def __init__(self, key):
            self.key = key

        def __eq__(self, other):
            return self.key == other.key

        __hash__ = None

    one, two = A(1), A(2)
    return (
        (lambda x: x * (2 if one == two else 3) + (two in [one])),
        args,
        lambda: setattr(two, "key", 1),
        lambda: setattr(A, "__eq__", lambda self, other: False),
    )


@wishes(captured=False)
def hash_of_a_key_changed(later):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return self.n

        def __eq__(self, other):
            return type(other) is Key and self.n == other.n

    table = {Key(1): 2.0}
    ask = Key(1)
    return (lambda x: x * table.get(ask, 7.0)), args, lambda: setattr(ask, "n", 3), lambda: table.update({Key(3): 4.0})


def truth_of_a_user_class_changed(later):
    class A:
        def __init__(self):
            self.items = []

        def __len__(self):
            return len(self.items)

    thing = A()
    return (
        (lambda x: x * (2 if thing else 3)),
        args,
        lambda: thing.items.append(1),
        lambda: setattr(A, "__bool__", lambda self: False),
        lambda: delattr(A, "__bool__"),
        lambda: delattr(A, "__len__"),
    )


def length_and_items_of_a_user_class_changed(later):
    class A:
        def __init__(self):
            self.items = [1.0, 2.0]

        def __len__(self):
            return len(self.items)

        def __getitem__(self, index):
            return self.items[index]

        def __contains__(self, value):
            return value in self.items

    thing = A()

    def program(x):
        return x * sum(thing) + len(thing) + thing[0] + (5.0 in thing)

    return (
        program,
        args,
        lambda: thing.items.append(5.0),
        lambda: thing.items.__setitem__(0, 9.0),
        lambda: setattr(A, "__iter__", lambda self: iter([1.0])),
        lambda: setattr(A, "__contains__", lambda self, value: False),
    )


def arithmetic_of_a_user_class_replaced(later):
    class A:
        def __add__(self, other):
            return other + 1

        def __radd__(self, other):
            return other + 2

        def __mul__(self, other):
            return NotImplemented

        def __rmul__(self, other):
            return other * 3

    thing = A()

    def program(x):
        return (thing + x) + (5 * thing)

    return (
        program,
        args,
        lambda: setattr(A, "__add__", lambda self, other: other - 4),
        lambda: setattr(A, "__rmul__", lambda self, other: other * 7),
    )


def call_of_an_object_replaced(later):
    class A:
        def __call__(self, x):
            return x + 1

    thing = A()
    thing.__dict__["__call__"] = lambda x: x * 100  # not looked at
    return (lambda x: thing(x)), args, lambda: setattr(A, "__call__", lambda self, x: x * 2)


def enter_and_exit_replaced(later):
    class A:
        def __enter__(self):
            return 1

        def __exit__(self, *error):
            return False

    thing = A()

    def program(x):
        with thing as k:
            x = x * k
        return x

    return program, args, lambda: setattr(A, "__enter__", lambda self: 4)


def iteration_of_a_user_class_replaced(later):
    class A:
        def __iter__(self):
            yield 1.0
            yield 2.0

    thing = A()

    def program(x):
        for k in thing:
            x = x + k
        return x

    return program, args, lambda: setattr(A, "__iter__", lambda self: iter([5.0]))


def slots_changed(later):
    class A:
        __slots__ = ("k", "more")

    thing = A()
    thing.k = 1
    return (
        (lambda x: x * thing.k + getattr(thing, "more", 2)),
        args,
        lambda: setattr(thing, "k", 4),
        lambda: setattr(thing, "more", 9),
        lambda: delattr(thing, "more"),
    )


def instance_dict_replaced(later):
    class A:
        pass

    thing = A()
    thing.k = 1
    return (
        (lambda x: x * thing.k),
        args,
        lambda: setattr(thing, "__dict__", {"k": 3}),
        lambda: vars(thing).update(k=4),
    )


def attribute_deleted(later):
    class A:
        k = 1

    thing = A()
    thing.k = 2
    return (lambda x: x * thing.k), args, lambda: delattr(thing, "k"), lambda: delattr(A, "k")


def value_of_an_enum_member_changed(later):
    class Kind(enum.Enum):
        A = 1
        B = 2

    return (
        (lambda x: x * Kind.A.value + (Kind(2) is Kind.B) + len(Kind)),
        args,
        lambda: setattr(Kind.A, "_value_", 8),
    )


def enum_given_as_an_argument_is_another_member(later):
    class Kind(enum.IntEnum):
        A = 1
        B = 2

    kinds = [Kind.A, Kind.B]
    return (
        (lambda x, kind: x * kind + (5 if kind is Kind.A else 6) + len(kind.name)),
        lambda: (X.clone(), kinds[0]),
        kinds.reverse,
        lambda: kinds.__setitem__(0, 1),
    )


def flags_combined(later):
    class Flags(enum.Flag):
        A = 1
        B = 2

    held = [Flags.A]
    return (
        (lambda x: x * (2 if Flags.B in held[0] else 3) + held[0].value),
        args,
        lambda: held.__setitem__(0, Flags.A | Flags.B),
    )


def attribute_of_an_enum_member_added(later):
    class Kind(enum.Enum):
        A = 1

    return (lambda x: x * getattr(Kind.A, "extra", 3)), args, lambda: setattr(Kind.A, "extra", 5)


def field_of_a_dataclass_changed(later):
    @dataclasses.dataclass
    class Config:
        k: float = 1.0
        sizes: list = dataclasses.field(default_factory=lambda: [1, 2])

    config = Config()
    return (
        (lambda x: x * config.k + sum(config.sizes) + (config == Config())),
        args,
        lambda: setattr(config, "k", 4.0),
        lambda: config.sizes.append(4),
        lambda: setattr(Config, "k", 3.0),
        lambda: setattr(Config, "__eq__", lambda self, other: False),
    )


@wishes(captured=False)
def frozen_dataclass_given_as_an_argument(later):
    @dataclasses.dataclass(frozen=True)
    class Config:
        k: float

    held = [Config(1.0)]
    return (
        (lambda x, config: x * config.k + hash(config) % 1),
        lambda: (X.clone(), held[0]),
        lambda: held.__setitem__(0, Config(2.0)),
        lambda: object.__setattr__(held[0], "k", 5.0),
    )


def fields_of_a_named_tuple_changed(later):
    class Pair(typing.NamedTuple):
        a: float
        b: float = 2.0

    held = [Pair(1.0)]
    return (
        (lambda x: x * held[0].a + held[0].b + Pair(3.0).b),
        args,
        lambda: held.__setitem__(0, Pair(1.0, 5.0)),
        lambda: setattr(Pair.__new__, "__defaults__", (9.0,)),
        lambda: setattr(Pair, "a", property(lambda self: 50.0)),
    )


@wishes(captured=False)
def weak_reference_that_dies(later):
    class A:
        k = 2.0

    held = [A()]
    reference = weakref.ref(held[0])

    def program(x):
        thing = reference()
        return x if thing is None else x * thing.k

    return program, args, held.clear


@wishes(captured=False)
def weak_dictionary_that_loses_a_key(later):
    class A:
        k = 2.0

    held = [A(), A()]
    table = weakref.WeakValueDictionary(enumerate(held))
    return (lambda x: x * len(table) + (1 in table)), args, held.pop


@wishes(captured=False)
def weak_proxy_changed(later):
    class A:
        k = 2.0

    thing = A()
    proxy = weakref.proxy(thing)
    program = lambda x: (x * proxy.k, thing)[0]  # noqa: E731
    return program, args, lambda: setattr(thing, "k", 4.0)


@wishes(captured=False)
def vars_and_dir_read(later):
    class A:
        pass

    thing = A()
    thing.k = 1

    def program(x):
        return x * len(vars(thing)) + ("m" in dir(thing)) + len(thing.__dict__)

    return program, args, lambda: setattr(thing, "j", 2), lambda: setattr(A, "m", 2)


def type_compared(later):
    held = [1]

    def program(x, value):
        if type(value) is int:
            return x + 1
        return x * 2 if isinstance(value, bool) else x * 3

    return (
        program,
        lambda: (X.clone(), held[0]),
        lambda: held.__setitem__(0, True),
        lambda: held.__setitem__(0, 1.0),
        lambda: held.__setitem__(0, type("I", (int,), {})(1)),
    )


def simple_namespace_changed(later):
    space = types.SimpleNamespace(k=1.0, inner=types.SimpleNamespace(m=2.0))
    return (
        (lambda x: x * space.k + space.inner.m),
        args,
        lambda: setattr(space, "k", 3.0),
        lambda: setattr(space.inner, "m", 5.0),
        lambda: setattr(space, "inner", types.SimpleNamespace(m=6.0)),
    )


MUTATIONS = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("later",)
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_what_a_program_reads_of_objects_is_followed(mutation):
    check_mutation(mutation)
