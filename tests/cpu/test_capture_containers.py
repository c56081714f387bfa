"""Containers with tensors in compiled functions: eager's results, eager's changes of the arguments, counted breaks."""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import math
import operator
from typing import NamedTuple

import pytest
import torch

import core


class Pair(NamedTuple):
    a: torch.Tensor
    b: object = 3

    def total(self):
        return self.a.sum() + self.b


class Mode(enum.Enum):
    FAST = "fast"
    SAFE = "safe"


class Words(tuple):
    pass


class Bag(set):
    pass


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return same(list(left), list(right)) and same(list(left.values()), list(right.values()))
    if isinstance(left, (list, tuple, collections.deque)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right))
    return left == right


def sums(x):
    return sum([x, x, 1]), sum(x), sum((x for _ in range(3)), x)


def sorting(x):
    return (
        sorted([x, x.sum(), x[0]], key=lambda v: v.ndim),
        sorted({3, 1, x.size(0)}),
        min([x, x[0]], key=torch.Tensor.dim),
    )


def pairs(x):
    p = Pair(x)
    return p, p.total(), p._replace(b=x), Pair(b=2, a=x)._asdict(), Pair(x, 5)[1]


def dicts(x):
    d = {"a": x, 1: x + 1}
    d[True] = x + 2
    d.update(z=x * 2)
    d |= {"k": x}
    e = collections.OrderedDict(a=x, b=x + 1)
    e.move_to_end("a")
    f = collections.defaultdict(list)
    f["a"].append(x)
    return d, d.get("q", x), {k: v * 2 for k, v in d.items()}, e, torch.stack(f["a"]), {x: 5}[x]


def iterators(x):
    out = [a * b for a, b in itertools.product([1, 2], [x, x + 1])]
    out += itertools.accumulate([x, x, x])
    out += [a + b for a, b in itertools.pairwise(out)]
    out += map(operator.neg, reversed(x))
    return functools.reduce(operator.add, [v.sum() for v in out])


def shapes(x):
    s = x.shape
    return (
        x.reshape(s[::-1]),
        x.view(-1, s[-1]),
        s.numel(),
        s + (1,),
        math.prod(s),
        s == (2, 3),
        x.new_zeros(s[:-1] + (4,)),
    )


def slices(x):
    items = [x, x + 1, x + 2]
    items[1:] = [x * 2]
    items += [x]
    items *= 2
    del items[0]
    return items, items[::-1], x[slice(0, 1)], x[..., None], x[[0, 1]]


def enums(x):
    return x if Mode("fast") is Mode.FAST else -x, [m.name for m in Mode], {Mode.FAST: x}[Mode.FAST], Mode["SAFE"].value


def knots(x):
    items = []
    items.append(items)
    d = {"items": items, "x": x}
    items.append(d)
    return items[1]["x"], items[0] is items, len(items)


def text(x):
    return f"{tuple(x.shape)} {x.dtype} {x.ndim:>3} {[1, 'a']}", x


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [sums, sorting, pairs, dicts, iterators, shapes, slices, enums, knots, text])
def test_function_is_one_graph_with_eagers_results(function, dynamic):
    core.reset()
    x = torch.arange(6.0).reshape(2, 3)
    compiled = core.compile(function, backend="eager", fullgraph=True, dynamic=dynamic)
    for _ in range(2):
        assert same(compiled(x.clone()), function(x.clone()))
    assert core.stats()["frames"] == 1


def grow(x, d):
    d["n"] = d.get("n", 0) + 1
    d["last"] = x * d["n"]
    return x


def factory(x, d):
    d["a"].append(x)
    d["new"].append(2)
    return len(d["a"])


def window(x, d):
    d.append(x.size(0))
    d.appendleft(5)
    return x * len(d)


def members(x, s):
    s.add("z")
    return x if "k" in s else -x


def alias(x, items):
    items[0].extend(items[1])
    items[1] = items[0]
    return x + len(items[0])


def reorder(x, d):
    d.move_to_end("a")
    d["c"] = x
    return d.popitem(last=False)[1]


INPUTS = [
    (grow, lambda: {"n": 1}),
    (factory, lambda: collections.defaultdict(list, a=[1])),
    (window, lambda: collections.deque([1, 2], 3)),
    (members, lambda: {1, "k"}),
    (alias, lambda: [[1, 2], [3]]),
    (reorder, lambda: collections.OrderedDict(a=torch.ones(1), b=2)),
]


@pytest.mark.parametrize(("function", "make"), INPUTS, ids=[function.__name__ for function, _ in INPUTS])
def test_changes_of_arguments_are_eagers(function, make):
    core.reset()
    compiled = core.compile(function, backend="eager", fullgraph=True)
    x = torch.ones(2)
    for _ in range(2):
        wanted, given = make(), make()
        assert same(compiled(x, given), function(x, wanted))
        assert same(given, wanted)
    assert core.stats()["frames"] == 1


def test_a_list_that_grows_with_each_call_does_not_recompile():
    core.reset()
    log = []

    def step(x):
        log.append(x.sum())
        return x * 2

    compiled = core.compile(step, backend="eager", fullgraph=True)
    for _ in range(4):
        compiled(torch.ones(2))
    assert len(log) == 4 and core.stats()["frames"] == 1


