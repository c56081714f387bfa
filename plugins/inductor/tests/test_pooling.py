"""Pooling is written out in the loop of its result: eager's values, places and bits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import compiled

AVERAGES = {
    "two by two": lambda x: F.avg_pool2d(x, 2),
    "overlapping": lambda x: F.avg_pool2d(x, 3, 1),
    "with a border that counts": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "by a divisor of its own": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "of long windows": lambda x: F.avg_pool2d(x, (1, 3), (2, 1), (0, 1)),
    "of what is computed": lambda x: F.avg_pool2d(x.abs() - 1, 2) * 2,
}
LARGEST = {
    "two by two": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "with a border": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "spread out": lambda x: F.max_pool2d(x, 2, 1, 1, 2, return_indices=True),
    "without places": lambda x: F.max_pool2d(torch.relu(x), 3, 1, 1),
}
LEFT = {
    "a border that doesn't count": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "windows over the end": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
    "large windows": lambda x: F.avg_pool2d(x, 5),
}


def picture(dtype, *sizes):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(sizes, generator=generator)
    x.view(-1)[::7] = x.view(-1)[3]  # equal ones
    x.view(-1)[5], x.view(-1)[20] = float("nan"), float("nan")
    x[..., 0, :4] = float("-inf")
    x[..., -4:, -4:] = float("-inf")
    return x.to(dtype)


def same(found, expected):
    expected = expected if isinstance(expected, tuple) else (expected,)
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert torch.equal(
            a.nan_to_num(77.0) if a.is_floating_point() else a, b.nan_to_num(77.0) if b.is_floating_point() else b
        )


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16, torch.float16), ids=str)
@pytest.mark.parametrize("case", [*AVERAGES, *LARGEST])
def test_pools_of_small_windows_are_loops_with_eagers_bits(case, dtype):
    for fn in (table[case] for table in (AVERAGES, LARGEST) if case in table):
        for x in (picture(dtype, 2, 3, 13, 18), picture(dtype, 3, 9, 10), picture(dtype, 1, 4, 8, 6)):
            program = compiled(fn, x)
            assert program.program.extern_calls == 0
            same(program.call(x), fn(x))


def test_pools_of_channels_last_keep_their_strides():
    x = picture(torch.float32, 2, 8, 12, 10).to(memory_format=torch.channels_last)
    for fn in (*AVERAGES.values(), *LARGEST.values()):
        same(compiled(fn, x).call(x), fn(x))


@pytest.mark.parametrize("format_", [torch.contiguous_format, torch.channels_last], ids=["rows", "channels last"])
def test_elements_of_a_window_are_read_without_a_branch(format_):
    x = picture(torch.float32, 2, 32, 24, 24).to(memory_format=format_)
    for fn in (LARGEST["with a border"], AVERAGES["with a border that counts"]):
        program = compiled(fn, x)
        assert " ? in0[" not in program.program.cpp_source
        same(program.call(x), fn(x))


@pytest.mark.parametrize("case", LEFT)
def test_other_windows_are_eagers_kernel(case):
    x = picture(torch.float32, 2, 3, 13, 17)
    program = compiled(LEFT[case], x)
    assert program.program.extern_calls == 1
    same(program.call(x), LEFT[case](x))


def test_normalisation_by_the_batch_alone_is_one_kernel():
    x = torch.randn(4, 6, 9, 9, generator=torch.Generator().manual_seed(2))

    def fn(x, weight, bias):
        return torch.relu(F.batch_norm(x, None, None, weight, bias, training=True)), F.instance_norm(x)

    given = (x, torch.rand(6) + 0.5, torch.randn(6))
    program = compiled(fn, *given)
    assert program.program.extern_calls == 0
    for found, expected in zip(program.call(*given), fn(*given), strict=True):
        torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)
