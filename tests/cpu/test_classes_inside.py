"""Classes that the compiled function defines; each program gives one graph unless a test says otherwise."""

from __future__ import annotations

import abc
import enum

import pytest
import torch
from compare import check

import core

X = torch.arange(6.0).reshape(2, 3)


def test_methods_properties_and_inheritance_of_a_local_class():
    def fn(x):
        class Base:
            scale = 3
            seen = []

            def __init__(self, value):
                self.value = value

            def apply(self):
                self.seen.append(len(self.seen))
                return self.value * self.scale

            @property
            def doubled(self):
                return self.value * 2

            @classmethod
            def make(cls, value):
                return cls(value)

            @staticmethod
            def shift(value):
                return value + 1

        class Child(Base):
            scale = 4

            def __init__(self, value):
                super().__init__(value)
                self.other = value - 1

            def apply(self):
                return super().apply() + Base.shift(self.other)

        child = Child.make(x)
        results = child.apply(), child.doubled, Base(x).apply()
        facts = Child.__name__, Child.__mro__[1] is Base, isinstance(child, Base), issubclass(Base, Child), Base.seen
        return results, facts

    check(fn, X)


def test_a_local_class_reads_variables_around_it():
    def fn(x):
        factor = x.sum()

        class Scale:
            bias = factor + 1

            def __call__(self, value):
                return value * factor + self.bias

        first = Scale()(x)
        factor = factor * 2
        return first, Scale()(x)

    check(fn, X)


def test_a_metaclass_makes_and_calls_its_classes():
    def fn(x):
        class Meta(type):
            def __new__(meta, name, bases, namespace, **keywords):
                cls = super().__new__(meta, name, bases, namespace)
                cls.keywords = keywords
                return cls

            def __call__(cls, *args):
                made = super().__call__(*args)
                made.marked = True
                return made

            def __len__(cls):
                return 7

        class Made(metaclass=Meta, shift=3):
            def shifted(self, value):
                return value + __class__.keywords["shift"]

        return Made().shifted(x), Made().marked, len(Made), bool(Made), type(Made) is Meta

    check(fn, X)


def test_set_name_and_init_subclass_run_once_in_order():
    def fn(x):
        events = []

        class Named:
            def __set_name__(self, owner, name):
                events.append((owner.__name__, name))
                self.name = name

            def __get__(self, instance, owner):
                return (self.name, instance is None)

        class Base:
            def __init_subclass__(cls, size=0, **rest):
                events.append((cls.__name__, size))
                cls.size = size

        class Child(Base, size=5):
            first = Named()
            second = Named()

        return x + Child.size, events, Child.first, Child().second

    check(fn, X)


def test_abstract_classes_and_slots_refuse_as_python_does():
    def fn(x):
        class Shape(abc.ABC):
            @abc.abstractmethod
            def area(self): ...

        class Point:
            __slots__ = ("x",)

        texts = []
        try:
            Shape()
        except TypeError as error:
            texts.append(str(error))
        point = Point()
        point.x = x
        try:
            point.y = 1
        except AttributeError as error:
            texts.append(str(error))
        return point.x + 1, texts

    check(fn, X)


def test_a_local_enum():
    def fn(x):
        class Mode(enum.Enum):
            ADD = 1
            SUB = enum.auto()

            def text(self):
                return self.name.lower()

        y = x + 1 if Mode(1) is Mode.ADD else x
        return y, Mode.SUB.value, Mode.ADD.text(), len(Mode), [mode.name for mode in Mode]

    check(fn, X)


def test_type_with_three_arguments_makes_a_class():
    def fn(x):
        cls = type("Made", (dict,), {"bias": 2, "add": lambda self, value: value + self.bias + self["more"]})
        made = cls(more=3)
        return made.add(x), cls.__name__, len(made)

    check(fn, X)


def test_a_conflict_of_metaclasses_is_the_program_s_error():
    def fn(x):
        class MetaA(type): ...

        class MetaB(type): ...

        class A(metaclass=MetaA): ...

        class B(metaclass=MetaB): ...

        try:

            class C(A, B): ...

        except TypeError as error:
            return x + 1, str(error)
        return x

    check(fn, X)


def test_an_object_of_a_local_class_that_leaves_the_function_breaks_before_the_class():
    def fn(x):
        y = x + 1

        class Box:
            def __init__(self, value):
                self.value = value

        return Box(y * 2)

    core.reset()
    compiled = core.compile(fn, backend="eager")
    box = compiled(X)
    assert type(box).__name__ == "Box" and torch.equal(box.value, (X + 1) * 2)
    assert core.stats()["breaks"] == 1
    with pytest.raises(core.Unsupported, match="Box"):
        core.compile(fn, backend="eager", fullgraph=True)(X)


def test_a_base_with_its_own_init_subclass_outside_is_not_told_twice():
    told = []

    class Registry:
        def __init_subclass__(cls):
            told.append(cls.__name__)

    def fn(x):
        class Entry(Registry): ...

        return x + len(Entry.__name__)

    core.reset()
    core.compile(fn, backend="eager")(X)
    assert told == ["Entry"]


def test_objects_with_their_own_hash_are_keys():
    def fn(x):
        class Key:
            def __init__(self, name):
                self.name = name

            def __hash__(self):
                return hash(self.name) % 3

            def __eq__(self, other):
                return isinstance(other, Key) and self.name == other.name

        table = {Key("a"): x, Key("b"): x * 2}
        table[Key("a")] = x + 1
        names = {Key("b"), Key("c"), Key("b")}
        return table[Key("a")], table[Key("b")], len(table), Key("c") in names, Key("d") in table, len(names)

    check(fn, X)


def test_a_traceback_is_there_while_an_exception_is_handled():
    def fn(x):
        class Manager:
            def __enter__(self):
                return self

            def __exit__(self, cls, error, traceback):
                self.given = traceback is not None, error.__traceback__ is traceback
                return True

        manager = Manager()
        before = ValueError("made").__traceback__ is None
        with manager:
            raise ValueError("inside")
        return x + 1, manager.given, before

    check(fn, X)
