"""Everything that a program reads is guarded: whatever is changed, the next call misses and gives eager's result.

One program reads state of every kind from a world that is built anew for each example; a change touches one piece of
it. Sequences of changes are drawn by hypothesis, so that entries of several states stand side by side.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import sys
import types

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import core

FLAG = "GUARD_PROPERTY_FLAG"

SOURCE = """
import os
import torch
import guard_property_module as module

NUMBER = 2.0
TABLE = {"a": 1.0, "b": [2.0, 3.0]}
NAMES = {"one", "two"}

def helper(x, k=1.0, *, m=2.0):
    return x * k + m

def other_helper(x, k=1.0, *, m=2.0):
    return x - k

def make(start):
    def closure(x):
        return x + start
    def set_start(value):
        nonlocal start
        start = value
    return closure, set_start

closure, set_start = make(1.0)

class Meta(type):
    scales = {"s": 1.0}

class Base(metaclass=Meta):
    shared = 1.0
    items = [1.0]

    def method(self, x):
        return x + self.own

    @property
    def twice(self):
        return self.own * 2

class Thing(Base):
    __slots__ = ("slot",)

    def __init__(self):
        self.own = 1.0
        self.slot = 1.0
        self.child = None

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.drop = torch.nn.Identity()
        self.register_buffer("offset", torch.zeros(3))
        self.scale = 1.0

    def forward(self, x):
        x = self.drop(self.inner(x)) * self.scale + self.offset
        return x + 1 if self.training else x

def program(x, y, thing, numbers, options, queue, net, call):
    out = helper(x) * NUMBER
    out = out + TABLE["a"] + sum(TABLE["b"]) + len(NAMES) + ("three" in NAMES)
    out = closure(out) + module.VALUE
    out = thing.method(out) + thing.twice + thing.slot + thing.shared + thing.items[0]
    out = out * type(thing).scales["s"]
    out = out + (3.0 if thing.child is None else thing.child.own)
    out = out + sum(numbers) + options.get("k", 0.5) + len(options)
    for name in options:
        out = out + len(name)
    out = out + sum(queue)
    out = net(out)
    if os.environ.get("GUARD_PROPERTY_FLAG", "") == "on":
        out = out * 3
    if x is y:
        out = out + 7
    if torch.is_grad_enabled():
        out = out + 1
    out = out + torch.ones(3).to(out.dtype) + (5 if torch.get_default_dtype() is torch.float64 else 0)
    out = call(out)
    x.add_(1)
    return out + y + x, (x @ x.t()).dtype, y.dtype
"""


class World:
    """All that the program reads. `args()` gives a call's arguments, with tensors made anew."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.module = sys.modules["guard_property_module"] = types.ModuleType("guard_property_module")
        self.module.VALUE = 1.0
        self.names = {"__name__": "guard_property_program"}
        exec(SOURCE, self.names)  # noqa: S102
        self.thing = self.names["Thing"]()
        self.numbers = [1.0, 2.0]
        self.options = {"k": 1.0}
        self.queue = collections.deque([1.0, 2.0])
        self.net = self.names["Net"]()
        self.call = functools.partial(torch.mul, other=2.0)
        self.same = False
        self.overlap = False
        self.dtype = torch.float32
        self.requires_grad = False
        self.rows = 2
        self.turned = False
        self.around: dict[str, contextlib.AbstractContextManager] = {}

    def args(self) -> tuple:
        x = torch.arange(self.rows * 3.0).reshape(self.rows, 3).to(self.dtype)
        y = torch.ones(self.rows, 3, dtype=self.dtype)
        if self.turned:
            y = torch.ones(3, self.rows, dtype=self.dtype).t()
        if self.overlap:
            memory = torch.arange(9.0, dtype=self.dtype)
            x, y = memory[:6].view(2, 3), memory[3:].view(2, 3)  # whatever the rows are
        if self.same:
            y = x
        if self.requires_grad and not (self.same or self.overlap):
            y.requires_grad_(True)
        return x, y, self.thing, self.numbers, self.options, self.queue, self.net, self.call

    def run(self, fn) -> object:
        with contextlib.ExitStack() as stack:
            for manager in self.around.values():
                stack.enter_context(manager())
            return fn(*self.args())


