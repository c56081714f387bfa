"""Loops whose body breaks the graph: the iterator that is under way is traced on, and ends where eager leaves it."""

from __future__ import annotations

import collections

import pytest
import torch
from agreement import agree

import core

X = torch.arange(6.0).reshape(2, 3)
WEIGHTS = [torch.eye(3) + i for i in range(4)]
NAMED = {"a": WEIGHTS[0], "b": WEIGHTS[1], "c": WEIGHTS[2], "d": WEIGHTS[3]}


@core.disable
def plain(x):
    return x * 2


def over_a_list(x):
    for weight in WEIGHTS:
        x = plain(x @ weight) * 0.1
    return x


def over_a_tuple(x):
    for weight in tuple(WEIGHTS):
        x = plain(x @ weight) * 0.1
    return x


def backwards(x):
    for weight in reversed(WEIGHTS):
        x = plain(x @ weight) * 0.1
    return x


def with_zip(x):
    for weight, factor in zip(WEIGHTS, (0.1, 0.2, 0.3)):
        x = plain(x @ weight) * factor
    return x


def with_strict_zip(x):
    for weight, other in zip(WEIGHTS, WEIGHTS[::-1], strict=True):
        x = plain(x @ weight @ other) * 0.1
    return x


def with_enumerate(x):
    for i, weight in enumerate(WEIGHTS, 3):
        x = plain(x @ weight) * 0.1 + i
    return x


def with_enumerate_of_zip(x):
    for i, (weight, other) in enumerate(zip(WEIGHTS, WEIGHTS[1:])):
        x = plain(x @ weight) * 0.1 + i + other.sum()
    return x


def with_map(x):
    for weight in map(lambda w: w * 0.5, WEIGHTS):
        x = plain(x @ weight) * 0.1
    return x


def with_filter(x):
    for i in filter(lambda n: n % 2, range(6)):
        x = plain(x) * 0.1 + i
    return x


def over_the_items_of_a_dict(x):
    for _, weight in NAMED.items():
        x = plain(x @ weight) * 0.1
    return x


def over_the_values_of_a_dict(x):
    for weight in NAMED.values():
        x = plain(x @ weight) * 0.1
    return x


def over_a_string(x):
    for letter in "abca":
        x = plain(x) * 0.1 + (letter == "a")
    return x


# Three graphs: of the first turn, of a turn, of the end. A number that lives across the break is made symbolic with its
# second value, a letter is part of the entry; both cost another entry of the turn.
LOOPS = [
    (over_a_list, {"graphs": 3, "breaks": 2}),
    (over_a_tuple, {"graphs": 3, "breaks": 2}),
    (backwards, {"graphs": 3, "breaks": 2}),
    (with_zip, {"graphs": 4, "breaks": 3}),
    (with_strict_zip, {"graphs": 3, "breaks": 2}),
    (with_enumerate, {"graphs": 4, "breaks": 3}),
    (with_enumerate_of_zip, {"graphs": 4, "breaks": 3}),
    (with_map, {"graphs": 3, "breaks": 2}),
    (with_filter, {"graphs": 3, "breaks": 3}),
    (over_the_items_of_a_dict, {"graphs": 3, "breaks": 2}),
    (over_the_values_of_a_dict, {"graphs": 3, "breaks": 2}),
    (over_a_string, {"graphs": 4, "breaks": 4}),
]


@pytest.mark.parametrize(("fn", "counts"), [pytest.param(fn, counts, id=fn.__name__) for fn, counts in LOOPS])
def test_one_break_a_turn_and_one_graph_for_all_turns(fn, counts):
    stats = agree(fn, X)
    assert {name: stats[name] for name in counts} == counts
    assert stats["skipped"] == 0


def test_a_break_in_the_first_turn_leaves_the_other_turns_in_one_graph():
    def fn(x):
        for i, weight in enumerate(WEIGHTS):
            if i == 0:
                x = plain(x)
            x = (x @ weight).sin()
        return x

    stats = agree(fn, X)
    assert (stats["graphs"], stats["breaks"]) == (1, 1)


def test_an_iterator_from_outside_is_left_where_eager_leaves_it():
    def fn(x, items):
        first = next(items)
        for item in items:
            x = x * item + first
            if item > 2:
                break
        return x

    compiled = core.compile(fn, backend="eager")
    for make in (
        lambda: iter([1, 2, 3, 4, 5]),
        lambda: iter((1, 2, 3, 4, 5)),
        lambda: iter(range(1, 6)),
        lambda: iter({1: 0, 2: 0, 3: 0, 4: 0}),
        lambda: reversed([5, 4, 3, 2, 1]),
        lambda: map(abs, [-1, -2, -3, -4]),
        lambda: filter(None, [0, 1, 0, 2, 3, 4]),
    ):
        ours, theirs = make(), make()
        assert torch.equal(compiled(X, ours), fn(X, theirs))
        assert list(ours) == list(theirs)
    assert core.stats()["breaks"] == core.stats()["skipped"] == 0


def test_enumerate_and_zip_from_outside_go_on_with_their_numbers_and_partners():
    def fn(x, pairs):
        for number, (left, right) in pairs:
            x = x * left + right * number
            if number == 6:
                break
        return x

    compiled = core.compile(fn, backend="eager")
    for lefts in ([1, 2, 3, 4], [1, 2]):
        ours, theirs = (enumerate(zip(iter(lefts), range(3)), 5) for _ in range(2))
        assert torch.equal(compiled(X, ours), fn(X, theirs))
        assert list(ours) == list(theirs)


