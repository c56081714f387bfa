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


def test_an_enum_with_its_own_new_and_next_value():
    def fn(x):
        class Level(float, enum.Enum):
            def _generate_next_value_(name, start, count, last_values):
                return count * 2.0

            def __init__(self, value):
                self.doubled = value * 2

            LOW = enum.auto()
            HIGH = enum.auto()

        class Named(enum.Enum):
            def __new__(cls, value, text):
                made = object.__new__(cls)
                made._value_ = value
                made.text = text
                return made

            ONE = 1, "one"

        made = enum.Enum("Made", "A B")
        return x * Level.HIGH.doubled, Level.HIGH.value, Named(1).text, [member.name for member in made]

    check(fn, X)


def test_a_class_with_its_own_new_calls_that_of_object():
    def fn(x):
        class Single:
            made = []

            def __new__(cls, value):
                one = super().__new__(cls)
                cls.made.append(value)
                return one

            def __init__(self, value):
                self.value = value

        class Count(int):
            def next(self):
                return Count(self + 1)

        count = Count(3)
        return Single(x).value + count.next(), len(Single.made), isinstance(count, int), f"{count:03d}", {count: 1}[3]

    check(fn, X)


def test_iter_and_comparison_protocols_of_local_classes_raise_as_python_does():
    def fn(x):
        class NoNext:
            def __iter__(self):
                return self

        class Indexed:
            def __float__(self):
                return 1.5

            def __index__(self):
                return 5

        texts = []
        for attempt in (
            lambda: iter(NoNext()),
            lambda: range(3).index("a"),
            lambda: {}.popitem(),
            lambda: super(int, 1),
        ):
            try:
                attempt()
            except (TypeError, ValueError, KeyError) as error:
                texts.append((type(error).__name__, str(error)))
        return x + int(hex(Indexed()), 16), texts

    check(fn, X)


def test_super_in_class_methods_and_metaclasses():
    def fn(x):
        class Base:
            def plain(self):
                return "plain"

            @classmethod
            def name(cls):
                return cls.__name__

        class Child(Base):
            @classmethod
            def name(cls):
                return super().name() + "!", super().plain(cls())

        return x + 1, Child.name()

    check(fn, X)


def test_fields_and_text_of_exceptions():
    def fn(x):
        class Loud(ValueError):
            def __str__(self):
                return "loud " + self.args[0]

        missing = OSError(2, "gone", "file")
        syntax = SyntaxError("bad", ("f.py", 3, 4, "text"))
        facts = (
            type(missing).__name__,
            missing.errno,
            missing.filename,
            missing.args,
            str(missing),
            syntax.lineno,
            str(syntax),
            str(Loud("y")),
            SystemExit(3).code,
            str(KeyError("k")),
            ImportError("no", name="m").name,
        )
        return x + 1, facts

    check(fn, X)


def test_a_generator_keeps_the_exception_it_handles_across_a_yield():
    def fn(x):
        def steps():
            try:
                raise ValueError("first")
            except ValueError:
                yield 1
                try:
                    yield 2
                except KeyError as error:
                    yield type(error.__context__).__name__
                raise

        work = steps()
        seen = [next(work), next(work), work.throw(KeyError("second"))]
        try:
            next(work)
        except ValueError as error:
            seen.append(str(error))
        return x + 1, seen

    check(fn, X)


def test_contexts_of_exceptions_form_no_cycle():
    def fn(x):
        first, second = ValueError("a"), KeyError("b")
        try:
            try:
                raise first
            except ValueError:
                raise second from None
        except KeyError:
            try:
                raise first
            except ValueError as error:
                seen = error.__context__ is second, second.__context__ is None
        try:
            raise first from 1
        except TypeError as error:
            text = str(error)
        return x + 1, seen, text

    check(fn, X)


def test_patterns_identities_names_and_pickles_of_known_values():
    import pickle
    import re

    pattern = re.compile(r"(\w)(\d)")

    def fn(x):
        one, other = [], []
        found = pattern.search("a1 b2")
        text = pattern.sub(lambda match: match.group(2) + match.group(1), "a1 b2")
        keys = {id(one), id(other), id(one)}
        data = pickle.loads(pickle.dumps({"a": [1, (2, 3)]}))
        return x + len(keys), id(one) == id(one), found.groups(), text, dir(3) == dir(4), data

    check(fn, X)


def test_a_counter_takes_counts_as_they_are_while_it_is_empty():
    import collections

    def fn(x):
        counts = collections.Counter(a=None)
        try:
            collections.Counter(b=1).update(b="x")
        except TypeError as error:
            return x + 1, dict(counts), str(error)
        return x

    check(fn, X)


def test_globals_and_frames_by_name():
    import sys

    def fn(x):
        def caller():
            return sys._getframe(1).f_code.co_name, sys._getframe().f_globals["__name__"]

        return x + 1, caller(), globals()["X"] is X, globals().get("__name__")

    check(fn, X)


def test_metaclasses_and_hooks_answer_isinstance_and_issubclass():
    def fn(x):
        class Meta(type):
            def __instancecheck__(cls, instance):
                return instance == cls.wanted

            def __subclasscheck__(cls, other):
                return other is int

        class Three(metaclass=Meta):
            wanted = 3

        class Sized(abc.ABC):  # noqa: B024
            @classmethod
            def __subclasshook__(cls, other):
                return hasattr(other, "__len__")

        checks = isinstance(3, Three), isinstance(4, Three), issubclass(int, Three), issubclass(str, Three)
        return x + 1, checks, isinstance([], Sized), issubclass(int, Sized)

    check(fn, X)
