"""Arithmetic gives eager's bits: 16-bit floats round after each operation, sums of a product round once.

Left out are functions whose kernels in eager are approximations of their own (exp, sin): there a last place may differ.
"""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F

import core

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, 6e-8, 1e-5, 65504.0, float("inf"), float("-inf"), float("nan"))

SINGLE = {
    "sum with a number": lambda x, y: x + 0.3,
    "difference from a number": lambda x, y: 0.1 - x,
    "product with a number": lambda x, y: x * 0.3,
    "quotient by a number": lambda x, y: x / 3,
    "scaled sum": lambda x, y: torch.add(x, y, alpha=0.3),
    "scaled difference": lambda x, y: torch.sub(x, y, alpha=0.7),
    "reversed scaled difference": lambda x, y: torch.rsub(x, y, alpha=0.7),
    "sum and product": lambda x, y: torch.addcmul(x, y, x * 2, value=0.3),
    "sum and quotient": lambda x, y: torch.addcdiv(x, y, x.abs() + 1, value=0.3),
    "interpolation": lambda x, y: torch.lerp(x, y, 0.3),
    "interpolation from the end": lambda x, y: torch.lerp(x, y, 0.7),
    "cube": lambda x, y: x**3,
    "inverse square": lambda x, y: x**-2,
    "product with a tensor of no dimension": lambda x, y: x * torch.tensor(0.3),
    "quotient by a wide tensor of no dimension": lambda x, y: x / torch.tensor(0.3, dtype=torch.float64),
    "sum with a tensor of no dimension": lambda x, y: x + torch.tensor(0.3),
    "comparison with a number": lambda x, y: (x * 0 + 0.1 == 0.1, x < 0.3),
    "bounds": lambda x, y: (x.clamp(0.0, 1.0), x.clamp_min(0), x.clamp_max(0), F.relu6(x), F.hardtanh(x, 0.0, 1.0)),
    "rounded quotients": lambda x, y: (
        torch.div(x, y, rounding_mode="trunc"),
        torch.div(x, 0.3, rounding_mode="floor"),
    ),
    "integers": lambda x, y: (x.nan_to_num(0, 9, -9).clamp(-9, 9).int() / 7, x.nan_to_num(0, 9, -9).long() * x),
    "mixed with integers": lambda x, y: (x * torch.arange(len(x)), x + torch.arange(len(x)), x < torch.arange(len(x))),
    "normalised by statistics": lambda x, y: (
        F.batch_norm(x.reshape(1, 8, -1), y[:8], y[:8].abs() + 0.1, y[8:16], y[1:9])
        if x.dtype is not torch.float16
        else x
    ),
    "loss": lambda x, y: F.smooth_l1_loss(x, y, reduction="none"),
}


def numbers(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2048, generator=generator), torch.randn(2048, generator=generator)
    x = x * torch.logspace(-3, 1.2, 2048)[torch.randperm(2048, generator=generator)]
    x[: len(SPECIAL)] = torch.tensor(SPECIAL)
    x[32 : 32 + len(SPECIAL)] = y[32 : 32 + len(SPECIAL)] = torch.tensor(SPECIAL[::-1])
    return x.to(dtype), y.to(dtype)


def same_bits(found, expected):
    if isinstance(expected, tuple):
        return all(map(same_bits, found, expected))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    equal = (found == expected) & (found.signbit() == expected.signbit())
    return bool((equal | (found != found) & (expected != expected)).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", SINGLE)
def test_an_operation_gives_eagers_bits(case, dtype):
    fn = SINGLE[case]
    compiled = core.compile(fn, backend="inductor", fullgraph=True)
    x, y = numbers(dtype)
    assert same_bits(compiled(x, y), fn(x, y))


STEPS = (
    lambda a, b, number: a + b,
    lambda a, b, number: a - b,
    lambda a, b, number: a * b,
    lambda a, b, number: a / (b.abs() + 1),
    lambda a, b, number: a + number,
    lambda a, b, number: a * number,
    lambda a, b, number: torch.where(a > b, a, b * 0.5),
    lambda a, b, number: torch.maximum(a, b),
    lambda a, b, number: a.clamp(-2, 1.7),
    lambda a, b, number: F.relu(a) - b,
    lambda a, b, number: a.abs().sqrt(),
    lambda a, b, number: F.leaky_relu(a, 0.013),
    lambda a, b, number: F.hardswish(a),
    lambda a, b, number: torch.addcmul(a, b, b, value=number),
    lambda a, b, number: torch.lerp(a, b, number),
    lambda a, b, number: (a.float() * 0.3 + b).to(a.dtype),
    lambda a, b, number: a.round() + a.floor() * b,
    lambda a, b, number: -a,
    lambda a, b, number: a.reshape(8, -1).amax(1, keepdim=True).expand(8, 256).reshape(-1) - b,
)


def chain(seed):
    """A function of two tensors: a few random steps, each on two of the last four values."""
    r = random.Random(seed)
    steps = [
        (r.choice(STEPS), r.randint(1, 4), r.randint(1, 4), r.choice((0.1, 3, -0.7))) for _ in range(r.randint(3, 12))
    ]
    kept = r.randint(1, 3)

    def run(x, y):
        values = [x, y, y, x]
        for step, left, right, number in steps:
            values.append(step(values[-left], values[-right], number))
        return tuple(values[-kept:])

    return run


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("seed", range(30))
def test_chains_of_16_bit_floats_round_where_eager_rounds(seed, dtype):
    fn = chain(seed)
    x, y = numbers(dtype, seed)
    assert same_bits(core.compile(fn, backend="inductor", fullgraph=True)(x, y), fn(x, y))


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_sums_of_16_bit_floats_are_rounded_before_they_are_used(dtype):
    def fn(x):
        total = x.sum(-1, keepdim=True)
        return x - total / 7, total * 3 + x.amax(-1, keepdim=True)

    x = (torch.randint(-8, 9, (64, 40)) / 8).to(dtype)  # whose sums are exact in any order
    assert same_bits(core.compile(fn, backend="inductor", fullgraph=True)(x), fn(x))


def test_the_hyperbolic_tangent_of_a_negative_zero_is_one():
    for dtype in DTYPES:
        x = torch.tensor([-0.0, 0.0, -1e-30]).to(dtype)
        found = core.compile(lambda x: x.tanh(), backend="inductor", fullgraph=True)(x)
        assert found.signbit().tolist() == [True, False, True]