@contextlib.contextmanager
def default_dtype_double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def set_global(name, value):
    return lambda world: world.names.__setitem__(name, value)


def around(name, manager):
    return lambda world: world.around.__setitem__(name, manager)


def set_on(path, name, value):
    def apply(world):
        target = functools.reduce(getattr, path.split("."), world)
        setattr(target, name, value(world) if callable(value) else value)

    return apply


def hook(module, inputs, output):
    return output * 2


def pre_hook(module, inputs):
    return (inputs[0] + 2,)


def all_hook(module, inputs, output):
    return output + 3 if type(module) is torch.nn.Linear else None


def read_nine(self, name):
    return 9.0 if name == "own" else object.__getattribute__(self, name)


HANDLES = []


CHANGES = {
    "a global number": set_global("NUMBER", 3.0),
    "a global function": lambda w: w.names.__setitem__("helper", w.names["other_helper"]),
    "a value in a global dict": lambda w: w.names["TABLE"].__setitem__("a", 9.0),
    "a value in a list in a global dict": lambda w: w.names["TABLE"]["b"].__setitem__(1, 9.0),
    "a longer list in a global dict": lambda w: w.names["TABLE"]["b"].append(4.0),
    "a global set": lambda w: w.names["NAMES"].add("three"),
    "the defaults of a helper": lambda w: setattr(w.names["helper"], "__defaults__", (4.0,)),
    "the keyword defaults of a helper": lambda w: setattr(w.names["helper"], "__kwdefaults__", {"m": 5.0}),
    "a keyword default in place": lambda w: w.names["helper"].__kwdefaults__.__setitem__("m", 6.0),
    "the code of a helper": lambda w: setattr(w.names["helper"], "__code__", w.names["other_helper"].__code__),
    "a closure cell": lambda w: w.names["set_start"](5.0),
    "a name of a module": set_on("module", "VALUE", 4.0),
    "another module under the name": lambda w: w.names.__setitem__("module", types.SimpleNamespace(VALUE=8.0)),
    "an attribute of an object": set_on("thing", "own", 4.0),
    "a slot": set_on("thing", "slot", 4.0),
    "an attribute from None": lambda w: setattr(w.thing, "child", w.names["Thing"]()),
    "a class attribute": lambda w: setattr(w.names["Base"], "shared", 4.0),
    "an instance attribute over a class attribute": set_on("thing", "shared", 6.0),
    "a class attribute over a base's": lambda w: setattr(w.names["Thing"], "shared", 7.0),
    "a list of a class": lambda w: w.names["Base"].items.__setitem__(0, 4.0),
    "a dict of a metaclass": lambda w: w.names["Meta"].scales.__setitem__("s", 2.0),
    "a method of a class": lambda w: setattr(w.names["Base"], "method", lambda self, x: x * 5),
    "a property of a class": lambda w: setattr(w.names["Base"], "twice", property(lambda self: 11.0)),
    "the class of an object": lambda w: setattr(
        w.thing, "__class__", type("Sub", (w.names["Thing"],), {"shared": 3.0})
    ),
    "an item of a list argument": lambda w: w.numbers.__setitem__(0, 5.0),
    "the length of a list argument": lambda w: w.numbers.append(5.0),
    "a value of a dict argument": lambda w: w.options.__setitem__("k", 5.0),
    "a key of a dict argument": lambda w: w.options.__setitem__("longer", 5.0),
    "a key less in a dict argument": lambda w: w.options.pop("k", None),
    "an item of a deque": lambda w: w.queue.append(5.0),
    "the argument of a partial": lambda w: setattr(w, "call", functools.partial(torch.mul, other=3.0)),
    "the function of a partial": lambda w: setattr(w, "call", functools.partial(torch.add, other=2.0)),
    "another callable": lambda w: setattr(w, "call", torch.relu),
    "the training flag": lambda w: w.net.eval(),
    "a parameter replaced": lambda w: setattr(w.net.inner, "weight", torch.nn.Parameter(torch.ones(3, 3))),
    "the data of a parameter": lambda w: w.net.inner.weight.data.fill_(2.0),
    "a buffer replaced": lambda w: setattr(w.net, "offset", torch.ones(3)),
    "a bias set to None": lambda w: setattr(w.net.inner, "bias", None),
    "a submodule replaced": lambda w: setattr(w.net, "drop", torch.nn.ReLU()),
    "a number of a module": lambda w: setattr(w.net, "scale", 4.0),
    "a hook added": lambda w: w.net.inner.register_forward_hook(hook),
    "a hook added to the outer module": lambda w: w.net.register_forward_hook(hook),
    "a forward of an instance": lambda w: setattr(w.net.drop, "forward", lambda x: x * 9),
    "a pre-hook added": lambda w: w.net.inner.register_forward_pre_hook(pre_hook),
    "a hook of all modules": lambda w: HANDLES.append(torch.nn.modules.module.register_module_forward_hook(all_hook)),
    "a builtin shadowed by a global": lambda w: w.names.__setitem__("len", lambda value: 12),
    "requires_grad of a parameter": lambda w: w.net.inner.weight.requires_grad_(False),
    "a __getattribute__ of a class": lambda w: setattr(w.names["Thing"], "__getattribute__", read_nine),
    "the shape of the arguments": lambda w: setattr(w, "rows", 4),
    "the strides of an argument": lambda w: setattr(w, "turned", True),
    "a tuple in place of a list": lambda w: setattr(w, "numbers", (3.0, 4.0)),
    "the environment": lambda w: os.environ.__setitem__(FLAG, "on"),
    "one tensor for two arguments": lambda w: setattr(w, "same", True),
    "overlapping memory of written inputs": lambda w: setattr(w, "overlap", True),
    "requires_grad of an argument": lambda w: setattr(w, "requires_grad", True),
    "gradients off": around("grad", torch.no_grad),
    "autocast": around("autocast", lambda: torch.autocast("cpu", torch.bfloat16)),
    "the default dtype": around("default", default_dtype_double),
    "the dtype of the arguments and the net": lambda w: (setattr(w, "dtype", torch.float64), w.net.double()),
}
NOT_A_MISS = {"the data of a parameter"}  # weights are read on each call


