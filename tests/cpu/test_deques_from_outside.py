"""Deques of any objects as arguments: read, changed and guarded."""

from __future__ import annotations

import collections

import pytest
import torch
from compare import same
from observed import BACKENDS, agrees

import core


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_items_of_a_deque_are_taken_from_both_ends(backend):
    def build():
        history = collections.deque(["first", *(torch.full((2,), float(i)) for i in range(5)), [1]])

        def fn(x, items):
            last = items.pop()
            label = items.popleft()
            return x * items.pop() + items.popleft(), last, label

        return lambda x: fn(x, history), (torch.ones(2),), lambda: list(history)

    agrees(build, backend, calls=1)


def test_a_bounded_deque_of_tensors_moves_on_with_each_call(backend):
    def build():
        window = collections.deque((torch.full((2,), float(i)) for i in range(3)), maxlen=3)

        def fn(x, items):
            items.append(x + items[-1])
            return torch.stack(list(items)).mean(0)

        return lambda x: fn(x, window), (torch.ones(2),), lambda: list(window)

    agrees(build, backend, calls=4)


def test_what_is_reached_through_a_deque_survives_its_change(backend):
    def build():
        cells = [torch.ones(2), torch.zeros(2)]

        def fn(x, items):
            items.rotate(1)
            items.appendleft(items[1])
            return x + 1

        made = collections.deque(cells)
        return lambda x: fn(x, made), (torch.ones(2),), lambda: list(made)

    agrees(build, backend, calls=2, graphs=None)


def test_length_bound_and_items_of_a_deque_are_guarded():
    def fn(x, items):
        return x + len(items) + items[0] + (items.maxlen or 0)

    x, one = torch.ones(2), torch.ones(2)
    compiled = core.compile(fn, backend="eager", fullgraph=True)
    for items, maxlen in (((one,), None), ((one,), 2), ((one, one), 2), ((one.double(),), 2), ((one,), 2)):
        made = collections.deque(items, maxlen)
        assert same(compiled(x, made), fn(x, made))
    assert core.stats()["graphs"] == 4


def test_a_deque_class_that_iterates_in_its_own_way_holds_what_it_holds():
    class Backwards(collections.deque):
        def __iter__(self):
            return reversed(self)

    def fn(x, items):
        return x + items[0]

    made = Backwards([torch.ones(2), torch.zeros(2)])
    assert same(core.compile(fn, backend="eager")(torch.ones(2), made), fn(torch.ones(2), made))


@pytest.mark.parametrize("bound", [None, 3])
def test_a_deque_that_is_only_appended_to_needs_one_entry_however_it_grows(backend, bound):
    def build():
        seen = collections.deque([1.0], maxlen=bound)

        def fn(x):
            seen.append(2.5)
            seen.extend((x.shape[0], x + 1))
            return x * 2

        return fn, (torch.ones(2),), lambda: list(seen)

    agrees(build, backend, calls=4, graphs=1)
    assert core.stats()["recompiles"] == 0


def test_a_number_of_the_data_that_a_deque_keeps_needs_no_entry_of_its_own():
    losses = collections.deque(maxlen=4)

    def fn(x):
        losses.append((x * 2).sum().item())
        return x + 1

    compiled = core.compile(fn, backend="eager")
    for turn in range(6):
        compiled(torch.full((2,), float(turn)))
    assert list(losses) == [8.0, 12.0, 16.0, 20.0]
    stats = core.stats()
    assert (stats["recompiles"], stats["breaks"]) == (0, 1)


def test_what_was_appended_to_a_deque_is_behind_what_it_held_when_that_is_read(backend):
    def build():
        window = collections.deque([1.0, 2.0, 3.0], maxlen=3)

        def fn(x):
            window.append(4.0)
            window.append(x.sum())
            return x + window[0] + len(window), window.popleft()

        return fn, (torch.ones(2),), lambda: list(window)

    agrees(build, backend, calls=3, graphs=None)


def test_an_iterator_of_a_deque_sees_what_is_appended_behind_its_back():
    held = collections.deque([1.0])

    def fn(x):
        turns = iter(held)
        held.append(2.0)
        try:
            next(turns)
        except RuntimeError:
            return x + 1
        return x

    assert torch.equal(core.compile(fn, backend="eager")(torch.ones(2)), torch.ones(2) + 1)
    assert list(held) == [1.0, 2.0]
