"""Looking ahead in iterators of builtin types: nothing is used up, and guards count from where the iterator stands."""

from __future__ import annotations

import pytest

from core import _C
from core.guards import FrameValues, Guard, ItemAheadSource, ItemsLeft, IteratorPartSource, LocalSource
from core.guards.checks import Equals
from core.guards.tree import build_program

IT = LocalSource("it", 0)
MAKERS = {
    "list": lambda: iter([1, 2, 3]),
    "tuple": lambda: iter((1, 2, 3)),
    "range": lambda: iter(range(1, 4)),
    "huge range": lambda: iter(range(1 << 70, (1 << 70) + 3)),
    "str": lambda: iter("abc"),
    "bytes": lambda: iter(b"abc"),
    "reversed list": lambda: reversed([1, 2, 3]),
    "reversed tuple": lambda: reversed((1, 2, 3)),
    "dict": lambda: iter({1: "a", 2: "b", 3: "c"}),
    "dict items": lambda: iter({1: "a", 2: "b", 3: "c"}.items()),
    "reversed dict values": lambda: reversed({1: "a", 2: "b", 3: "c"}.values()),
    "set": lambda: iter({1, 2, 3}),
}


def holds(guards, *values):
    program, _ = build_program(guards)
    return program.check(values, {}, {}, None) == -1


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("taken", range(4))
def test_items_ahead_are_those_that_the_iterator_then_gives(make, taken):
    iterator = make()
    for _ in range(taken):
        next(iterator)
    ahead = [_C.iterator_ahead(iterator, n) for n in range(_C.iterator_left(iterator))]
    with pytest.raises(LookupError):
        _C.iterator_ahead(iterator, len(ahead))
    assert ahead == list(iterator)
    assert _C.iterator_left(iterator) == 0


@pytest.mark.parametrize("taken", range(4))
def test_the_count_of_items_left_decides(taken):
    iterator = iter([1, 2, 3])
    for _ in range(taken):
        next(iterator)
    for n in range(4):
        assert holds([Guard(IT, ItemsLeft(n, more=True), None)], iterator) == (3 - taken > n)
        assert holds([Guard(IT, ItemsLeft(n, more=False), None)], iterator) == (3 - taken <= n)


def test_a_guard_on_an_item_ahead_follows_the_iterator():
    guard = Guard(ItemAheadSource(IT, 1), Equals(3), None)
    iterator = iter([1, 2, 3])
    assert not holds([guard], iterator)
    next(iterator)
    assert holds([guard], iterator)
    next(iterator)
    assert not holds([guard], iterator)
    assert list(iterator) == [3]


def test_parts_of_an_enumerate_are_its_iterator_and_its_number():
    numbered = enumerate([4, 5, 6], 7)
    next(numbered)
    frame = FrameValues((numbered,), {}, {})
    assert IteratorPartSource(IT, 1).resolve(frame) == 8
    assert ItemAheadSource(IteratorPartSource(IT, 0), 0).resolve(frame) == 5
    assert holds([Guard(IteratorPartSource(IT, 1), Equals(8), None)], numbered)
    assert next(numbered) == (8, 5)


def test_what_is_no_iterator_or_changed_under_it_is_a_miss():
    table = {1: 1, 2: 2}
    walking = iter(table)
    next(walking)
    table[3] = 3
    for value in (5, None, [1, 2], walking, (i for i in "ab")):
        for check in (ItemsLeft(0, more=True), ItemsLeft(0, more=False)):
            assert not holds([Guard(IT, check, None)], value)
        assert not holds([Guard(ItemAheadSource(IT, 0), Equals(1), None)], value)


def test_a_check_says_what_it_assumes_and_what_is_different():
    check = ItemsLeft(2, more=True)
    assert check.describe("it") == "it has more than 2 items left"
    assert check.explain(iter([1]), "it") == "it had more than 2 items left, now 1"
    assert ItemsLeft(0, more=False).describe("it") == "it has at most 0 items left"


def test_a_value_on_the_stack_of_a_resume_function_is_named_as_such():
    assert LocalSource(".stack1", 1).name() == "stack[1]"
    assert LocalSource("stack1", 1).name() == "L['stack1']"