@pytest.fixture(autouse=True)
def clean_environment():
    yield
    os.environ.pop(FLAG, None)
    sys.modules.pop("guard_property_module", None)
    while HANDLES:
        HANDLES.pop().remove()
    torch.set_default_dtype(torch.float32)


def compare(world, compiled):
    want = world.run(world.names["program"])
    got = world.run(compiled)
    assert torch.equal(got[0].detach(), want[0].detach()), (got[0], want[0])
    assert got[0].requires_grad == want[0].requires_grad and got[0].dtype == want[0].dtype
    assert got[1:] == want[1:]


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_misses_and_gives_eagers_result(name):
    os.environ.pop(FLAG, None)
    world = World()
    compiled = core.compile(world.names["program"], backend="eager")
    compare(world, compiled)
    compare(world, compiled)
    frames = core.stats()["frames"]
    CHANGES[name](world)
    compare(world, compiled)
    assert (core.stats()["frames"] > frames) is (name not in NOT_A_MISS), core.stats()
    assert core.stats()["breaks"] == 0 or name in ("another module under the name",)
    frames = core.stats()["frames"]
    compare(world, compiled)
    assert core.stats()["frames"] == frames


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.sampled_from(sorted(CHANGES)), min_size=2, max_size=6))
def test_sequences_of_changes_give_eagers_results(names):
    os.environ.pop(FLAG, None)
    while HANDLES:
        HANDLES.pop().remove()
    world = World()
    compiled = core.compile(world.names["program"], backend="eager", recompile_limit=64)
    compare(world, compiled)
    for name in names:
        CHANGES[name](world)
        compare(world, compiled)
    compare(world, compiled)
