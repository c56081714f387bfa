"""The numerical rule lets pass what another order of the same roundings gives, and nothing else."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import pytest
import torch
from core_conformance.numerics import compare, measures


def noisy(reference: torch.Tensor, roundings: float, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The reference with errors of so many roundings of each element, drawn from a normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(reference.shape, generator=generator, dtype=torch.float64)
    return (reference * (1 + roundings * torch.finfo(dtype).eps * noise)).to(dtype)


def reference_of(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 7, 300, 100_000])
def test_another_order_of_the_same_roundings_passes(count, dtype):
    reference = reference_of(count)
    for seed in range(5):
        eager, got = noisy(reference, 1.0, seed, dtype), noisy(reference, 1.0, seed + 100, dtype)
        verdict = compare(got, eager, reference)
        assert verdict.ok, verdict.text


def test_one_element_of_a_million_wrong_by_a_half_fails():
    reference = reference_of(1_000_000)
    eager, got = noisy(reference, 1.0, 1), noisy(reference, 1.0, 2)
    got[123_456] += 0.5
    verdict = compare(got, eager, reference)
    assert not verdict.ok and verdict.rule == "numerics" and verdict.where == (123_456,)


def test_a_thousand_elements_of_a_million_zeroed_fail():
    reference = reference_of(1_000_000)
    eager, got = noisy(reference, 1.0, 1), noisy(reference, 1.0, 2)
    got[::1000] = 0.0
    verdict = compare(got, eager, reference)
    assert not verdict.ok and verdict.rule == "numerics" and verdict.where[0] % 1000 == 0


def test_a_small_element_among_large_ones_is_held_to_its_own_size():
    reference = torch.cat((reference_of(5000) * 1e6, reference_of(5000, 1)))
    eager, got = noisy(reference, 1.0, 1), noisy(reference, 1.0, 2)
    got[7000] += 0.01
    assert compare(got, eager, reference).where == (7000,)


def test_a_product_calculated_in_bfloat16_fails_and_one_in_float32_passes():
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(96, 128, generator=generator), torch.randn(128, 64, generator=generator)
    reference = left.double() @ right.double()
    eager = left @ right
    in_pieces = left[:, :64] @ right[:64] + left[:, 64:] @ right[64:]
    assert compare(in_pieces, eager, reference).ok
    narrow = (left.bfloat16() @ right.bfloat16()).float()
    verdict = compare(narrow, eager, reference)
    assert not verdict.ok and verdict.error_ratio > 1000


def test_float64_calculated_in_float32_fails():
    reference = reference_of(1000)
    eager = torch.exp(reference)
    assert compare(torch.exp(reference), eager).ok
    assert not compare(torch.exp(reference.float()).double(), eager).ok


def test_a_multiplied_error_fails_by_its_mean_though_no_element_stands_out():
    reference = reference_of(100_000)
    eager, got = noisy(reference, 1.0, 1), noisy(reference, 6.0, 2)
    assert "root mean square" in compare(got, eager, reference).text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_stand_where_they_stand_in_eager(value):
    eager = torch.tensor([1.0, value, 2.0])
    assert compare(eager.clone(), eager, eager.double()).ok
    for wrong in (torch.tensor([1.0, 0.0, 2.0]), torch.tensor([value, 1.0, 2.0]), torch.tensor([1.0, -value, 2.0])):
        if math.isnan(value) and wrong[1].isnan():
            continue
        verdict = compare(wrong, eager, eager.double())
        assert not verdict.ok and verdict.rule == "nan-positions"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool, torch.uint8])
def test_whole_numbers_and_truth_values_have_no_tolerance(dtype):
    eager = torch.ones(100, dtype=dtype)
    got = eager.clone()
    assert compare(got, eager).ok
    got[42] = 0
    verdict = compare(got, eager)
    assert not verdict.ok and verdict.where == (42,)


def test_shape_and_dtype_are_part_of_the_result():
    assert compare(torch.ones(2, 1), torch.ones(2)).rule == "shape"
    assert compare(torch.ones(2).double(), torch.ones(2)).rule == "dtype"


def test_an_error_of_one_part_of_a_complex_number_is_measured_by_the_whole():
    reference = torch.complex(reference_of(2000), reference_of(2000, 1) * 1e-9)
    eager = reference.to(torch.complex64)
    got = eager + 1e-9j
    assert compare(got, eager, reference).ok
    got = eager.clone()
    got[9] += 1e-3j
    assert compare(got, eager, reference).where == (9,)


def test_what_the_condition_of_a_number_explains_is_no_fault_but_a_jump_is():
    reference = torch.full((50,), 3.0, dtype=torch.float64)
    eager = reference.float()
    got = eager + 4e-5
    assert not compare(got, eager, reference).ok
    moves = [torch.full((50,), 5e-5, dtype=torch.float64)]
    assert compare(got, eager, reference, moves=moves).ok
    jump = [torch.ones(50, dtype=torch.float64)]
    assert not compare(eager + 1.0, eager, reference, moves=jump).ok


def test_zeros_and_numbers_below_the_normal_ones_compare():
    eager = torch.tensor([0.0, 1e-42, -1e-40])
    assert compare(eager.clone(), eager, eager.double()).ok
    assert not compare(torch.tensor([0.0, 1e-42, 1e-38]), eager, eager.double()).ok


def test_measures_are_what_the_rule_looks_at():
    reference = reference_of(5000)
    eager, got = noisy(reference, 1.0, 1), noisy(reference, 1.0, 2)
    mean, excess = measures(got, eager, reference)
    assert 0.3 < mean < 1.0 and float(excess.max()) < 16 and compare(got, eager, reference).ok
    got[77] += 1.0
    mean, excess = measures(got, eager, reference)
    assert int(excess.argmax()) == 77 and float(excess.max()) > 160 and not compare(got, eager, reference).ok


def test_the_command_that_prints_the_constants_tables_shows_that_what_is_wrong_is_found(capsys):
    path = Path(__file__).parents[2] / "tools" / "numerics_constants.py"
    spec = importlib.util.spec_from_file_location("numerics_constants", path)
    tables = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = tables
    spec.loader.exec_module(tables)
    assert tables.main(["--parts", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert len(lines) == 5 and all(line.split()[-3] == "yes" for line in lines)


def test_a_number_is_right_where_eager_alone_has_none():
    reference = torch.tensor([0.25, 0.0, 3.0], dtype=torch.float64)
    eager = torch.tensor([math.nan, 0.0, 3.0])
    assert compare(reference.float(), eager, reference).ok
    assert compare(eager, eager, reference).ok
    wrong = compare(torch.tensor([0.5, 0.0, 3.0]), eager, reference)
    assert not wrong.ok and wrong.rule == "numerics"
    both_have_none = torch.where(eager.isnan(), eager.double(), reference)
    lost = compare(reference.float(), eager, both_have_none)
    assert not lost.ok and lost.rule == "nan-positions"
    infinite = compare(torch.tensor([math.inf, 0.0, 3.0]), eager, reference)
    assert not infinite.ok and infinite.rule == "nan-positions"
