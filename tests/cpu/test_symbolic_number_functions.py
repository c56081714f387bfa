"""Functions of numbers that change from call to call, in graphs for compilers."""

from __future__ import annotations

import math

import pytest
import torch
from compare import same

import core


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_rounding_of_a_float_that_changes(backend):
    def fn(x, scale):
        size = math.floor(scale * 2) + 2
        return x.new_ones(size) + math.ceil(scale) + round(scale) * x.sum() + round(scale, 1) + int(scale)

    compiled = core.compile(fn, backend=backend)
    for scale in (1.5, 2.25, 3.3, 0.7):
        assert same(compiled(torch.ones(2), scale), fn(torch.ones(2), scale)), scale
    assert core.stats()["breaks"] == 0


def test_a_relation_without_an_instruction_of_its_own_is_guarded():
    def fn(x, scale):
        return x + 1 if int(scale * 2) > 3 else x - 1

    compiled = core.compile(fn, backend="eager")
    for scale in (2.5, 0.5, 3.5, 0.25, 2.75, -1.5):
        assert same(compiled(torch.ones(2), scale), fn(torch.ones(2), scale)), scale
    assert core.stats()["graphs"] <= 4


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_product_of_a_float_with_itself_may_become_infinite(backend):
    def fn(x, scale):
        squared = scale * scale
        return x * squared, squared * squared * squared

    compiled = core.compile(fn, backend=backend)
    for scale in (1.5, 2.5, 3.0, 1e60, -1e200):
        assert same(compiled(torch.ones(2), scale), fn(torch.ones(2), scale)), scale
    assert core.stats()["graphs"] == 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_distance_of_a_size_from_a_number(backend):
    def fn(x, k):
        return x * abs(k - 5) + abs(x.shape[0] - 4), x.new_ones(abs(x.shape[0] - 9))

    compiled = core.compile(fn, backend=backend)
    for size in (3, 5, 4, 12):
        assert same(compiled(torch.ones(size), size), fn(torch.ones(size), size)), size
    assert core.stats()["breaks"] == 0
