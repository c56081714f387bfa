"""The classes, functions and globals that a random program defines besides its main function."""

from __future__ import annotations

from dataclasses import dataclass, field

from kinds import BOOL, FLOAT, INT, N4, STR, V4, Kind, dict_of, function, list_of

HEADER = """import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import math

import torch
import torch.nn.functional as F
"""
# What every program has: exceptions, context managers, decorators.
ALWAYS = """
class Problem(Exception):
    pass


class Detail(Problem):
    def __init__(self, text, code=0):
        super().__init__(text)
        self.code = code


class Watch:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        LOG.append("enter " + self.name)
        return self

    def __exit__(self, kind, error, trace):
        LOG.append(kind.__name__ if kind is not None else "leave")


class Quiet:
    def __init__(self, *kinds):
        self.kinds = kinds

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, self.kinds)


@contextlib.contextmanager
def noted(name):
    names = [name]
    LOG.append(name)
    try:
        yield names
    finally:
        LOG.append(len(names))


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs)

    return wrapper


def doubled(fn):
    calls = 0

    def wrapper(*args, **kwargs):
        nonlocal calls
        calls += 1
        fn(*args, **kwargs)
        return fn(*args, **kwargs)

    return wrapper
"""


@dataclass
class ClassFacts:
    """text: the definition; attributes: what can be read; fixed: those that can't be set; methods: form -> signature.

    parameters: of the constructor; statements: forms of changes, `$` for the object and @kind@ for an expression.
    """

    text: str
    parameters: tuple[Kind, ...]
    attributes: dict[str, Kind]
    fixed: frozenset[str] = frozenset()
    methods: dict[str, Kind] = field(default_factory=dict)
    statements: tuple[str, ...] = ()


