"""The vectorised float32 functions, in units of the last place against float64."""

from __future__ import annotations

import pytest
import torch
from compiled_graphs import compiled


def sweep(low, high, n=60_000):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(n, generator=generator) * (high - low) + low


def powers(low, high):
    return torch.exp2(sweep(low, high))


def both(x):
    return torch.cat([x, -x])


CASES = {
    "exp": (torch.exp, torch.cat([sweep(-110, 95), both(powers(-30, 6))]), 1.0),
    "exp2": (torch.exp2, torch.cat([sweep(-155, 130), both(powers(-30, 6))]), 1.0),
    "expm1": (torch.expm1, torch.cat([sweep(-20, 95), both(powers(-60, 6))]), 1.6),
    "log": (torch.log, torch.cat([powers(-148, 127.9), sweep(0.5, 2)]), 1.0),
    "log2": (torch.log2, torch.cat([powers(-148, 127.9), sweep(0.5, 2)]), 0.6),
    "log10": (torch.log10, torch.cat([powers(-148, 127.9), sweep(0.5, 2)]), 0.6),
    "log1p": (torch.log1p, torch.cat([powers(-100, 127), sweep(-1, 2), -powers(-60, -0.001)]), 0.6),
    "tanh": (torch.tanh, both(torch.cat([powers(-100, 5), sweep(0, 10)])), 1.2),
    "erf": (torch.erf, both(torch.cat([powers(-100, 3), sweep(0, 5)])), 1.3),
    "sigmoid": (torch.sigmoid, torch.cat([sweep(-85, 90), both(powers(-30, 6))]), 2.5),
}


@pytest.mark.parametrize("name", CASES)
def test_error_in_units_of_the_last_place(name):
    f, x, bound = CASES[name]
    (got,) = compiled(f, x).call(x)
    exact = f(x.double())
    rounded = exact.float()
    finite = torch.isfinite(rounded)
    assert torch.equal(got[~finite].nan_to_num(7.0), rounded[~finite].nan_to_num(7.0))
    step = (torch.nextafter(rounded.abs(), torch.tensor(float("inf"))) - rounded.abs()).double()
    error = ((got.double() - exact).abs() / step)[finite]
    assert error.max() <= bound


def test_half_conversions_are_exact_for_every_bit_pattern():
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        x = bits.view(dtype)
        (wide,) = compiled(lambda x: x.float(), x).call(x)
        assert torch.equal(wide.nan_to_num(7.0), x.float().nan_to_num(7.0))
        between = torch.nextafter(x.float().nan_to_num(0.0), torch.tensor(float("inf")))
        values = torch.cat([x.float().nan_to_num(0.0), between, between * 1.0004, between * 1.003])
        assert torch.equal(narrowed(values, dtype), values.to(dtype))


def narrowed(values, dtype):
    return compiled(lambda v: v.to(dtype), values).call(values)[0]
