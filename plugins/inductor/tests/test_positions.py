"""Positions of extremes: the first of equal ones, the first NaN, along rows, across them and over everything."""

from __future__ import annotations

import pytest
import torch
from compiled_graphs import compiled

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.int8,
)
WAYS = {
    "along rows": lambda x: (x.argmax(-1), x.argmin(-1)),
    "across rows": lambda x: (x.argmax(0), x.argmin(0)),
    "over everything": lambda x: (x.argmax(), x.argmin()),
    "with the values": lambda x: (*x.max(-1), *x.min(0)),
    "of a computed tensor": lambda x: (*(x * 2 + 1).max(-1), (x + x).argmin(0)),
    "kept dimensions": lambda x: (x.argmax(1, keepdim=True), x.max(0, keepdim=True).indices),
}


def values(dtype, rows, columns):
    generator = torch.Generator().manual_seed(rows * columns)
    x = torch.randint(0, 9, (rows, columns), generator=generator).to(dtype)  # many equal ones
    if dtype.is_floating_point:
        x[0, columns // 2 :] = float("nan")
        x[-1] = float("-inf")
        x[1 % rows, ::2] = float("inf")
        x[:, -1] = -0.0
    return x


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_the_first_of_equal_extremes_is_found_by_loops_alone(way, dtype):
    fn = WAYS[way]
    for rows, columns in ((3, 5), (70, 131), (9, 1300)):
        x = values(dtype, rows, columns)
        program = compiled(fn, x)
        assert program.program.extern_calls == 0
        for found, expected in zip(program.call(x), fn(x), strict=True):
            assert found.dtype == expected.dtype
            assert torch.equal(found.double().nan_to_num(99.0), expected.double().nan_to_num(99.0))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int64), ids=str)
def test_positions_in_rows_are_found_in_vectors_of_one_kernel(dtype):
    x = values(dtype, 64, 256)
    program = compiled(lambda x: x.argmax(-1), x)
    assert program.counts == (1, 0)
    assert "reduction(min:" in program.program.cpp_source


def test_positions_of_rows_of_unknown_length_are_those_of_eager():
    def fn(x):
        return (*x.max(-1), x.argmin(0))

    x, y = values(torch.float32, 6, 40), values(torch.float32, 9, 51)
    program = compiled(fn, x, dynamic=True)
    for given in (x, y):
        for found, expected in zip(program.call(given), fn(given), strict=True):
            assert torch.equal(found.double().nan_to_num(99.0), expected.double().nan_to_num(99.0))


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_turned_16_bit_floats_keep_their_bits(dtype):
    bits = torch.randint(-(2**15), 2**15, (67, 90), dtype=torch.int16, generator=torch.Generator().manual_seed(3))
    x = bits.view(dtype)
    program = compiled(lambda x: x.t().contiguous(), x)
    (found,) = program.call(x)
    assert torch.equal(found.view(torch.int16), bits.t())
    assert "turn8_short(" in program.program.cpp_source
    assert "store_" not in program.program.cpp_source
