"""Methods of `type` that programs call by name: making objects, asking for subclasses."""

from __future__ import annotations

import torch
from observed import agrees

import core


def test_type_makes_an_object_of_a_class_given_to_it():
    class Counted(type):
        made = 0

        def __call__(cls, *args):
            return type.__call__(cls, *args), len(args)

    class Box(metaclass=Counted):
        def __init__(self, value):
            self.value = value

    def fn(x):
        box, count = Box(x)
        return box.value * 2, count, type.__call__(int, "3")

    agrees(lambda: (fn, (torch.ones(2),)))


def test_subclasses_of_a_class_are_read_and_guarded():
    class Base:
        factor = 1

    class Double(Base):
        factor = 2

    def fn(x):
        for cls in Base.__subclasses__():
            x = x * cls.factor
        return x

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert torch.equal(compiled(x), x * 2)
    assert torch.equal(compiled(x), x * 2)
    assert core.stats()["graphs"] == 1

    class Triple(Base):
        factor = 3

    assert torch.equal(compiled(x), x * 6)
    assert core.stats()["graphs"] == 2
    assert Double.__subclasses__() == Triple.__subclasses__() == []


def test_subclasses_beside_classes_of_the_traced_code_break_the_graph():
    class Base:
        pass

    def fn(x):
        class Inner(Base):
            pass

        return x + len([cls for cls in Base.__subclasses__() if cls is Inner])

    agrees(lambda: (fn, (torch.ones(2),)), graphs=None, breaks=None, calls=1)


def test_properties_without_a_setter_name_their_class_as_python_does():
    class Fixed:
        @property
        def size(self):
            return 3

    def fn(x):
        try:
            Fixed().size = 4
        except AttributeError as error:
            return str(error), x + 1

    agrees(lambda: (fn, (torch.ones(2),)))


def test_classes_compare_as_their_metaclass_says():
    def fn(x):
        class Meta(type):
            def __eq__(cls, other):
                return other == 3

            __hash__ = type.__hash__

        class Unequal(type):
            def __ne__(cls, other):
                return "unequal"

        class Number(metaclass=Meta):
            pass

        class Odd(metaclass=Unequal):
            pass

        known = Number in [3], Number in [4], Odd in [Odd]
        return Number == 3, Number != 3, Number == 4, 3 == Number, Odd != 3, Odd == 3, Odd == Odd, *known, x + 1

    agrees(lambda: (fn, (torch.ones(2),)))
