"""A class attribute with `__set__` and without `__get__` sees writes, and reads come from the object."""

from __future__ import annotations

import torch

import core


class Resetting:
    def __set__(self, instance, value):
        instance.__dict__["kept"] = value
        instance.__dict__["writes"] = instance.__dict__.get("writes", 0) + 1


class Holder:
    kept = Resetting()

    def __init__(self, value):
        self.kept = value


def agrees(fn, *make, breaks=0):
    core.reset()
    compiled = core.compile(fn, backend="eager")
    for _ in range(2):
        ours, theirs = [one() for one in make], [one() for one in make]
        got, want = compiled(torch.ones(2), *ours), fn(torch.ones(2), *theirs)
        assert torch.equal(got, want)
        assert [vars(one) for one in ours] == [vars(one) for one in theirs]
    assert (core.stats()["breaks"], core.stats()["skipped"]) == (breaks, 0)


def test_an_object_from_outside_gives_what_it_holds():
    agrees(lambda x, h: x + h.kept, lambda: Holder(3))


def test_a_write_runs_the_descriptor_once():
    def fn(x, h):
        h.kept = 5
        return x + h.kept

    agrees(fn, lambda: Holder(3))


def test_an_object_made_inside_survives_a_break():
    def fn(x):
        h = Holder(3)
        print(end="")
        return x + h.kept

    agrees(fn, breaks=1)


def test_without_a_value_of_the_object_the_descriptor_itself_is_read():
    def fn(x, h):
        del h.__dict__["kept"]
        return x + isinstance(h.kept, Resetting)

    agrees(fn, lambda: Holder(3))


def test_a_metaclass_attribute_is_second_to_that_of_the_class():
    class Meta(type):
        kept = Resetting()

    class Made(metaclass=Meta):
        kept = 4

    agrees(lambda x: x + Made.kept)
