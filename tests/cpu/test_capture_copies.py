"""copy.copy and copy.deepcopy in traced code: the copy module's rules, identities inside, one graph."""

from __future__ import annotations

import collections
import copy
import dataclasses

import pytest
import torch
from compare import check

import core

X = torch.randn(3, 4)
Pair = collections.namedtuple("Pair", "a b")


class Settings:
    def __init__(self):
        self.width = 1
        self.items = [1, 2, {"k": (1, 2)}]
        self.same_items = self.items
        self.mixed = ("x", [1])


class Nested(Settings):
    def __init__(self):
        super().__init__()
        self.inner = Settings()
        self.itself = self


class Copied:
    def __init__(self, value):
        self.value = value

    def __deepcopy__(self, memo):
        return Copied(copy.deepcopy(self.value, memo))

    def __copy__(self):
        return Copied(self.value)


class Stateful:
    def __init__(self):
        self.a = 1
        self.handle = object()

    def __getstate__(self):
        return {"a": self.a}

    def __setstate__(self, state):
        self.a = state["a"] + 1


class Named(dict):
    pass


class Listed(list):
    def __init__(self, *args):
        super().__init__(*args)
        self.tag = 3


@dataclasses.dataclass
class Record:
    x: int = 1
    y: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int = 1
    y: tuple = (1, [2])


NESTED = Nested()


def test_a_deep_copy_keeps_identities_inside_and_none_with_the_original():
    def fn(x):
        made = copy.deepcopy(NESTED)
        made.width = 5
        made.items.append(9)
        made.inner.items[2]["k"] = 3
        inside = (made.items is made.same_items, made.itself is made)
        outside = (made.items is NESTED.items, made.inner is NESTED.inner, made.mixed is NESTED.mixed)
        return x * made.width + NESTED.width, inside, outside, len(made.items), len(NESTED.items), made.inner.items

    check(fn, X)


def test_a_deep_copy_that_leaves_is_a_real_object():
    def fn(x, settings):
        made = copy.deepcopy(settings)
        made.width = 7
        return x * made.width, made

    check(fn, X, Settings())


def test_containers_are_copied_with_their_classes():
    def fn(x, values):
        deep, flat = copy.deepcopy(values), copy.copy(values)
        deep[0].append(4)
        flat.append(1)
        return x + 1, deep, flat, flat[0] is values[0]

    values = [
        [1],
        (1, 2),
        {1, 2},
        frozenset([3]),
        collections.deque([1, 2], 3),
        collections.OrderedDict(a=[1]),
        Pair(1, [2]),
        Copied([1]),
    ]
    check(fn, X, values)


def test_a_copied_defaultdict_keeps_its_factory():
    def fn(x, counts):
        made = copy.deepcopy(counts)
        made["new"].append(1)
        return x, made, copy.copy(counts)

    check(fn, X, collections.defaultdict(list, n=[1]), graphs=None)


def test_objects_that_extend_containers_are_copied_with_contents_and_attributes():
    def fn(x):
        named = Named()
        named["a"] = [1]
        named.tag = 2
        listed = Listed([1, [2]])
        named_copy, listed_copy = copy.deepcopy(named), copy.deepcopy(listed)
        named_copy["a"].append(2)
        listed_copy[1].append(3)
        return x + 1, named, named_copy, listed, listed_copy, named_copy.tag, listed_copy.tag, type(named_copy) is Named

    check(fn, X)


def test_objects_decide_about_their_copies():
    def fn(x):
        stateful = Stateful()
        deep, flat = copy.deepcopy(stateful), copy.copy(stateful)
        copied = Copied([1])
        return x + deep.a + flat.a, copy.deepcopy(copied), copy.copy(copied).value is copied.value

    check(fn, X)


def test_dataclasses_with_and_without_slots_are_copied():
    def fn(x):
        return x + 1, copy.deepcopy(Record(2, [3])), copy.deepcopy(Slotted()).y, copy.copy(Slotted(4)).x

    check(fn, X)


def test_instance_dicts_are_copied_as_plain_dicts():
    def fn(x, settings):
        attributes = copy.deepcopy(settings.__dict__)
        attributes["width"] = 9
        return x * attributes["width"], attributes, copy.copy(settings)

    check(fn, X, Settings())


def test_a_tensor_is_copied_once_in_a_deep_copy():
    def fn(x):
        y = x + 1
        made = copy.deepcopy({"y": y, "z": [y]})
        made["y"].add_(1)
        return y, made, made["y"] is made["z"][0]

    check(fn, X)


@pytest.mark.parametrize("value", [torch.nn.Linear(2, 2), torch.ones(2, requires_grad=True)])
def test_what_the_copy_module_copies_in_c_breaks_the_graph(value):
    def fn(x):
        return x + 1, copy.deepcopy(value)

    compiled = core.compile(fn, backend="eager")
    want, made = fn(X)
    got, copied = compiled(X)
    assert torch.equal(got, want) and type(copied) is type(made) and copied is not value
    assert core.stats()["breaks"] == 1
