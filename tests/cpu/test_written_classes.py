"""Class attributes that the compiled function sets are seen by objects, subclasses and later calls."""

from __future__ import annotations

import torch
from compare import same

import core

X = torch.ones(3)


def fresh():
    class Base:
        scale = 2
        made = 0

        @property
        def scaled(self):
            return X * self.scale

    class Derived(Base):
        def bigger(self):
            return super().scale + 1

    return Base, Derived


def agrees(program, calls=3):
    """Run eager and compiled, each with classes of its own; the totals of the compiled runs."""
    results = []
    for compiler in (lambda fn: fn, lambda fn: core.compile(fn, backend="eager")):
        base, derived = fresh()
        fn = compiler(program)
        found = []
        for _ in range(calls):
            found.append((fn(X, base, derived), base.scale, base.made))
        results.append(found)
    assert same(*results), results
    return core.stats()


def test_an_object_sees_what_its_class_was_given():
    def fn(x, base, derived):
        base.scale = 5
        return x + base().scaled + base().scale

    stats = agrees(fn)
    assert (stats["graphs"], stats["breaks"]) == (1, 0)


def test_a_subclass_and_super_see_what_the_base_was_given():
    def fn(x, base, derived):
        base.scale = 7
        return x + derived.scale + derived().scale

    def by_super(x, base, derived):
        base.scale += 1
        return x + derived().bigger()

    assert agrees(fn)["breaks"] == 0
    agrees(by_super)


def test_an_attribute_of_the_object_hides_that_of_the_class():
    def fn(x, base, derived):
        thing = derived()
        thing.scale = 3
        base.scale = 9
        return x + thing.scale

    assert agrees(fn)["breaks"] == 0


def test_a_counter_of_the_class_reached_through_an_object_is_guarded():
    def fn(x, base, derived):
        type(derived()).made += 1
        base.made += 10
        return x + base.made + derived.made

    agrees(fn, calls=4)


def test_a_counter_that_others_change_between_calls():
    base, _ = fresh()

    def fn(x, thing):
        type(thing).made += 1
        return x + 1

    compiled = core.compile(fn, backend="eager")
    for call in range(1, 5):
        base.made = call * 10
        compiled(X, base())
        assert base.made == call * 10 + 1
