"""Objects whose class extends a builtin, or says of itself that it is another: what Python asks them, and what not."""

from __future__ import annotations

import collections
import os
import re

import pytest
import torch
from observed import agrees
from packaging.version import Version

import core

ORIGINS = ["made outside", "made inside"]


def program(function, base, value, origin, **methods):
    cls = type("Extended", (base,), methods)
    outside = cls(value)

    def fn(x):
        item = cls(value) if origin == "made inside" else outside
        return function(item), x + 1

    return lambda: (fn, (torch.ones(2),))


def named(**given):
    return given


@pytest.fixture(params=ORIGINS)
def origin(request):
    return request.param


@pytest.mark.parametrize("name", ["__str__", "__repr__", "__format__"])
@pytest.mark.parametrize("base, value", [(str, "ab"), (int, 3), (float, 3.5), (bytes, b"ab")])
def test_text_is_made_by_the_methods_of_the_class(name, base, value, origin):
    def texts(item):
        return str(item), repr(item), f"{item}", "%s" % (item,), "%s %r" % (item, item), "{}".format(item)  # noqa: UP031, UP032

    agrees(program(texts, base, value, origin, **{name: lambda self, *spec: "own"}), graphs=None, breaks=None)


def test_a_number_is_its_own_index_whatever_its_class_says(origin):
    def indexed(item):
        return [1, 2, 3, 4][item], [5, 6, 7, 8][item:]

    agrees(program(indexed, int, 3, origin, __index__=lambda self: 0))


@pytest.mark.parametrize("base", [dict, collections.Counter])
def test_double_stars_read_the_dict_behind_an_object(base, origin):
    changed = {"keys": lambda self: ["other"], "__getitem__": lambda self, key: "other"}
    agrees(program(lambda item: named(**item), base, {"a": 1}, origin, **changed))


@pytest.mark.parametrize("base", [dict, collections.OrderedDict, collections.UserDict])
def test_double_stars_ask_an_object_that_iterates_for_itself(base, origin):
    changed = {"keys": lambda self: ["b"], "__getitem__": lambda self, key: "own", "__iter__": lambda self: iter("b")}
    agrees(program(lambda item: named(**item), base, {"a": 1}, origin, **changed))


def test_keywords_must_be_strings():
    def fn(x):
        try:
            return named(**{1: x})
        except TypeError as error:
            return str(error), dict(**{"a": x + 1})

    agrees(lambda: (fn, (torch.ones(2),)))


@pytest.mark.parametrize("base", [object, list, torch.nn.Module])
def test_an_object_that_stands_in_for_another_class(base):
    class Other:
        pass

    class Proxy(base):
        @property
        def __class__(self):
            return Other

    item = Proxy()

    def fn(x):
        answers = (
            isinstance(item, Other),
            isinstance(item, base),
            isinstance(item, (int, Other)),
            isinstance(item, str),
        )
        return *answers, item.__class__ is Other, type(item) is Proxy, x + 1

    agrees(lambda: (fn, (torch.ones(2),)))


@pytest.mark.parametrize("name, value", [("__bool__", False), ("__len__", 0), ("__len__", 2), ("__bool__", 1)])
def test_truth_of_an_exception_that_answers(name, value):
    cls = type("Counted", (ValueError,), {name: lambda self: value})

    def fn(x):
        return x + 1 if cls("text") else x - 1

    agrees(lambda: (fn, (torch.ones(2),)), graphs=None)


def test_patterns_and_versions_take_texts_of_other_classes(origin):
    agrees(program(lambda item: re.compile("a(b)").fullmatch(item).group(1), str, "ab", origin))
    agrees(lambda: (lambda x: x + 1 if Version(torch.__version__) >= Version("2.0.0") else x, (torch.ones(2),)))


def test_a_path_that_is_a_text_is_its_own_path(origin):
    agrees(program(lambda item: os.fspath(item) + "/", str, "ab", origin, __fspath__=lambda self: "other"))


def test_the_value_of_an_object_over_a_literal_is_guarded():
    cls = type("Step", (int,), {})

    def fn(x, step):
        return x * (step + 1)

    compiled = core.compile(fn, backend="eager", fullgraph=True)
    for number in (1, 2, 1, 2):
        assert torch.equal(compiled(torch.ones(2), cls(number)), torch.ones(2) * (number + 1))
    assert core.stats()["graphs"] == 2


class Kept(collections.OrderedDict):
    def take(self):
        return super(collections.OrderedDict, self).popitem()


def pairs_of(cls):
    made = cls()
    made["spam"], made["ham"] = 1, 2
    return made


@pytest.mark.parametrize("cls", [collections.OrderedDict, Kept])
@pytest.mark.parametrize("inside", [True, False])
def test_an_ordered_dict_keeps_its_order_past_a_method_of_dict(cls, inside):
    held = None if inside else pairs_of(cls)

    def build():
        def fn(x):
            od = pairs_of(cls) if inside else held
            dict.pop(od, "ham", None)
            with pytest.raises(KeyError):
                repr(od)
            return len(od), x + 1

        return fn, (torch.ones(2),)

    agrees(build, graphs=None, breaks=None)


def test_an_ordered_dict_out_of_order_is_a_break_and_no_fault():
    od = pairs_of(Kept)
    od.take()

    def fn(x, od):
        y = x + 1
        return list(od), len(od), y

    want = (["spam", "ham"], 1)
    assert core.compile(fn, backend="eager")(torch.ones(2), od)[:2] == want
    with pytest.raises(core.Unsupported, match="not that of its keys"):
        core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2), od)


Point = collections.namedtuple("Point", "a b")
PAST_THE_CLASS = {
    "update": lambda: [dict.update(counts := collections.Counter(a=2), {"a": 5}), counts][1],
    "copy": lambda: dict.copy(collections.defaultdict(int, a=1)),
    "take": lambda: [pairs_of(Kept).take()],
    "super": lambda: [super(collections.OrderedDict, od := pairs_of(Kept)).pop("ham"), list(od), len(od)],
    "tuple": lambda: tuple.__repr__(Point(1, 2)),
    "int": lambda: (int.__repr__(True), int.__and__(True, False)),
    "object": lambda: (object.__eq__({}, {}), object.__repr__("text").startswith("<str")),
}


@pytest.mark.parametrize("name", PAST_THE_CLASS)
def test_a_method_of_a_base_class_is_not_taken_for_that_of_the_class(name):
    make = PAST_THE_CLASS[name]
    agrees(lambda: (lambda x: (make(), type(make()), x + 1), (torch.ones(2),)), graphs=None, breaks=None)
