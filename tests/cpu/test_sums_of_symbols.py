"""Sums of symbolic numbers stay sums when a part of them becomes known."""

from __future__ import annotations

import pytest
import torch

import core
from core import torch_compat


def symbols(*values):
    env = torch_compat.shape_env(scalar_outputs=False)
    source = torch_compat.input_source_class()
    return [torch_compat.symbolic_scalar(env, value, source(index)) for index, value in enumerate(values)]


def test_a_sum_that_became_a_number_is_added_to():
    a, b = symbols(9, 0)
    total = a + b
    assert int(total) == 9  # from here on b is 9 - a
    further = total + b
    assert further.node.expr == 9 + b.node.expr
    assert int(further) == 9


def test_a_sum_that_became_a_product_is_added_to():
    a, b, c = symbols(5, 5, 7)
    total = a + b
    assert a == b  # from here on the sum is 2 * a
    assert int(total + c) == 17
    assert int(c + total) == 17
    assert int(total + total) == 20


def test_long_sums_are_still_merged_by_their_order():
    numbers = symbols(*range(2, 12))
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    assert total.node._optimized_summation
    assert total.node.expr == sum(number.node.expr for number in numbers)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_sizes_of_a_program_that_knows_a_sum(backend):
    def fn(x, y, z):
        rows = x.shape[0] + y.shape[0]
        if rows == 9:
            x = x + 1
        return x.new_zeros(rows + y.shape[0] + z.shape[0]), x

    compiled = core.compile(fn, backend=backend, dynamic=True, fullgraph=True)
    core.reset()
    for sizes in ((5, 4, 3), (6, 3, 2), (2, 7, 5), (4, 4, 4)):
        given = [torch.ones(size) for size in sizes]
        for got, want in zip(compiled(*given), fn(*given)):
            assert torch.equal(got, want)
    assert core.stats()["graphs"] == 2  # where the rows are nine, and where they aren't


FLAGS = 5


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_numbers_made_of_bits_compare_by_their_difference(backend):
    def fn(x):
        low = FLAGS & FLAGS
        high = (FLAGS | 1) + 1
        if low < low or high < (FLAGS | 1) or (FLAGS ^ 3) > (FLAGS ^ 3):
            return x - 1, low
        return (x + 1, high) if low <= low and high > high - 1 else (x, low)

    compiled = core.compile(fn, backend=backend, fullgraph=True)
    core.reset()
    for value in (5, 6, 8, 9, 0):
        globals()["FLAGS"] = value
        got, want = compiled(torch.zeros(2)), fn(torch.zeros(2))
        assert torch.equal(got[0], want[0]) and got[1] == want[1] and type(got[1]) is int
    assert core.stats()["graphs"] == 2
