"""What callables are inside captured code: partials, methods and functions with their attributes and closures."""

from __future__ import annotations

import collections
import functools

import pytest
import torch
from compare import check

import core

X = torch.arange(6.0).reshape(2, 3)
NAMES = (
    "__class__",
    "__doc__",
    "__dict__",
    "__eq__",
    "__hash__",
    "__reduce__",
    "__name__",
    "__mro__",
    "__or__",
    "shade",
)


class Holder:
    def method(self):
        return 1


MAKERS = {
    "lambda": lambda: lambda x: x,
    "partial": lambda: functools.partial(len, [1]),
    "method": lambda: Holder().method,
    "builtin": lambda: len,
    "iterator": lambda: iter([1]),
    "tensor function": lambda: torch.add,
}


def compiled(fn, *args):
    core.reset()
    before = core.stats()
    result = core.compile(fn, backend="eager", fullgraph=True)(*args)
    after = core.stats()
    assert after["breaks"] == before["breaks"]
    return result


@pytest.mark.parametrize("kind", MAKERS)
def test_hasattr_of_a_callable_sees_what_its_class_gives_and_nothing_of_the_metaclass(kind):
    make = MAKERS[kind]

    def fn(x):
        made = make()
        return [hasattr(made, name) for name in NAMES], x + 1

    check(fn, X)


def test_attributes_set_on_a_partial_are_read_and_given_back():
    def fn(x):
        part = functools.partial(torch.add, x, alpha=2)
        part.shade = x + 1
        return part, part.shade, hasattr(part, "other"), part.__class__ is functools.partial

    part, shade, other, same = compiled(fn, X)
    assert part.shade is shade and not other and same
    assert torch.equal(part(X), X + 2 * X)


def test_a_partial_from_outside_gets_its_attribute_and_a_later_one_recompiles():
    part = functools.partial(torch.mul, 2)

    def fn(x):
        return x * part.shade if hasattr(part, "shade") else part(x)

    fast = core.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(fast(X), X * 2)
    part.shade = 5
    assert torch.equal(fast(X), X * 5)


def test_a_function_in_its_own_closure_comes_back_as_one_object():
    def fn(x):
        def inner():
            return inner

        return x + 1, inner

    total, inner = compiled(fn, X)
    assert inner() is inner and torch.equal(total, X + 1)


def test_functions_that_lead_to_each_other_through_lists_and_defaults_stay_one_object_each():
    def fn(x):
        items = []

        def first(known=items):
            return known, second

        def second():
            return first, x + 1

        items.extend([first, second])
        return first, items

    first, items = compiled(fn, X)
    second = items[1]
    assert items[0] is first and first() == (items, second) and first()[0] is items
    assert second()[0] is first and torch.equal(second()[1], X + 1)


def test_a_function_that_holds_itself_in_an_attribute_and_in_its_closure():
    def fn(x):
        def inner():
            return inner.shade

        inner.me = inner
        inner.shade = x + 1
        return inner

    inner = compiled(fn, X)
    assert inner.me is inner and torch.equal(inner(), X + 1)


def test_fromkeys_takes_its_value_by_keyword_where_python_does():
    def fn(x):
        return collections.OrderedDict.fromkeys(["a", "b"], value=x), dict.fromkeys("ab", x + 1), dict.fromkeys("a")

    check(fn, X)

    def wrong(x):
        try:
            return dict.fromkeys("ab", value=x)
        except TypeError:
            return x + 1

    check(wrong, X)


def left_by_index(items):
    place = 0
    try:
        while True:
            yield items[place]
            place += 1
    except IndexError:
        return


def test_a_generator_left_waiting_where_its_end_runs_nothing_is_captured():
    def fn(x):
        return x + next(left_by_index([1, 2])), list(zip(left_by_index([x]), "ab"))

    check(fn, X)


def test_a_generator_left_waiting_in_a_finally_runs_as_written():
    seen = []

    def steps():
        try:
            yield 1
        finally:
            seen.append("left")

    def fn(x):
        return x + next(steps())

    core.reset()
    assert torch.equal(core.compile(fn, backend="eager")(X), X + 1)
    assert seen == ["left"] and core.stats()["graphs"] == 0


@pytest.mark.parametrize(
    ("owner", "names", "words"),
    [([3, 1, 2, 1], ("append", "remove", "count"), (1,)), ("Ab", ("lower", "upper"), ()), (X, ("add", "mul"), (2,))],
)
def test_which_method_of_a_builtin_object_an_argument_is(owner, names, words):
    def fn(x, method):
        return method(*words), x + 1

    core.reset()
    fast = core.compile(fn, backend="eager")
    ours, theirs = ([*owner], [*owner]) if isinstance(owner, list) else (owner, owner)
    for name in (*names, names[0]):
        got, want = fast(X, getattr(ours, name)), fn(X, getattr(theirs, name))
        assert torch.equal(got[0], want[0]) if isinstance(want[0], torch.Tensor) else got[0] == want[0]
    assert ours is theirs or ours == theirs
    assert core.stats()["breaks"] == 0
