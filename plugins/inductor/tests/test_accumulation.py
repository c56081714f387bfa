"""Additions at positions that tensors hold: eager's bits and errors, from a kernel in place of a call."""

from __future__ import annotations

import pytest
import torch
from compiled_graphs import check, compiled

KERNELS = {
    "slices": lambda x, i, v: x.index_add(0, i, v),
    "slices of a later dimension": lambda x, i, v: x.transpose(0, 1).contiguous().index_add(1, i, v.transpose(0, 1)),
    "slices of what is computed": lambda x, i, v: (x * 2).index_add(0, (i + 1) % 5, v.exp() + 1) * 0.5,
    "slices for columns": lambda x, i, v: x.t().contiguous().t().index_add(0, i, v),
    "from the end": lambda x, i, v: x.index_put((i - 5,), v, accumulate=True),
    "of the last dimension": lambda x, i, v: torch.ops.aten.index_put(x, [None, i % 3], v[:5, :1].expand(5, 40), True),
    "elements": lambda x, i, v: x.scatter_add(0, (i[:, None] + torch.arange(3)) % 5, v),
    "elements in rows": lambda x, i, v: x.scatter_add(1, (i[:5, None] + torch.arange(40)) % 3, v[:5, :1].expand(5, 40)),
    "an expanded index": lambda x, i, v: x.scatter_add(0, i[:, None].expand(40, 3), v),
}


def given(dtype=torch.float32):
    generator = torch.Generator().manual_seed(4)
    i = torch.randint(0, 5, (40,), generator=generator)
    x, v = torch.randn(5, 3, generator=generator) * 9, torch.randn(40, 3, generator=generator) * 9
    return x.to(dtype), i, v.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("case", KERNELS)
def test_additions_come_one_after_the_other_as_in_eager(case, dtype):
    x, i, v = given(dtype)
    if case == "slices of what is computed" and not dtype.is_floating_point:
        return
    built = check(KERNELS[case], x, i, v, tolerance=1e-6 if "computed" in case else 0)
    assert built.counts[1] == 0 and "checked_index(" in built.program.cpp_source


def test_large_additions_are_shared_among_threads_without_a_change():
    generator = torch.Generator().manual_seed(4)
    i = torch.randint(0, 50, (300,), generator=generator)
    x, v = torch.randn(50, 300, generator=generator), torch.randn(300, 300, generator=generator)
    outer = torch.randn(4, 50, 30, generator=generator), torch.randn(4, 300, 30, generator=generator)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            built = check(
                lambda x, i, v: (x.index_add(0, i, v), x.scatter_add(0, v.long() % 50, v)), x, i, v, tolerance=0
            )
            assert "parallel for" in built.program.cpp_source
            check(lambda x, i, v: x.index_add(1, i, v), outer[0], i, outer[1], kernels=1, tolerance=0)
    finally:
        torch.set_num_threads(threads)


LEFT = {
    "with a factor": lambda x, i, v: x.index_add(0, i, v, alpha=2),
    "of 16-bit floats": lambda x, i, v: x.half().index_add(0, i, v.half()),
    "of a broadcast row": lambda x, i, v: x.index_put((i,), v[0], accumulate=True),
    "at two coordinates": lambda x, i, v: x.index_put((i, i % 3), v[:, 0], accumulate=True),
    "of fewer columns": lambda x, i, v: x.scatter_add(0, i[:, None].expand(40, 2), v[:, :2]),
    "into columns": lambda x, i, v: torch.ops.aten.index_put(x.t().contiguous().t(), [i], v, True),
}


@pytest.mark.parametrize("case", LEFT)
def test_other_additions_are_eagers(case):
    assert check(LEFT[case], *given(), tolerance=0).counts[1] == 1


RANGES = {
    "slices": lambda x, i, v: x.index_add(0, i, v),
    "numbers": lambda x, i, v: x[:, 0].index_add(0, i, v[:, 0]),
    "from the end": lambda x, i, v: x.index_put((i,), v, accumulate=True),
    "elements": lambda x, i, v: x.scatter_add(0, i[:, None] + torch.zeros(3, dtype=torch.int64), v),
    "an expanded index": lambda x, i, v: x.scatter_add(0, i[:, None].expand(40, 3), v),
}


@pytest.mark.parametrize("case", RANGES)
@pytest.mark.parametrize("bad", [5, -6, 10**12])
def test_positions_out_of_range_raise_eagers_class(case, bad):
    x, i, v = given()
    program = compiled(RANGES[case], x, i, v)
    assert program.counts[1] == 0
    wrong = i.clone()
    wrong[7] = bad
    with pytest.raises((IndexError, RuntimeError)) as expected:
        RANGES[case](x, wrong, v)
    with pytest.raises(expected.type):
        program.call(x, wrong, v)