def test_items_move_between_lists_before_either_is_written():
    def swap(x, a, b):
        b.append(1)
        a.extend(b)
        b.clear()
        return x + 1

    a, b = ["p"], ["q", "r"]
    core.compile(swap, backend="eager", fullgraph=True)(torch.ones(1), a, b)
    assert a == ["p", "q", "r", 1] and b == []


def test_a_break_inside_a_loop_over_iterators_goes_on_where_it_was():
    core.reset()

    def loop(x, items, table):
        out = []
        for i, (a, b) in enumerate(zip(items, itertools.count(5))):
            print("", end="")
            x = x + a * b * i
            out.append(a)
        for key, value in table.items():
            print("", end="")
            table[key] = value + 1
            x = x + value
        return x, out

    compiled = core.compile(loop, backend="eager")
    first, second = {"a": 1, "b": 2}, {"a": 1, "b": 2}
    assert same(compiled(torch.ones(1), [1, 2, 3], first), loop(torch.ones(1), [1, 2, 3], second))
    assert first == second
    assert core.stats()["breaks"] >= 5


def test_the_length_of_a_tuple_subclass_is_guarded():
    core.reset()
    compiled = core.compile(lambda x, items: x * len(items), backend="eager", fullgraph=True)
    assert [compiled(torch.ones(1), Words(range(n))).item() for n in (2, 3)] == [2.0, 3.0]
    assert [compiled(torch.ones(1), Bag(range(n))).item() for n in (2, 3)] == [2.0, 3.0]
    assert core.stats()["frames"] == 4


def test_a_function_met_as_a_class_attribute_is_guarded_as_an_argument():
    class Holder:
        act = staticmethod(torch.relu)

    def apply(x, fn):
        return Holder.act(x) + fn(x)

    compiled = core.compile(apply, backend="eager", fullgraph=True)
    x = torch.tensor([-1.0, 2.0])
    for fn in (torch.relu, torch.sigmoid, torch.relu):
        assert torch.equal(compiled(x, fn), apply(x, fn))


def test_modules_and_parameters_as_keys():
    weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))]

    def step(x, state):
        for weight in weights:
            state[weight]["step"] += 1
            state[weight]["sum"] = x.sum()
        return x + state[weights[1]]["step"]

    compiled = core.compile(step, backend="eager", fullgraph=True)
    first, second = ({w: {"step": i} for i, w in enumerate(weights)} for _ in range(2))
    assert same(compiled(torch.ones(2), first), step(torch.ones(2), second))
    assert same(list(first.values()), list(second.values()))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("key", [None, lambda item: item])
def test_a_sort_that_raises_leaves_the_list_as_far_as_it_came(reverse, key):
    def fn(x, items):
        try:
            items.sort(key=key, reverse=reverse)
        except TypeError:
            return x + len(items)
        return x

    core.reset()
    fast = core.compile(fn, backend="eager")
    for given in ([3, 1, "a", 2], [5, 4, 3, None, 1], [2, 1, 3], ["b", "a", 1], list(range(40, 0, -1)) + ["z", 3]):
        ours, theirs = list(given), list(given)
        assert same(fast(torch.ones(2), ours), fn(torch.ones(2), theirs)) and ours == theirs


def test_a_tuple_among_the_codes_constants_is_one_object_in_every_call():
    kept = []

    def program(x, k):
        pairs = sorted([(2, "b"), (k, "a"), (1, "c")], key=lambda pair: -pair[0])
        kept.append(pairs)
        again = [(3,) for _ in range(2)]
        return x + 1, again[0] is again[1], ((4, 5), pairs), [None, 1, ("inside",)]

    compiled = core.compile(program, backend="eager", fullgraph=True)
    for fn in (program, compiled):
        kept.clear()
        first, second = fn(torch.ones(2), 0), fn(torch.ones(2), 1)
        assert first[1] and second[1]
        assert first[2][0] is second[2][0]
        assert first[3][2] is second[3][2]
        fixed = [[pair for pair in pairs if pair[1] != "a"] for pairs in kept]
        assert [one is other for one, other in zip(*fixed)] == [True, True]
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (2, 0)


def test_text_of_the_views_of_a_dict():
    def fn(x):
        plain, ordered = {"a": 1, "b": (2,)}, collections.OrderedDict(c=3)
        return x + 1, [repr(view) for held in (plain, ordered) for view in (held.keys(), held.values(), held.items())]

    core.reset()
    assert core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2))[1] == fn(torch.ones(2))[1]
    assert core.stats()["graphs"] == 1


@pytest.mark.parametrize("undo", [list.pop, list.clear])
def test_a_key_that_changes_the_list_and_changes_it_back_is_found_by_sort(undo):
    def sorts(x):
        numbers = [2, 1]

        def puts_in_and_takes_out(number):
            numbers.append(number)
            undo(numbers)
            return number

        try:
            numbers.sort(key=puts_in_and_takes_out)
        except ValueError as error:
            return str(error), numbers, x + 1
        return numbers, x + 1

    assert repr(core.compile(sorts, backend="eager", fullgraph=True)(torch.ones(2))) == repr(sorts(torch.ones(2)))
