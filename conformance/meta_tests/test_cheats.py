"""Each cheat is caught by the tests that the table names, and for the reason that it names."""

from __future__ import annotations

import pytest
import torch
from cheats_table import CAUGHT_BY, CAUGHT_ON_CARDS, SLOW
from core_conformance.evil import CHEATS, ON_CARDS
from core_conformance.rules import RULES
from suite_cases import ON_IMPORT, all_cases, outcome

ROWS = [(cheat, test, rule) for cheat, rows in CAUGHT_BY.items() for test, rule in rows]


NAMES = [f"{cheat}-{test.rpartition('::')[2]}" for cheat, test, _ in ROWS]


@pytest.mark.parametrize("cheat, test, rule", ROWS, ids=NAMES)
def test_cheat_is_caught_and_named(matrix, cheat, test, rule):
    if cheat in SLOW and not matrix:
        pytest.skip("another cheat of the table stands for it; --cheats-matrix runs it")
    result = outcome(cheat, test)
    assert (result.outcome, result.rule) == ("failed", rule), result.message


ROWS_ON_CARDS = [(cheat, test, rule) for cheat, rows in CAUGHT_ON_CARDS.items() for test, rule in rows]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("cheat, test, rule", ROWS_ON_CARDS, ids=[cheat for cheat, _, _ in ROWS_ON_CARDS])
def test_cheat_with_a_gpu_is_caught_and_named(cheat, test, rule):
    result = outcome(cheat, test, "cuda")
    torch.set_float32_matmul_precision("highest")
    assert (result.outcome, result.rule) == ("failed", rule), result.message


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("test", [test for test in all_cases() if test.startswith("gpu::")])
@pytest.mark.parametrize("backend", ["honest-interpreter", "eager", "aot_eager"])
def test_honest_backend_with_a_gpu_is_not_caught(backend, test):
    result = outcome(backend, test, "cuda")
    assert result.outcome in ("passed", "skipped"), f"{result.rule}: {result.message}"


def test_every_cheat_is_caught_by_some_test():
    assert set(CAUGHT_BY) == {*CHEATS, ON_IMPORT}
    assert set(CAUGHT_ON_CARDS) == set(ON_CARDS)
    assert all(CAUGHT_BY.values()) and all(CAUGHT_ON_CARDS.values())


def test_the_table_names_tests_and_rules_that_exist():
    assert {test for _, test, _ in ROWS + ROWS_ON_CARDS} <= set(all_cases())
    assert {rule for _, _, rule in ROWS + ROWS_ON_CARDS} <= set(RULES)


def test_every_rule_but_two_is_shown_by_a_cheat():
    # core's own checks stand before these: a backend can't return another container, nor tensors of another device
    without = {"structure", "device", "dtype", "report", "recompiles"}
    assert set(RULES) - {rule for _, _, rule in ROWS + ROWS_ON_CARDS} == without


def test_each_class_that_looks_for_cheats_is_in_the_table():
    classes = {test.split("::")[1] for _, test, _ in ROWS + ROWS_ON_CARDS}
    missing = {test.split("::")[1] for test in all_cases()} - classes
    # models are made of graphs; reports are core's; times find nobody out
    assert missing == {"ModuleTests", "DiagnosableTests", "PerfTests"}
