"""Whole numbers that a function is given in tensors, read before the graph where an operation or branch needs them."""

from __future__ import annotations

import pytest
import torch

import core

X = torch.arange(12.0)


def sizes(x, n):
    return torch.zeros(n, 3) + x.sum(), x[:n], x[n:], torch.arange(n)


def sizes_in_an_element(x, lengths):
    most = lengths[0]
    return torch.zeros(2, most, 3) + 1, x.repeat_interleave(lengths[1], dim=0)


def branches(x, n):
    if n - 3 <= 2:
        return x + 1
    return x * 2 if n == 7 else x[:n]


def agrees(fn, calls, backend="eager", **options):
    core.reset()
    compiled = core.compile(fn, backend=backend, **options)
    for call in calls:
        wanted = fn(*(arg.clone() for arg in call))
        got = compiled(*(arg.clone() for arg in call))
        assert repr(got) == repr(wanted), call
    return core.stats()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_operation_that_needs_a_number_takes_it_from_its_tensor(backend):
    stats = agrees(sizes, [(X, torch.tensor(n)) for n in (3, 4, 7, 2)], backend)
    assert (stats["graphs"], stats["breaks"], stats["skipped"]) == (1, 0, 0)
    numbers = [torch.tensor(pair, dtype=torch.int32) for pair in ([3, 2], [4, 5], [1, 2], [0, 0])]
    stats = agrees(sizes_in_an_element, [(X, pair) for pair in numbers], backend)
    assert (stats["breaks"], stats["skipped"]) == (0, 0)


def test_a_branch_on_such_a_number_has_an_entry_for_each_way():
    for options in ({}, {"fullgraph": True}):
        stats = agrees(branches, [(X, torch.tensor(n)) for n in (2, 7, 9, 3, 8, 7)], **options)
        assert (stats["graphs"] >= 3, stats["breaks"]) == (True, 0), stats


def test_branches_of_many_ways_break_when_there_are_enough_entries():
    def fn(x, flags):
        return [x * 2 if flags[place] > 0 else x + place for place in range(4)]

    calls = [(X, torch.tensor([n >> place & 1 for place in range(4)])) for n in range(16)]
    stats = agrees(fn, calls)
    assert (stats["breaks"] > 0, stats["skipped"]) == (True, 0)


def test_a_number_that_was_written_to_is_not_read_before_the_graph():
    def in_place(x, n):
        n += 2
        return torch.zeros(n, 2), x + 1

    def through_another(x, n, view):
        view.fill_(5)
        return torch.zeros(n, 2), x if n > 4 else x + 1

    assert agrees(in_place, [(X, torch.tensor(n)) for n in (1, 2)])["breaks"] == 1
    core.reset()
    compiled = core.compile(through_another, backend="eager")
    for fn in (compiled, through_another):
        n = torch.tensor([2, 3])
        zeros, x = fn(X, n[1], n[1:])
        assert zeros.shape == (5, 2) and torch.equal(x, X)


def test_sums_that_overflow_and_static_numbers_are_left_to_the_data():
    def fn(x, n):
        return x + 1 if n + 1 > 0 else x - 1

    big = torch.tensor(2**63 - 1)
    agrees(fn, [(X, torch.tensor(3)), (X, big), (X, torch.tensor(-4)), (X, torch.tensor(2**31 - 1, dtype=torch.int32))])
    stats = agrees(sizes, [(X, torch.tensor(n)) for n in (3, 4)], dynamic=False)
    assert stats["breaks"] > 0


def test_a_packed_sequence_breaks_where_its_lengths_are_needed_alone():
    layer = torch.nn.LSTM(4, 5, batch_first=True)

    def fn(x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        result, _ = layer(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(result, batch_first=True)[0] * 2

    with torch.no_grad():
        stats = agrees(fn, [(torch.randn(2, 3, 4), torch.tensor(lengths)) for lengths in ([3, 2], [3, 2])])
    assert (stats["breaks"] <= 2, stats["skipped"]) == (True, 0), stats
