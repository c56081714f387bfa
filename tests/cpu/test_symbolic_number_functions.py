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


WHOLE = {
    "bits": lambda y, k: y * (k & 6) + (k | 1) * (k ^ 5) + (~k) * (-k & 6),
    "shifts": lambda y, k: y * (k << 2) + (k >> 1) + (3 << (k % 5)) * (-k >> 1),
    "powers": lambda y, k: y * (2**k) + (-2) ** k + k**2 + (k % 5) ** (k % 4) + 2.0**k + k**-1,
    "quotients of negative numbers": lambda y, k: y * (-k // 4) + (k // -4) + (-k % 5) + (k % -5) + k / 7,
    "quotients by floats": lambda y, k: y * (k // 2.5) + (k % 2.5) + divmod(k, 4)[1],
    "extremes and truth": lambda y, k: y * min(k, 10, y.shape[0] * 4) + max(k, y.shape[1]) + abs(-k) + (k > 10),
    "sizes": lambda y, k: torch.full((k & 7,), 1.5) + torch.zeros(k << 1)[: k & 7] + (k >> 1),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", WHOLE)
def test_arithmetic_of_a_whole_number_that_changes(name, backend):
    program = WHOLE[name]
    compiled = core.compile(program, backend=backend, fullgraph=True)
    for k in (9, 12, 13, 7, 10):
        y = torch.randn(3, 4)
        got, want = compiled(y, k), program(y, k)
        torch.testing.assert_close(got, want)
        assert got.dtype == want.dtype
    assert core.stats()["graphs"] <= 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_negative_number_is_raised_to_a_power_as_a_whole(backend):
    def program(x, k):
        return (-2.0) ** x, x * (-2) ** k, (-0.0) ** x

    compiled = core.compile(program, backend=backend, fullgraph=True)
    for k in (3, 4, 6, 5):
        x = torch.tensor([2.0, 3.0, 4.0])
        for got, want in zip(compiled(x, k), program(x, k)):
            torch.testing.assert_close(got, want)
            assert torch.equal(got.signbit(), want.signbit())
    assert core.stats()["graphs"] == 2
