"""Rows of float16 are converted in blocks around the loop: of any length, and only where the loop walks them."""

from __future__ import annotations

import pytest
import torch
from compiled_graphs import compiled

LENGTHS = (1, 7, 31, 32, 33, 47, 511, 512, 513, 1039)


def halves(*sizes):
    return (torch.randint(-64, 65, sizes) / 16).half()  # sums of a few thousand of them are exact


def conversions(program, kind="_block"):
    """(rows read, rows stored) in blocks of lanes, with kind="s" in what is left of a row, that the kernels' text asks
    for; functions that convert aside."""
    text = program.program.cpp_source.partition('extern "C" int')[2]
    return tuple(text.count(f" {way}_float16{kind}(") for way in ("load", "store"))


def equal(program, fn, *args):
    expected = fn(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = program.call(*args)
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("length", LENGTHS)
def test_elements_of_a_row_of_any_length_come_out_as_eagers(length):
    def fn(x, y):
        return torch.relu(x) * 2 + y, (x - y).float()

    x, y = halves(length), halves(length)
    program = compiled(fn, x, y)
    assert equal(program, fn, x, y)
    assert conversions(program) == ((2, 1) if length >= 32 else (0, 0))
    assert conversions(program, "s") == ((2, 1) if length >= 32 and length % 16 else (0, 0))


@pytest.mark.parametrize("length", LENGTHS)
def test_folds_along_rows_and_across_them_come_out_as_eagers(length):
    def fn(x):
        return x.sum(-1), x.amax(-1), x.float().sum(0), (x - x.amax(-1, keepdim=True)).abs()

    x = halves(40, length)
    program = compiled(fn, x)
    assert equal(program, fn, x)
    assert length < 32 or conversions(program)[0] > 0


def test_a_row_that_is_not_walked_element_by_element_is_converted_in_the_loop():
    def fn(x, y):
        return x[:, ::2] + y

    x, y = halves(8, 128), halves(8, 64)
    program = compiled(fn, x, y)
    assert equal(program, fn, x, y)
    assert conversions(program) == (1, 1)


def test_joined_and_padded_rows_come_out_as_eagers():
    def fn(x, y):
        return torch.cat([x, y * 2], 1), torch.nn.functional.pad(x, (3, 5)) - 1

    x, y = halves(5, 70), halves(5, 33)
    assert equal(compiled(fn, x, y), fn, x, y)


def test_an_intermediate_written_over_its_operand_comes_out_as_eagers():
    def fn(x, y):
        z = x @ y
        return torch.relu(z + 1) - z

    x, y = halves(64, 64), halves(64, 64)
    program = compiled(fn, x, y)
    (found,) = program.call(x, y)
    assert torch.equal(found, fn(x, y))


def test_many_buffers_are_converted_in_the_loop():
    def fn(*xs):
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        return total

    xs = [halves(100) for _ in range(12)]
    program = compiled(fn, *xs)
    assert equal(program, fn, *xs)
    assert conversions(program) == (0, 0)
