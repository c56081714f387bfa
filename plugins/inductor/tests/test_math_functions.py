"""The vectorised functions in units of the last place: float32 against float64, float64 against 40 digits."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import compiled


def sweep(low, high, n=60_000):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(n, generator=generator) * (high - low) + low


def powers(low, high):
    return torch.exp2(sweep(low, high))


def both(x):
    return torch.cat([x, -x])


QUARTERS = (torch.arange(40_000, dtype=torch.float64) * (math.pi / 2)).float()
"""The numbers next to multiples of pi/2, where most digits cancel."""

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
    "sin": (torch.sin, both(torch.cat([powers(-140, 16), sweep(0, 10), QUARTERS, powers(16, 127)[:3000]])), 1.5),
    "cos": (torch.cos, both(torch.cat([powers(-140, 16), sweep(0, 10), QUARTERS, powers(16, 127)[:3000]])), 1.5),
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


def wide_sweep(low, high, n=1500):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(n, generator=generator, dtype=torch.float64) * (high - low) + low


def wide_powers(low, high):
    return torch.exp2(wide_sweep(low, high))


WIDE = {
    "exp": (torch.cat([wide_sweep(-740, 709), both(wide_powers(-50, 6))]), mpmath.exp, 1.0),
    "expm1": (torch.cat([wide_sweep(-40, 700), both(wide_powers(-60, 3))]), mpmath.expm1, 1.5),
    "log": (torch.cat([wide_powers(-1070, 1020), wide_sweep(0.5, 2)]), mpmath.log, 1.0),
    "sigmoid": (
        torch.cat([wide_sweep(-700, 40), both(wide_powers(-30, 5))]),
        lambda x: 1 / (1 + mpmath.exp(-x)),
        2.5,
    ),
    "tanh": (both(torch.cat([wide_powers(-100, 5), wide_sweep(0, 10)])), mpmath.tanh, 1.3),
    "erf": (both(torch.cat([wide_powers(-100, 3), wide_sweep(0, 6.5)])), mpmath.erf, 1.5),
}
EDGES = (0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1e-310, 1e308, -1e308)


@pytest.mark.parametrize("name", WIDE)
def test_error_of_double_precision_in_units_of_the_last_place(name):
    x, exact, bound = WIDE[name]
    program = compiled(getattr(torch, name), x)
    (got,) = program.call(x)
    assert f"{name}_d(" in program.program.cpp_source or "log_wide(" in program.program.cpp_source
    with mpmath.workdps(40):
        for given, found in zip(x.tolist(), got.tolist()):
            value = exact(mpmath.mpf(given))
            assert abs(mpmath.mpf(found) - value) <= bound * math.ulp(float(value)), given


@pytest.mark.parametrize("name", WIDE)
def test_special_values_of_double_precision_come_out_as_in_eager(name):
    x = torch.tensor(EDGES, dtype=torch.float64)
    (got,) = compiled(getattr(torch, name), x).call(x)
    expected = getattr(torch, name)(x)
    same = (got == expected) & (got.signbit() == expected.signbit()) | got.isnan() & expected.isnan()
    assert same.all()


def test_the_error_function_beside_one_is_as_near_as_eagers():
    x = torch.cat([both(powers(-30, 4)), both(sweep(0, 6)), torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan])])
    program = compiled(F.gelu, x)
    (got,) = program.call(x)
    assert "erf_beside_one_f(" in program.program.cpp_source
    exact, eager = F.gelu(x.double()), F.gelu(x)
    ordinary = torch.isfinite(exact)  # of infinity eager's vectors make NaN, its float64 infinity
    assert torch.equal(got[~ordinary].nan_to_num(7.0), exact[~ordinary].float().nan_to_num(7.0))
    ours, theirs = ((v.double() - exact)[ordinary].abs().max() for v in (got, eager))
    assert ours <= theirs


def test_the_shares_of_a_softmax_come_from_the_short_exponential():
    x = torch.cat([sweep(-200, 0, 4000), torch.tensor([0.0, -math.inf, -104.0, -87.5, -88.0])]).reshape(-1, 89)
    program = compiled(lambda x: F.softmax(x, -1), x)
    (got,) = program.call(x)
    assert "exp_beside_one_f(" in program.program.cpp_source
    exact = F.softmax(x.double(), -1)
    assert ((got.double() - exact).abs() <= 3e-7 * exact + 1e-37).all()
    assert (got[x == -math.inf] == 0).all()


def test_silu_of_numbers_of_any_size_is_as_near_as_eagers():
    x = torch.cat([sweep(-100, 100), both(powers(-40, 6)), torch.tensor([-88.6, -88.8, 0.0, -0.0, math.nan])])
    program = compiled(lambda x: F.silu(x), x)
    (got,) = program.call(x)
    assert "exp_and_one_f(" in program.program.cpp_source
    exact = F.silu(x.double()).float()
    assert torch.allclose(got, exact, rtol=4e-7, atol=1e-36, equal_nan=True)


def test_sine_and_cosine_are_loops_over_vectors_that_hand_far_numbers_to_libm():
    x = torch.randn(2053) * 10
    x[7:16] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e-42, -1e-42, 65537.0, 3e38])
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        given = x.to(dtype)
        program = compiled(lambda x: (torch.sin(x) + 1, torch.cos(x), torch.sin(x)), given)
        assert program.counts == (1, 0)
        assert "_any(" in program.program.cpp_source
        step = torch.finfo(dtype).eps
        for got, expected in zip(program.call(given), (torch.sin(given) + 1, torch.cos(given), torch.sin(given))):
            torch.testing.assert_close(got, expected, rtol=2 * step, atol=step, equal_nan=True)
        zeros = given == 0
        assert torch.equal(torch.signbit(program.call(given)[2][zeros]), torch.signbit(given[zeros]))
