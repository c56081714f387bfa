"""The dict of an object's attributes, changed by itself: what is in it afterwards, in which order, with one graph."""

import functools
import types

import torch

import core

X = torch.ones(2)


class Thing:
    def __init__(self):
        self.a = 1
        self.b = 2

    @functools.cached_property
    def known(self):
        return 5


class Watched(Thing):
    log: list = []

    def __delattr__(self, name):
        self.log.append(name)
        super().__delattr__(name)

    @property
    def shown(self):
        return self.__dict__["shown"] * 2


def check(change, cls=Thing):
    """`change(thing, x)` in one graph; what is in the dict afterwards is looked at in its order."""

    def program(thing, x):
        return change(thing, x), x + 1

    def with_order(thing, x):
        Watched.log.clear()
        result = subject(thing, x)
        return result, list(thing.__dict__.items()), list(Watched.log)

    def eager(thing, x):
        Watched.log.clear()
        result = program(thing, x)
        return result, list(thing.__dict__.items()), list(Watched.log)

    core.reset()
    subject = core.compile(program, backend="eager", fullgraph=True)
    for _ in range(3):
        assert str(with_order(cls(), X)) == str(eager(cls(), X))
    stats = core.stats()
    assert (stats["graphs"], stats["breaks"], stats["recompiles"]) == (1, 0, 0)


def test_an_attribute_set_and_taken_out_again_was_never_there():
    def change(thing, x):
        thing.__dict__["new"] = 3
        return thing.__dict__.pop("new"), thing.known, thing.__dict__.pop("known", None)

    check(change)


def test_an_attribute_deleted_and_set_again_comes_last():
    def by_dict(thing, x):
        del thing.__dict__["a"]
        thing.__dict__["a"] = 7
        return list(thing.__dict__)

    def by_name(thing, x):
        del thing.a
        thing.c = 1
        thing.a = 8
        return list(thing.__dict__.items())

    check(by_dict)
    check(by_name)


def test_clear_popitem_and_updates_change_the_object():
    def change(thing, x):
        last = thing.__dict__.popitem()
        thing.__dict__.__delitem__("a")
        space = thing.__dict__
        space |= {"z": 1}
        return last, list(thing.__dict__)

    def clear(thing, x):
        thing.__dict__.clear()
        thing.again = 1
        try:
            return thing.a
        except AttributeError as error:
            return str(error)

    check(change)
    check(clear)


def test_a_deletion_runs_the_class_s_own_method_once():
    def change(thing, x):
        del thing.a
        return len(thing.log)

    check(change, Watched)


def test_a_key_behind_a_property_goes_to_the_dict():
    def change(thing, x):
        thing.__dict__["shown"] = 4
        return thing.shown

    def removed(thing, x):
        thing.__dict__["shown"] = 4
        del thing.__dict__["shown"]
        return list(thing.__dict__)

    check(change, Watched)
    check(removed, Watched)


class ByValue:
    def __init__(self, **given):
        for name in given:
            setattr(self, name, given[name])

    def __eq__(self, other):
        return type(self) is type(other) and vars(self) == vars(other)


def test_instance_dicts_are_compared_with_one_another_and_with_dicts():
    first, second = ByValue(x=1, y=(2,)), ByValue(x=1, y=(2,))

    def fn(t):
        made = ByValue(x=1, y=(2,))
        equal = first == second, second == made, made == ByValue(x=1, y=(2,)), made in [first], [first] == [second]
        other = first != second, first == ByValue(x=2, y=(2,)), vars(first) == {"x": 1}, vars(first) != vars(made)
        kept = vars(first) is vars(first), vars(first) is first.__dict__, vars(first) is vars(second)
        return t + 1, equal, other, kept, vars(first) | vars(ByValue(z=3))

    got, want = core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2)), fn(torch.ones(2))
    assert got[1:] == want[1:] == ((True,) * 5, (False,) * 4, (True, True, False), {"x": 1, "y": (2,), "z": 3})


def test_mapping_proxies_are_compared_by_what_they_show():
    held = {"x": 1}

    def fn(t):
        shown = types.MappingProxyType(held)
        equal = shown == types.MappingProxyType({"x": 1}), shown == {"x": 1}, {"x": 1} == shown
        return t + 1, equal, (shown != types.MappingProxyType({"x": 2}), shown == 3)

    got, want = core.compile(fn, backend="eager", fullgraph=True)(torch.ones(2)), fn(torch.ones(2))
    assert got[1:] == want[1:] == ((True,) * 3, (True, False))
