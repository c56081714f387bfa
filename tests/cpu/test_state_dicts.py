"""Module.state_dict and load_state_dict inside captured functions; attributes of the dicts that they make."""

from __future__ import annotations

import collections
import copy

import torch

import core

X = torch.arange(6.0).reshape(2, 3)


def test_a_state_dict_is_read_in_the_graph():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))

    def fn(x):
        state = module.state_dict()
        return x @ state["0.weight"].T, list(state), dict(state._metadata)

    core.reset()
    fast = core.compile(fn, backend="eager")
    for _ in range(2):
        (got, *names), (want, *expected) = fast(X), fn(X)
        assert torch.equal(got, want) and names == expected
    assert (core.stats()["breaks"], core.stats()["graphs"]) == (0, 1)


def test_a_state_dict_is_given_back_with_its_metadata():
    module = torch.nn.Linear(3, 3)
    core.reset()
    got = core.compile(lambda: module.state_dict(), backend="eager")()
    want = module.state_dict()
    assert type(got) is collections.OrderedDict and list(got) == list(want) and got._metadata == want._metadata
    assert all(torch.equal(got[name], want[name]) for name in want)
    torch.nn.Linear(3, 3).load_state_dict(got)
    assert core.stats()["breaks"] == 0


def test_a_state_dict_is_loaded_in_the_graph():
    source, target = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def fn(x):
        target.load_state_dict(source.state_dict())
        return target(x)

    core.reset()
    fast = core.compile(fn, backend="eager")
    for _ in range(2):
        torch.nn.init.normal_(source.weight)
        assert torch.equal(fast(X), source(X))
    assert core.stats()["breaks"] == 0


def test_attributes_of_an_ordered_dict_are_copied_as_python_copies_them():
    def fn(x):
        made = collections.OrderedDict(a=1)
        made.note = [2]
        shallow, deep, plain = copy.copy(made), copy.deepcopy(made), made.copy()
        return made, shallow, shallow.note is made.note, deep, deep.note is made.note, hasattr(plain, "note")

    core.reset()
    got, want = core.compile(fn, backend="eager")(X), fn(X)
    assert got == want
    assert [vars(one) for one in (got[0], got[1], got[3])] == [vars(one) for one in (want[0], want[1], want[3])]
