"""Classes and objects changed between calls: what attribute lookup and special methods find is followed."""

from __future__ import annotations

import abc
import types
import typing

import pytest
import torch
from mutations import check_mutation

X = torch.arange(6.0).reshape(2, 3) - 2


def args():
    return (X.clone(),)


def class_of_an_object_swapped(later):
    class A:
        k = 1

    class B(A):
        k = 2

    thing = A()
    return (lambda x: x * thing.k), args, lambda: setattr(thing, "__class__", B)


def property_replaced(later):
    class A:
        @property
        def k(self):
            return 1

    thing = A()
    return (lambda x: x * thing.k), args, lambda: setattr(A, "k", property(lambda self: 4)), lambda: setattr(A, "k", 5)


def getter_of_a_property_changed(later):
    class A:
        @property
        def k(self):
            return self._k

    thing = A()
    thing._k = 1
    return (
        (lambda x: x * thing.k),
        args,
        lambda: setattr(thing, "_k", 2),
        lambda: setattr(A.k.fget, "__code__", (lambda self: self._k + 10).__code__),
    )


def property_that_counts(later):
    class A:
        count = 0

        @property
        def k(self):
            self.count += 1
            return self.count

    thing = A()
    return (lambda x: x * thing.k), args, lambda: setattr(thing, "count", 10)


def property_set_through(later):
    class A:
        def __init__(self):
            self._k = 1

        @property
        def k(self):
            return self._k

        @k.setter
        def k(self, value):
            self._k = value

    thing = A()

    def program(x):
        thing.k = thing.k * 2
        return x * thing.k

    def setter(self, value):
        self._k = value + 1

    return program, args, lambda: setattr(A, "k", A.k.setter(setter))


def metaclass_attribute_changed(later):
    class Meta(type):
        k = 1

        @property
        def twice(cls):
            return cls.k * 2

    class A(metaclass=Meta):
        pass

    return (lambda x: x * A.k + A.twice), args, lambda: setattr(Meta, "k", 3), lambda: setattr(A, "k", 5)


def metaclass_getattr_changed(later):
    class Meta(type):
        def __getattr__(cls, name):
            return len(name)

    class A(metaclass=Meta):
        pass

    return (
        (lambda x: x * A.some),
        args,
        lambda: setattr(Meta, "__getattr__", lambda cls, name: 9),
        lambda: setattr(A, "some", 2),
    )


def metaclass_call_replaced(later):
    class Meta(type):
        pass

    class A(metaclass=Meta):
        k = 1

    def __call__(cls):
        made = type.__call__(cls)
        made.k = 7
        return made

    return (lambda x: x * A().k), args, lambda: setattr(Meta, "__call__", __call__)


def instancecheck_of_a_metaclass_changed(later):
    class Meta(type):
        pass

    class A(metaclass=Meta):
        pass

    return (
        (lambda x: x * (2 if isinstance(3, A) else 1)),
        args,
        lambda: setattr(Meta, "__instancecheck__", lambda cls, value: value == 3),
    )


def class_registered_with_an_abc(later):
    class A(abc.ABC):  # noqa: B024
        pass

    class B:
        pass

    thing = B()
    return (lambda x: x * (2 if isinstance(thing, A) else 1) + issubclass(B, A)), args, lambda: A.register(B)


def subclasshook_added(later):
    class A(abc.ABC):  # noqa: B024
        pass

    class B:
        pass

    thing = B()

    def change():
        A.__subclasshook__ = classmethod(lambda cls, other: True)
        abc._abc_init(A) if hasattr(abc, "_abc_init") else None

    return (lambda x: x * (2 if isinstance(thing, A) else 1)), args, change


def runtime_protocol_satisfied_later(later):
    @typing.runtime_checkable
    class HasSize(typing.Protocol):
        def size_of(self): ...

    class B:
        pass

    thing = B()
    return (
        (lambda x: x * (2 if isinstance(thing, HasSize) else 1)),
        args,
        lambda: setattr(B, "size_of", lambda self: 1),
    )


def bases_of_a_class_changed(later):
    class A:
        def k(self):
            return 1

    class B(A):
        def k(self):
            return 5

    class C(A):
        pass

    thing = C()
    return (lambda x: x * thing.k() + issubclass(C, B)), args, lambda: setattr(C, "__bases__", (B,))


