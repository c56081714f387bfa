"""A number that differs from call to call, beside bools, members of enums and objects of subclasses of int."""

from __future__ import annotations

import enum

import pytest
import torch

import core


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Plain(int):
    pass


class Own(int):
    def __eq__(self, other):
        return "own"

    def __radd__(self, other):
        return "radd"

    def __rsub__(self, other):
        return int(other) - int(self) + 100

    __hash__ = int.__hash__


class Wide(float):
    pass


PLAIN, OWN, WIDE = Plain(2), Own(3), Wide(2.5)


def beside_members(k):
    found = [k == Level.LOW, Level.LOW == k, k != Level.HIGH, k < Level.HIGH, k + Level.LOW, Level.HIGH - k]
    found += [k in (Level.LOW, Level.HIGH), k in [Level.HIGH], k in {Level.LOW: 1}, max(k, Level.LOW)]
    return [*found, k // Level.HIGH, divmod(k, Level.HIGH), k % Level.HIGH, Level.HIGH % (k + 1), -k == Level.LOW]


def beside_flags(k):
    return [k | Flags.A, Flags.B & k, k == Flags.A, k ^ Flags.B]


def beside_bools(k):
    found = [k == True, True == k, k in (True,), k - True, True + k, k & True, True | k, k**True]  # noqa: E712
    return [*found, k << True, min(k, True), (k > 0) == True, (k > 0) & True]  # noqa: E712


def beside_subclasses(k):
    return [k == PLAIN, PLAIN + k, k * PLAIN, k == WIDE, k * WIDE]


def beside_operators_of_their_own(k):
    return [k == OWN, OWN == k, k + OWN, k - OWN, OWN - k]


def matched(k):
    match k + 0:
        case Level.LOW:
            return ["low"]
        case Level.HIGH | 4:
            return ["high"]
        case other:
            return [other]


PROGRAMS = [beside_members, beside_flags, beside_bools, beside_subclasses, beside_operators_of_their_own, matched]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_numbers_of_other_classes_beside_a_symbolic_one(fn, dynamic):
    core.reset()

    def program(x, k):
        return x * 2, fn(k), fn(x.shape[0])

    compiled = core.compile(program, backend="eager", dynamic=dynamic)
    for k in (4, 5, 1, 3, 2, 0, 6):
        x = torch.ones(7 - k)
        _, *theirs = program(x, k)
        result, *ours = compiled(x, k)
        assert torch.equal(result, x * 2)
        assert ours == theirs
        assert [list(map(type, each)) for each in ours] == [list(map(type, each)) for each in theirs]
    assert core.stats()["breaks"] == 0
