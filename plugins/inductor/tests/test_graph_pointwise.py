"""Elementwise operations: values, special values, dtypes, and that chains become one kernel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import check, compiled
from torch import randn

SPECIAL = torch.tensor(
    [
        0.0,
        -0.0,
        float("inf"),
        float("-inf"),
        float("nan"),
        1e-40,
        -1e-40,
        1.0,
        -1.0,
        88.8,
        -103.9,
        -150.0,
        0.5,
        1e-45,
        3.0,
    ]
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def test_gelu_of_a_sum_times_a_factor_is_one_kernel():
    check(lambda x, b, r: F.gelu(x + b) * r, randn(64, 96), randn(96), randn(64, 96), kernels=1)


def test_long_chain_with_shared_values_is_one_kernel():
    def f(x, y):
        a = torch.exp(x) + y
        b = torch.sigmoid(a) * a
        return b, a - b, torch.tanh(b) + a

    assert check(f, randn(33, 17), randn(33, 17)).counts == (1, 0)


def test_float_functions_are_as_accurate_as_eager():
    def f(x):
        p = x.abs() + 1e-3
        return (
            x.exp(), x.exp2(), x.expm1(), x.tanh(), x.sigmoid(), x.erf(), x.sin(), x.cos(), x.floor(), x.ceil(),
            x.round(), x.trunc(), x.sign(), x.neg(), x.abs(), p.sqrt(), p.rsqrt(), p.log(), p.log2(), p.log10(),
            x.abs().log1p(), p.reciprocal(), p**0.3, x**2, x**3, x.square(), x.frac(),
        )  # fmt: skip

    assert check(f, randn(37, 11) * 3).counts == (1, 0)


def test_activations_are_as_accurate_as_eager():
    def f(x):
        return (
            F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.hardswish(x), F.hardsigmoid(x),
            F.leaky_relu(x), F.elu(x), F.softplus(x), F.relu6(x), F.logsigmoid(x), F.relu(x), F.hardtanh(x),
        )  # fmt: skip

    assert check(f, randn(37, 11) * 4).counts == (1, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_special_values_come_out_as_in_eager(dtype):
    def f(x):
        return (
            x.exp(), x.log(), x.log1p(), x.tanh(), x.erf(), x.sigmoid(), F.relu(x), x.sqrt(), x.rsqrt(), x.abs(), -x,
            x.floor(), x.round(), x.sign(), x.isnan(), x.isinf(), x.clamp(-1, 1), F.relu6(x), F.hardtanh(x), x.expm1(),
            F.leaky_relu(x), F.silu(x), F.softplus(x), F.elu(x), x * 0.5, x > 0.5, x.bool(), x.signbit(),
        )  # fmt: skip

    check(f, SPECIAL.to(dtype), tolerance=1e-6 if dtype in (torch.float32, torch.float64) else 1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_arithmetic_and_comparisons_of_special_values_are_eagers_bits(dtype):
    x = SPECIAL.to(dtype)
    n = len(x)

    def f(a, b):
        return (
            a + b, a - b, a * b, a / b, torch.maximum(a, b), torch.minimum(a, b), a == b, a != b, a < b, a <= b, a > b,
            a >= b, torch.where(a > b, a, b), torch.copysign(a, b),
        )  # fmt: skip

    check(f, x[:, None].expand(n, n).contiguous(), x[None].expand(n, n).contiguous(), tolerance=0, kernels=1)


def test_nan_passes_through_relu_and_clamp_and_maximum():
    nan = torch.full((20,), float("nan"))
    (a, b, c, d) = compiled(lambda x: (F.relu(x), x.clamp(0, 1), torch.maximum(x, x * 0), x.clamp_max(2.0)), nan).call(
        nan
    )
    assert all(t.isnan().all() for t in (a, b, c, d))


def test_subnormals_are_not_flushed():
    x = torch.full((64,), 1e-40)
    (out,) = compiled(lambda x: x * 0.5, x).call(x)
    assert torch.equal(out, x * 0.5) and (out != 0).all()


def test_products_are_not_contracted_into_the_following_subtraction():
    x = randn(1000)
    (out,) = compiled(lambda a, b: a * a - b * b, x, x.clone()).call(x, x.clone())
    assert (out == 0).all()


def test_float_floor_division_is_pythons():
    x = torch.tensor([1.0, 2.0, -1.0, 7.5, -7.5])
    check(lambda x: (x // 0.1, x % 0.3, x // -2.0, torch.fmod(x, 2.0)), x, tolerance=0, kernels=1)
    assert compiled(lambda x: x // 0.1, x).call(x)[0][0] == 9


def test_integers_wrap_around():
    big = torch.tensor([2**62, 2**63 - 1, -(2**63), 5, -7])
    check(lambda x: (x + x, x * x, x - 1, -x, x.abs(), x // 3, x % 3, x // -7, x * 3 + 1), big, kernels=1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_small_integers_wrap_around(dtype):
    x = torch.tensor([127, -128, 5, 0, 100]).to(dtype)
    check(lambda x: (x + x, x * x, x - 1, -x, x // 3, x % 3, x.float(), x * 2.5, x > 3, x.bool()), x, kernels=1)


def test_integer_division_by_a_tensor_runs_in_aten_and_raises_as_eager_does():
    x, y = torch.tensor([4, 5]), torch.tensor([2, 0])
    built = compiled(lambda x, y: torch.div(x, y, rounding_mode="floor"), x, y)
    assert built.counts == (0, 1)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        built.call(x, y)


def test_logic_on_bool_and_integers():
    a, b = torch.randint(0, 2, (20, 5)) > 0, torch.randint(0, 2, (20, 5)) > 0
    check(
        lambda x, y: (x & y, x | y, ~x, x ^ y, x.float() + 1, torch.logical_and(x, y), x == y, x + y), a, b, kernels=1
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 4e-3), (torch.float64, 1e-12)]
)
def test_other_float_types(dtype, tolerance):
    x, b = randn(33, 40).to(dtype), randn(40).to(dtype)
    check(lambda x, b: F.gelu(x + b) * x, x, b, tolerance=tolerance, kernels=1)
    check(lambda x, b: (x.float() + b, x > 0.1, x * 0.1 + 1, b.exp()), x, b, tolerance=tolerance)


def test_sixteen_bit_intermediates_round_as_eager_does():
    x, y = randn(64, 64).bfloat16(), randn(64, 64).bfloat16()
    check(lambda x, y: (x * y + x) * y - x, x, y, tolerance=0, kernels=1)


def test_explicit_casts_round():
    x = randn(200)
    check(lambda x: x.to(torch.bfloat16).to(torch.float32) + x.half().float(), x, tolerance=0, kernels=1)


def test_types_promote_as_recorded():
    def f(i, x, s):
        return i + x, i / 2, i * 1.5, x + s, i > 0.5, torch.where(i > 1, x, s), x.to(torch.int64) + i

    check(f, torch.arange(-3, 5), randn(8), torch.tensor(2.0, dtype=torch.float64), tolerance=1e-6)


def test_broadcast_scalars_and_zero_dimensional_tensors():
    check(lambda x, y, z: (x + y) * z, randn(4, 1, 5), randn(3, 1), randn(5), kernels=1)
    check(lambda x: (x + 1, x * x), torch.tensor(3.0), kernels=1)
    check(lambda x: x + 1, randn(0, 5), kernels=1)


def test_creation_is_computed_where_it_is_read():
    def f(x):
        return x + torch.arange(8) + torch.full((8,), 2.0) + torch.ones(5, 1) + torch.eye(5, 8) + x.new_zeros(5, 8)

    check(f, randn(5, 8), kernels=1)


def test_unknown_operations_run_in_aten():
    check(lambda x: x.cumsum(1) * 2 + x.topk(8, 1)[0], randn(5, 8), kernels=1, externs=2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_sign_of_zeros_and_of_no_numbers_is_seen(dtype):
    x = torch.tensor([0.0, -0.0, 1.5, -1.5, float("inf"), -float("inf"), float("nan"), -float("nan")] * 9, dtype=dtype)
    check(lambda x: (torch.signbit(x),), x)


@pytest.mark.parametrize(("fn", "kernels"), [(torch.tan, 0), (torch.erfc, 0), (lambda x: x.abs() ** 1.7, 1)])
def test_functions_without_vectors_of_ours_are_eagers_where_there_are_many_elements(fn, kernels):
    check(lambda x: fn(x), randn(64, 64), kernels=kernels, externs=1)
    check(lambda x: fn(x), randn(16), kernels=1, externs=0)


def test_masks_are_read_as_bytes_so_that_loops_have_vectors():
    scores, mask = randn(4, 64, 64), randn(64, 64) > 0
    built = check(lambda s, m: F.softmax(s.masked_fill(m, -1e9), -1), scores, mask, kernels=1, externs=0)
    assert "const unsigned char *__restrict__" in built.program.cpp_source
    assert "const bool *" not in built.program.cpp_source


def test_remainders_of_many_floats_are_eagers_kernels_and_of_few_are_fused():
    def f(x, y):
        return x % y, torch.fmod(x, y), x // y

    many, few = (randn(64, 64) * 9, randn(64, 64)), (randn(8, 8) * 9, randn(8, 8))
    check(f, *many, kernels=0, externs=3)
    check(f, *few, kernels=1, externs=0)


@pytest.mark.parametrize(("length", "blocks"), [(16, 0), (17, 1), (37, 1), (48, 0), (511, 1), (519, 0)])
def test_the_last_block_of_a_short_row_begins_earlier(length, blocks):
    x, y, mask = randn(5, length + 3), randn(5, length), torch.rand(5, length) > 0.5
    built = check(lambda x, y, mask: (x[:, 3:] * y.exp(), torch.where(mask, y, 2.0).double()), x, y, mask, kernels=1)
    assert built.program.cpp_source.count("const long first = ") == blocks
