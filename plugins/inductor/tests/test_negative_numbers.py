"""Whole numbers that change from call to call and may be negative, unlike sizes, in kernels."""

from __future__ import annotations

import pytest
import torch

import core

PROGRAMS = {
    "floor division": lambda x, n: x * (n // 2),
    "remainder": lambda x, n: x * (n % 3),
    "absolute value": lambda x, n: x * abs(n),
    "a size of an absolute value": lambda x, n: x.new_full((abs(n) + 1,), 1.0),
    "the larger of two": lambda x, n: x * torch.sym_max(n, 0) + x * max(n, -n),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_negative_numbers_are_calculated_with_as_in_eager(name):
    fn = PROGRAMS[name]
    compiled = core.compile(fn, backend="inductor")
    for number in (2, 3, -3, 4, -5, 0, 7):
        torch.testing.assert_close(compiled(torch.ones(2), number), fn(torch.ones(2), number))
    assert core.stats()["kernels"] > 0 and core.stats()["breaks"] == 0
