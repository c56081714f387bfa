"""Folds: values against float64, ties and NaN, which folds share a kernel."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from compiled_graphs import check, compiled
from torch import randn

import core


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dims", [0, 1, 2, (0, 2), (1, 2), (0, 1), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("keepdim", [False, True], ids=["dropped", "kept"])
def test_siblings_over_the_same_dimensions_are_one_kernel(dims, keepdim):
    def f(x):
        k = {"keepdim": keepdim}
        return x.sum(dims, **k), x.mean(dims, **k), x.amax(dims, **k), x.amin(dims, **k), x.var(dims, **k)

    check(f, randn(6, 70, 90), kernels=1)


@pytest.mark.parametrize("shape", [(4, 100_000), (100_000, 4), (300_000,), (2000, 300)], ids=str)
def test_long_sums_are_as_accurate_as_eager(shape):
    x = torch.rand(shape)
    check(lambda x: (x.sum(0), x.sum(-1), x.sum(), x.mean()), x)


def test_long_sums_of_large_offsets():
    check(lambda x: (x.sum(1), x.var(1), x.std(0)), randn(50, 4096) + 1000.0)


def test_softmax_is_one_kernel():
    check(lambda x: F.softmax(x, -1), randn(64, 96), kernels=1)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_softmax_and_its_logarithm_over_any_dimension(dim):
    check(lambda x: (F.softmax(x, dim), F.log_softmax(x, dim)), randn(6, 70, 90), kernels=1)


def test_softmax_of_a_row_of_minus_infinity_is_nan():
    x = randn(4, 16)
    x[1] = float("-inf")
    x[2, 3:] = float("-inf")
    check(lambda x: F.softmax(x, -1), x, tolerance=1e-6)


def test_positions_of_extremes_take_the_first_of_equals_and_nan():
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, float("nan"), 5.0, float("nan")], [float("-inf")] * 4])
    check(lambda x: (x.argmax(1), x.argmin(1), x.argmax(0), x.max(1)[1], x.min(1)[1], x.argmax()), x, tolerance=0)
    check(lambda x: (x.argmax(1), x.argmin(0), x.argmax()), randn(60, 70).round(), tolerance=0)


def test_extremes_pass_nan_on():
    x = randn(40, 50)
    x[3, 7] = x[20, 1] = float("nan")
    check(lambda x: (x.amax(1), x.amin(0), x.max(), x.min(), x.amax(0)), x, tolerance=0)


def test_positions_on_large_inputs():
    check(lambda x: (x.argmax(), x.argmin(0), *x.max(1)), randn(7, 20_000), tolerance=0)


def test_integers_sum_exactly_and_wrap():
    x = torch.randint(-(2**62), 2**62, (60, 70))
    check(lambda x: (x.sum(), x.sum(0), x.sum(1), x.prod(1), x.amax(0), x.amin(1)), x)
    check(lambda x: (x.sum(), x.amax(), x.sum(0)), torch.randint(-128, 127, (40, 9), dtype=torch.int8))


def test_truth_of_all_and_any():
    x = torch.randint(0, 2, (20, 5))
    check(lambda x: (x.any(), x.all(), x.any(1), x.all(0), (x > 0).sum(), (x > 0).any(0)), x)


def test_folds_over_nothing():
    check(lambda x: (x.sum(1), x.prod(1), x.any(1), x.all(1), x.mean(1)), randn(5, 0), tolerance=0)
    check(lambda x: (x.sum(0), x.sum(1)), randn(0, 5))


def test_dimensions_of_size_one_fold_to_themselves():
    check(lambda x: (x.sum(0), x.sum(-1), x.mean((0, 2)), x.amax(0), x.argmax(0), F.softmax(x, 0)), randn(1, 5, 1))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 4e-3), (torch.float64, 1e-12)]
)
def test_other_float_types(dtype, tolerance):
    x = randn(33, 400).to(dtype)
    check(lambda x: (x.mean(1), x.amax(1), x.var(1), F.softmax(x, -1), x.mean(0)), x, tolerance=tolerance)


def test_elementwise_work_before_and_after_a_row_fold_is_one_kernel():
    def f(x, y):
        a = F.gelu(x) * y
        s = a.sum(1, keepdim=True)
        return a / s, (a - s).amax(1)

    check(f, randn(40, 300).abs(), randn(40, 300).abs(), kernels=1, tolerance=1e-4)


def test_transposed_and_channels_last_inputs():
    check(lambda x: (x * 2, x.sum(1), F.softmax(x, -1)), randn(8, 6, 4).permute(2, 0, 1))
    check(lambda x: (F.relu(x) + 1, x.mean((2, 3))), randn(2, 8, 5, 5).contiguous(memory_format=torch.channels_last))


def test_norms():
    check(
        lambda x: (
            x.norm(),
            x.norm(dim=1),
            torch.linalg.vector_norm(x, 1, 0),
            torch.linalg.vector_norm(x, float("inf")),
        ),
        randn(60, 700),
    )


def test_results_do_not_depend_on_the_number_of_threads():
    x = randn(3, 200_000)
    built = compiled(lambda x: (x.sum(1), x.sum(), x.mean(0)), x)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = built.call(x)
        torch.set_num_threads(2)
        two = built.call(x)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, two))


@pytest.mark.parametrize("reduce", [torch.amin, torch.amax, torch.sum, torch.mean, torch.var, torch.all])
def test_what_torch_refuses_for_its_many_dimensions_is_refused_in_its_words(reduce):
    x = torch.ones([1] * 65)
    with pytest.raises(RuntimeError) as wanted:
        reduce(x, 0)
    run = core.compile(lambda x: reduce(x, 0), backend="inductor")
    with pytest.raises(RuntimeError) as got:
        run(x)
    assert str(got.value) == str(wanted.value)
    core.reset()
    result = core.compile(lambda x: torch.exp(x) * 2, backend="inductor")(x)
    assert result.shape == x.shape and result.reshape(1).allclose(torch.exp(torch.ones(1)) * 2)


def test_positions_are_folded_in_the_kernel_of_their_extreme():
    x = randn(64, 128)
    check(lambda x: x.argmax(-1), x, kernels=1, externs=0)
    check(lambda x: x.max(-1), x, kernels=1, externs=0)
    check(lambda x: (x * 2).argmax(-1), x, kernels=1, externs=0)
    check(lambda x: x.argmax(0), x, kernels=1, externs=0)
    check(lambda x: x.argmax(-1), randn(4, 8), kernels=1, externs=0)


@pytest.mark.parametrize("length", [255, 288, 512, 4160])
def test_long_rows_are_folded_in_lanes(length):
    def f(x, y):
        return x.sum(1), x.amin(1), (x * 2).prod(1), y.sum(1), (y > 3).any(1), y.amax(1)

    x, y = torch.rand(5, length), torch.randint(-5, 6, (5, length))
    x[1, 3] = x[2, length - 1] = float("nan")
    built = check(f, x, y)
    lanes = {288: 32, 512: 64, 4160: 64}.get(length)
    assert built.program.cpp_source.count(f"_lanes[{lanes}];") == (6 if lanes else 0)
    check(lambda x: (x.sum(), x.amax()), x.flatten())