def library() -> dict[str, ClassFacts]:
    """The classes that programs draw from."""
    return {
        "Box": ClassFacts(
            """
class Box:
    scale = 2
    made = 0

    def __init__(self, value, count=1):
        self.value = value
        self.count = count
        self.items = []
        Box.made += 1

    @property
    def scaled(self):
        return self.value * self.scale

    @scaled.setter
    def scaled(self, new):
        self.value = new / 2
        self.items.append(self.count)

    def step(self, k):
        self.count += k
        self.items.append(self.count)
        return self.count

    def mixed(self, other):
        self.value = self.value + other
        return self.value * self.count

    @staticmethod
    def twice(k):
        return k * 2

    @classmethod
    def bigger(cls, k):
        return cls.scale + k

    def __add__(self, other):
        return self.value + other

    def __radd__(self, other):
        return other - self.value

    def __len__(self):
        return len(self.items)

    def __getitem__(self, at):
        return self.items[at]

    def __setitem__(self, at, new):
        self.items[at] = new

    def __contains__(self, item):
        return item in self.items

    def __call__(self, other):
        self.count -= 1
        return self.value * other

    def __iter__(self):
        yield from self.items

    def __eq__(self, other):
        return isinstance(other, Box) and self.count == other.count

    def __hash__(self):
        return 7

    def __bool__(self):
        return self.count > 0
""",
            (N4, INT),
            {"value": N4, "count": INT, "items": list_of(INT), "scaled": N4, "scale": INT, "made": INT},
            frozenset({"made", "scale"}),
            {
                "{}.step": function(INT, INT),
                "{}.mixed": function(N4, N4),
                "Box.twice": function(INT, INT),
                "{}.bigger": function(INT, INT),
                "({} + {{}})": function(N4, N4),
                "({{}} + {})": function(N4, N4),
                "{}": function(N4, N4),
                "len({})": function(INT),
                "list({})": function(list_of(INT)),
                "({{}} in {})": function(BOOL, INT),
                "({} == {})": function(BOOL),
                "bool({})": function(BOOL),
            },
            (
                "$.fresh = @int@",
                "if hasattr($, 'fresh'):\n    LOG.append($.fresh)\n    del $.fresh",
                "Box.scale = @int@",
                "type($).made += 1",
                "$.__dict__['count'] = @int@",
                "$[0] = @int@",
                "$.scale = @int@",
                "vars($).update(count=@int@)",
                "for q in $:\n    LOG.append(q)",
            ),
        ),
        "Pair": ClassFacts(
            """
@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: int = 3
    names: list = dataclasses.field(default_factory=list)

    def total(self):
        return self.left * self.right

    def __post_init__(self):
        self.names.append("made")
""",
            (V4, INT),
            {"left": V4, "right": INT, "names": list_of(STR)},
            methods={
                "{}.total()": function(V4),
                "dataclasses.replace({}, right={{}}).total()": function(V4, INT),
                "(({}.right, {}.left)[0] + {{}})": function(INT, INT),
            },
            statements=("$.right += @int@", "$.names.append(@str@)", "$.left = $.left + @v4@"),
        ),
        "Point": ClassFacts(
            """
Point = collections.namedtuple("Point", ["x", "y"], defaults=[2])
""",
            (N4, INT),
            {"x": N4, "y": INT},
            frozenset({"x", "y"}),
            {"{}._replace(y={{}}).y": function(INT, INT), "len({})": function(INT), "{}[1]": function(INT)},
            ("a, b = $\nLOG.append(b)",),
        ),
        "Slotted": ClassFacts(
            """
class Base:
    __slots__ = ("name",)
    kind = "base"

    def __init__(self, name):
        self.name = name

    def describe(self):
        return self.kind + self.name

    def grown(self, x):
        return x + 1


class Slotted(Base):
    __slots__ = ("weight",)
    kind = "slotted"

    def __init__(self, name, weight):
        super().__init__(name)
        self.weight = weight

    def describe(self):
        return "<" + super().describe() + ">"

    def grown(self, x):
        self.weight += 1
        return super().grown(x) * self.weight
""",
            (STR, INT),
            {"name": STR, "weight": INT},
            methods={"{}.describe()": function(STR), "{}.grown": function(N4, N4)},
            statements=("Slotted.kind = @str@", "$.missing"),
        ),
        "Open": ClassFacts(
            """
class Limited:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner):
        return getattr(instance, self.name, 1) if instance is not None else self

    def __set__(self, instance, value):
        setattr(instance, self.name, min(value, 9))


class Open:
    level = Limited()

    def __init__(self, table):
        self.table = table
        self.level = 4

    def __getattr__(self, name):
        if name.startswith("get_"):
            return self.table.get(name[4:], 0)
        raise AttributeError(name)

    def __setattr__(self, name, value):
        if name == "seen":
            LOG.append(value)
        object.__setattr__(self, name, value)

    @functools.cached_property
    def known(self):
        LOG.append("known")
        return len(self.table)
""",
            (dict_of(INT),),
            {"table": dict_of(INT), "level": INT, "get_a": INT, "known": INT},
            frozenset({"get_a", "known"}),
            {"getattr({}, 'get_' + {{}})": function(INT, STR), "getattr({}, 'absent', {{}})": function(INT, INT)},
            ("$.seen = @int@", "$.level += @int@", "$.absent", "$.__dict__.pop('known', None)"),
        ),
        "Row": ClassFacts(
            """
class Row(list):
    label = "row"

    def first(self):
        return self[0] if self else 0

    def append(self, item):
        super().append(item)
        self.count = len(self)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Table(dict):
    def __missing__(self, key):
        return 5
""",
            (list_of(INT),),
            {"label": STR},
            methods={
                "{}.first()": function(INT),
                "len({})": function(INT),
                "sum({})": function(INT),
                "Color({{}} % 2 + 1).name": function(STR, INT),
                "Color.RED.value + len({})": function(INT),
                "Table(a={{}})['b']": function(INT, INT),
            },
            statements=(
                "$.append(@int@)",
                "$.extend([@int@])",
                "$[:1] = [@int@, @int@]",
                "$.label = @str@",
                "$.sort()",
            ),
        ),
        "Net": ClassFacts(
            """
class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(3)
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.ReLU()])
        self.weight = torch.nn.Parameter(torch.linspace(0, 1, 4))
        self.register_buffer("seen", torch.zeros(4))
        self.calls = width % 3
        self.drop = torch.nn.Dropout(0.0)

    def forward(self, x, times=1):
        self.calls += 1
        for _ in range(times):
            x = self.linear(x).tanh()
        for layer in self.layers:
            x = layer(x)
        if self.training:
            self.seen += x.detach().mean(0)
        else:
            x = self.norm(x)
        return self.drop(x) * self.weight

    def reset(self):
        self.calls = 0
        self.seen.zero_()
        return self.calls
""",
            (INT,),
            {"calls": INT, "weight": V4, "seen": V4, "training": BOOL},
            frozenset({"weight", "seen", "training"}),
            {
                "{}": function(N4, N4),
                "{}.linear": function(N4, N4),
                "{}.reset()": function(INT),
                "len(list({}.parameters()))": function(INT),
                "{}.layers[1]": function(N4, N4),
                "sum(p.numel() for p in {}.parameters())": function(INT),
                "'-'.join(name for name, _ in {}.named_children())": function(STR),
            },
            (
                "$.train(@bool@)",
                "$.eval()",
                "$.seen = $.seen + @v4@",
                "with torch.no_grad():\n    $.weight.add_(@float@)",
                "$.layers.append(torch.nn.Tanh())",
                "$.linear.bias.requires_grad_(@bool@)",
                "for name, p in $.named_parameters():\n    LOG.append(name)",
            ),
        ),
    }


GLOBAL_KINDS = {
    "LOG": list_of(STR),
    "SCALE": FLOAT,
    "COUNT": INT,
    "NAME": STR,
    "CONFIG": dict_of(INT),
    "CACHE": dict_of(N4),
    "STACK": list_of(V4),
    "WEIGHT": V4,
    "LIMITS": list_of(INT),
}
GLOBAL_TEXT = {
    "LOG": "[]",
    "SCALE": "1.5",
    "COUNT": "2",
    "NAME": "'mode'",
    "CONFIG": "{'a': 1, 'key': 3}",
    "CACHE": "{}",
    "STACK": "[]",
    "WEIGHT": "torch.linspace(-1, 1, 4)",
    "LIMITS": "[3, 1, 2]",
}