def method_found_through_super_replaced(later):
    class A:
        def k(self):
            return 1

    class Between(A):
        pass

    class B(Between):
        def k(self):
            return super().k() + 1

    thing = B()
    return (
        (lambda x: x * thing.k()),
        args,
        lambda: setattr(A, "k", lambda self: 8),
        lambda: setattr(Between, "k", lambda self: 3),
    )


def staticmethod_and_classmethod_replaced(later):
    class A:
        scale = 2

        @staticmethod
        def s(x):
            return x + 1

        @classmethod
        def c(cls, x):
            return x * cls.scale

    return (
        (lambda x: A.c(A.s(x))),
        args,
        lambda: setattr(A, "s", staticmethod(lambda x: x - 9)),
        lambda: setattr(A, "c", classmethod(lambda cls, x: x / cls.scale)),
        lambda: setattr(A, "scale", 7),
    )


def descriptor_changed(later):
    class Describes:
        def __init__(self):
            self.value = 1

        def __get__(self, instance, owner):
            return self.value

    class A:
        k = Describes()

    thing = A()
    return (
        (lambda x: x * thing.k),
        args,
        lambda: setattr(A.__dict__["k"], "value", 4),
        lambda: thing.__dict__.__setitem__("k", 5),
        lambda: setattr(Describes, "__get__", lambda self, instance, owner: 6),
        lambda: delattr(Describes, "__get__"),
    )


def descriptor_becomes_one_that_sets(later):
    class Describes:
        def __get__(self, instance, owner):
            return 1

    class A:
        k = Describes()

    thing = A()
    thing.__dict__["k"] = 5
    return (lambda x: x * thing.k), args, lambda: setattr(Describes, "__set__", lambda self, instance, value: None)


def getattr_of_a_class_added_and_changed(later):
    class A:
        pass

    thing = A()
    return (
        (lambda x: x * getattr(thing, "k", 3)),
        args,
        lambda: setattr(A, "__getattr__", lambda self, name: 4),
        lambda: setattr(A, "__getattr__", lambda self, name: 5),
        lambda: setattr(A, "k", 6),
        lambda: setattr(thing, "k", 7),
    )


def getattr_that_returns_another_value_each_time(later):
    class A:
        def __init__(self):
            self.count = 0

        def __getattr__(self, name):
            self.count += 1
            return self.count

    thing = A()
    return (lambda x: x * thing.k), args, lambda: setattr(thing, "count", 20)


def getattribute_added(later):
    class A:
        k = 1

    thing = A()
    return (lambda x: x * thing.k), args, lambda: setattr(A, "__getattribute__", lambda self, name: 5)


def setattr_added(later):
    class A:
        k = 1

    thing = A()

    def program(x):
        thing.k = 2
        return x * thing.k

    return (
        program,
        args,
        lambda: setattr(A, "__setattr__", lambda self, name, value: object.__setattr__(self, name, value * 5)),
    )


def doc_and_names_changed(later):
    class A:
        """Four"""

    def helper():
        """Six"""

    def program(x):
        return (
            x * len(A.__name__) + len(A.__doc__) + len(helper.__name__) + len(helper.__doc__) + len(helper.__module__)
        )

    return (
        program,
        args,
        lambda: setattr(A, "__name__", "Longer"),
        lambda: setattr(A, "__doc__", "more words"),
        lambda: setattr(helper, "__name__", "h"),
        lambda: setattr(helper, "__doc__", "more words"),
        lambda: setattr(helper, "__module__", "m"),
    )


def annotations_read(later):
    class A:
        k: int = 1

    def program(x):
        return x * len(A.__annotations__) + sum(getattr(A, name) for name in A.__annotations__)

    def change():
        A.more = 2
        A.__annotations__["more"] = int

    return program, args, change


def init_replaced(later):
    class A:
        def __init__(self, k):
            self.k = k

    def __init__(self, k):
        self.k = k * 3

    return (
        (lambda x: x * A(2).k),
        args,
        lambda: setattr(A, "__init__", __init__),
        lambda: setattr(A, "__new__", lambda cls, k: types.SimpleNamespace(k=5)),
    )


MUTATIONS = [
    value
    for value in list(globals().values())
    if isinstance(value, types.FunctionType) and value.__code__.co_varnames[:1] == ("later",)
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_what_a_program_reads_of_classes_is_followed(mutation):
    check_mutation(mutation)