def test_one_iterator_in_two_places_of_a_zip_is_read_in_turn():
    def fn(x):
        numbers = iter(range(9))
        for left, right in zip(numbers, numbers):
            x = plain(x) * 0.5 + left * right
        return x, list(numbers)

    agree(fn, X)


def test_an_iterator_that_ended_stays_at_its_end_when_its_list_grows():
    def fn(x, items, iterator):
        for item in iterator:
            x = x + item
        items.append(5)
        return x, list(iterator)

    compiled = core.compile(fn, backend="eager")
    for call in (fn, compiled, compiled):
        items = [1, 2]
        iterator = iter(items)
        result, rest = call(X, items, iterator)
        assert torch.equal(result, X + 3)
        assert rest == [] and items == [1, 2, 5] and list(iterator) == []


def test_a_list_that_grows_while_a_loop_with_a_break_walks_it():
    def fn(x):
        waiting = [3]
        seen = []
        for item in waiting:
            seen.append(item)
            x = plain(x) + item
            if item:
                waiting.append(item - 1)
        return x, seen

    agree(fn, X)


def test_a_list_that_plain_code_changes_between_turns():
    waiting: list[int] = []

    @core.disable
    def shorten(x):
        if len(waiting) > 2:
            waiting.pop()
        return x

    def fn(x):
        for item in waiting:
            x = shorten(x * 2) + item
        return x

    compiled = core.compile(fn, backend="eager")
    for call in (fn, compiled, compiled):
        waiting[:] = [1, 2, 3, 4]
        assert torch.equal(call(X), (X * 2 + 1) * 2 + 2)


def test_a_dict_that_changes_size_between_turns_raises_as_eager_does():
    def fn(x):
        table = {"a": 1, "b": 2}
        for name in table:
            x = plain(x)
            table[name * 2] = 3
        return x

    agree(fn, X)


def test_a_queue_that_a_loop_fills_while_it_walks_a_copy():
    def fn(x):
        queue = collections.deque([1, 2, 3])
        for item in list(queue):
            x = plain(x) + item
            queue.popleft()
        return x, list(queue)

    agree(fn, X)


def test_a_while_loop_on_a_tensor_has_one_resume_function_for_its_body():
    def fn(x):
        while x.sum() < 400:
            x = x * 2
        return x

    stats = agree(fn, X)
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (2, 2, 0)


def test_an_iterator_over_a_generator_may_be_passed_around():
    @core.disable
    def total(items):
        return sum(items)

    def fn(x, items):
        x = x + 1
        return x * total(items)

    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(X, map(abs, (i for i in (1, -2)))), fn(X, iter([1, 2])))
    assert core.stats()["skipped"] == 0
    assert core.stats()["graphs"] >= 2


def test_a_list_of_a_subclass_that_the_loop_changes():
    class Items(list):
        pass

    def fn(x, items):
        for item in items:
            x = plain(x) + item
            if len(items) < 4:
                items.append(item + 1)
        return x, list(items)

    compiled = core.compile(fn, backend="eager")
    for call in (fn, compiled, compiled):
        result, left = call(X, Items([1, 2]))
        assert left == [1, 2, 2, 3]
        assert torch.equal(result, fn(X, Items([1, 2]))[0])


class Announced:
    """An iterable whose iterator only Python makes; it raises in the middle where it is told to."""

    def __init__(self, items, fails_at=None, fails_to_begin=False):
        self.items = items
        self.fails_at = fails_at
        self.fails_to_begin = fails_to_begin

    @core.disable
    def __iter__(self):
        if self.fails_to_begin:
            raise TypeError("nothing to walk")
        return Announcer(self)


class Announcer:
    def __init__(self, owner):
        self.left = list(owner.items)
        self.fails_at = owner.fails_at

    def __iter__(self):
        return self

    @core.disable
    def __next__(self):
        if len(self.left) == self.fails_at:
            raise ValueError("lost")
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_that_python_must_begin_takes_its_first_step_in_the_same_break(count):
    def fn(x, items):
        x = x + 1
        for item in items:
            x = x * 0.5 + item
        return x - 1

    stats = agree(fn, X, Announced(WEIGHTS[0][:count, 0]))
    assert (stats["breaks"], stats["graphs"]) == ((1, 2) if count == 0 else (2, 3))


@pytest.mark.parametrize("given", [{}, {"fails_at": 2}, {"fails_at": 3}, {"fails_to_begin": True}])
def test_what_the_beginning_of_a_loop_raises_arrives_at_the_handler(given):
    def fn(x, items):
        seen = []
        try:
            for item in items:
                x = x * 0.5 + item
                seen.append(item)
            else:
                seen.append("all")
        except (TypeError, ValueError) as error:
            seen.append(str(error))
        return x, seen

    stats = agree(fn, X, Announced([0.5] * 3, **given))
    assert stats["breaks"] == (2 if given in ({}, {"fails_at": 2}) else 1)


def test_a_loop_that_python_must_begin_in_a_turn_of_another_loop():
    def fn(x, items, turns):
        for turn in range(turns):
            for item in items:
                x = plain(x) * 0.5 + item
            x = x + turn
        return x

    stats = agree(fn, X, Announced(WEIGHTS[0][:2, 0]), 3)
    assert stats["breaks"] == 5
