"""itertools.chain and itertools.count under way: a loop across a graph break goes on with them."""

from __future__ import annotations

import itertools

import pytest
import torch

import core


def plus_all(x, items):
    for item in items:
        x = x + item
    return x


def plus_two(x, items):
    for _, item in zip(range(2), items):
        x = x + item
    return x


def moved(items, steps):
    for _ in range(steps):
        next(items)
    return items


def of_a_loop_with_a_break(x, items):
    for item in items:
        x = x + item
        print(end="")
    return x


MADE = {
    "one list": lambda: itertools.chain([1, 2, 3]),
    "not begun": lambda: itertools.chain([1, 2], (3, 4), range(2)),
    "in the first": lambda: moved(itertools.chain([1, 2], (3, 4)), 1),
    "at the end of the first": lambda: moved(itertools.chain([1, 2], (3, 4)), 2),
    "in the second": lambda: moved(itertools.chain([1, 2], (3, 4, 5)), 3),
    "from_iterable": lambda: moved(itertools.chain.from_iterable([[1], [], [2, 3]]), 1),
    "of iterators": lambda: itertools.chain(iter([1, 2]), iter((3,)), reversed([4, 5])),
    "of a chain": lambda: itertools.chain([1], itertools.chain([2], [3])),
    "used up": lambda: moved(itertools.chain([1, 2]), 2),
    "ended": lambda: (lambda items: (list(items), items)[1])(itertools.chain([1, 2])),
    "of dicts and sets": lambda: itertools.chain({1: 2, 3: 4}, {5}),
}
SAME = ("one list", "not begun", "in the first", "at the end of the first", "in the second", "from_iterable")


@pytest.mark.parametrize("fn", (plus_all, plus_two, of_a_loop_with_a_break))
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_chain_under_way_gives_and_keeps_what_it_would_in_python(make, fn):
    core.reset()
    compiled = core.compile(fn, backend="eager")
    for _ in range(3):
        ours, theirs = make(), make()
        assert torch.equal(compiled(torch.zeros(2), ours), fn(torch.zeros(2), theirs))
        assert list(ours) == list(theirs)
    assert core.stats()["skipped"] == 0


@pytest.mark.parametrize("name", SAME)
def test_a_chain_under_way_needs_no_break(name):
    core.reset()
    core.compile(plus_all, backend="eager", fullgraph=True)(torch.zeros(2), MADE[name]())
    assert core.stats()["graphs"] == 1


def test_a_chain_and_what_it_draws_on_may_both_be_read():
    def fn(x, first):
        items = itertools.chain(first, [7])
        x = x + next(items)
        print(end="")
        x = x + next(first) * 10
        return plus_all(x, items)

    core.reset()
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(torch.zeros(2), iter([1, 2, 3])), fn(torch.zeros(2), iter([1, 2, 3])))


def test_a_list_that_grows_is_seen_by_the_chain_over_it():
    def fn(x, items, grown):
        x = x + next(items)
        grown.append(x.shape[0])
        return plus_all(x, items)

    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        ours, theirs = [1, 2], [1, 2]
        got = compiled(torch.zeros(2), itertools.chain(ours, [5]), ours)
        assert torch.equal(got, fn(torch.zeros(2), itertools.chain(theirs, [5]), theirs))
        assert ours == theirs


def test_a_chain_across_a_break_is_one_break():
    def fn(x):
        items = itertools.chain([1, 2], [3, 4])
        x = x + next(items)
        print(end="")
        return plus_all(x, items)

    core.reset()
    compiled = core.compile(fn, backend="eager")
    assert torch.equal(compiled(torch.zeros(2)), fn(torch.zeros(2)))
    assert (core.stats()["graphs"], core.stats()["breaks"]) == (2, 1)


@pytest.mark.parametrize("make", (lambda: itertools.count(3), lambda: itertools.count(3, 4), lambda: itertools.count()))
def test_a_count_under_way_goes_on(make):
    def fn(x, numbers):
        for number, item in zip(numbers, [x, x + 1, x + 2]):
            x = x + item * number
            print(end="")
        return x + next(numbers)

    core.reset()
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        ours, theirs = make(), make()
        assert torch.equal(compiled(torch.ones(2), ours), fn(torch.ones(2), theirs))
        assert next(ours) == next(theirs)


def test_a_count_of_floats_is_left_to_python():
    def fn(x, numbers):
        return x + next(numbers) + next(numbers)

    compiled = core.compile(fn, backend="eager")
    assert torch.equal(compiled(torch.ones(2), itertools.count(0.5)), torch.full((2,), 3.0))
