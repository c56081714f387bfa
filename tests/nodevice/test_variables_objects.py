"""Enums, namedtuples and objects with special methods do the same traced as run."""

from __future__ import annotations

import enum
import importlib.util
import sys
from pathlib import Path
from typing import NamedTuple

import pytest


def _sibling(name):
    """A module beside this file: the import mode of the tests puts no folder on sys.path."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


agree = _sibling("tracker_programs").agree


class Color(enum.Enum):
    RED = 1
    GREEN = "g"


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Bits(enum.Flag):
    A = 1
    B = 2


class Point(NamedTuple):
    x: int
    y: int = 5

    def total(self):
        return self.x + self.y


class Vector:
    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        return Vector(self.x + other) if isinstance(other, int) else NotImplemented

    def __radd__(self, other):
        return ("radd", other)

    def __eq__(self, other):
        return self.x == other if isinstance(other, int) else NotImplemented

    def __lt__(self, other):
        return ("lt", self.x)

    def __neg__(self):
        return -self.x

    def __len__(self):
        return 3

    def __getitem__(self, key):
        return ("item", key)

    def __contains__(self, item):
        return item == 1

    def __index__(self):
        return self.x

    def __iter__(self):
        return iter([self.x, self.x])

    def __bool__(self):
        return self.x > 0

    def __str__(self):
        return "V" + str(self.x)

    def __float__(self):
        return 0.5

    def __round__(self, n=None):
        return ("round", n)


class Wider(Vector):
    def __radd__(self, other):
        return ("wider", 0)


class Plain:
    pass


NAMES = {
    "Color": Color,
    "Number": Number,
    "Bits": Bits,
    "Point": Point,
    "Vector": Vector,
    "Wider": Wider,
    "Plain": Plain,
    "red": Color.RED,
    "one": Number.ONE,
    "two": Number.TWO,
    "bit_a": Bits.A,
    "bit_b": Bits.B,
    "point": Point(1, 2),
}

OBJECTS = {
    "operators": """
v = Vector(2)
a = (v + 1).x
b = 1 + v
c = [1] + v
d = v == 2
e = 2 == v
f = v != 2
g = v == 'a'
h = v < 5
i = 5 > v
j = -v
""",
    "no operator at all": """
p = Plain()
q = p + 1
""",
    "no ordering": """
p = Plain()
q = p < p
""",
    "equality is identity by default": """
p = Plain()
q = Plain()
a = p == p
b = p == q
c = p in [q, p]
d = [q, p].index(p)
e = p != q
f = {p: 1}[p]
g = q in {p: 1}
h = {p, q, p}.__len__()
""",
    "protocols": """
v = Vector(2)
a = len(v)
b = v[5]
c = 1 in v
d = 2 in v
e = [5, 6, 7][v]
f = [1] * v
g = list(v)
h = bool(v)
i = bool(Vector(0))
j = str(v)
k = f'{v}'
l = '%s' % 5
m = float(v)
n = round(v)
o = round(v, 2)
p = range(v)
q = int(v)
r = sum(v)
s = 'abc'[v]
t = math.sqrt(Vector(4))
""",
    "a subclass with its own reflected method comes first": """
a = Vector(1) + Wider(2)
b = 5 + Wider(3)
""",
    "a class without equality among list items": """
v = Vector(3)
a = 3 in [v]
b = [v] == [3]
c = [1, v, 3].index(3)
""",
    "an unhashable object": """
a = {Vector(1): 2}
""",
    "enum": """
a = red is red
b = red == 1
c = red.value
d = red.name
e = {red: 5}[red]
f = red in [red]
g = str(red)
h = repr(red)
i = hash(one) == 1
j = one + 1
k = one < two
l = one == 1
m = bool(red)
""",
    "flags": """
a = bit_a | bit_b
b = (a & bit_b) == bit_b
c = bit_a in a
d = ~bit_a
e = bool(a & bit_a)
f = bit_a.value
""",
    "enum without an operator": """
red + 1
""",
    "namedtuple": """
p = point
a = p.x
b = p[1]
c = p._fields
d = p._replace(x=9)
e = p._asdict()
f = p == (1, 2)
g = len(p)
h = list(p)
i = p[:1]
j = p + (3,)
k = repr(p)
l = {p: 1}[(1, 2)]
x, y = p
m = p.total()
n = isinstance(p, tuple)
o = p.count(1)
q = sorted([p, (0, 0)])
""",
    "namedtuple without a field": """
point.z
""",
    "namedtuple replaced wrongly": """
point._replace(z=1)
""",
    "namedtuple assigned": """
point.x = 5
""",
}


@pytest.mark.parametrize("source", OBJECTS.values(), ids=OBJECTS.keys())
def test_objects_enums_and_namedtuples_do_what_python_does(source):
    agree(source, names=NAMES, messages="assigned" not in source and ".x = 5" not in source)
