"""Each cheat is caught by the tests that the table names, and for the reason that it names."""

from __future__ import annotations

import pytest
from cheats_table import CAUGHT_BY, SLOW
from core_conformance.evil import CHEATS
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


def test_every_cheat_is_caught_by_some_test():
    assert set(CAUGHT_BY) == {*CHEATS, ON_IMPORT}
    assert all(CAUGHT_BY.values())


def test_the_table_names_tests_and_rules_that_exist():
    assert {test for _, test, _ in ROWS} <= set(all_cases())
    assert {rule for _, _, rule in ROWS} <= set(RULES)


def test_every_rule_but_two_is_shown_by_a_cheat():
    # core's own checks stand before these: a backend can't return another container, nor tensors of another device
    without = {"structure", "device", "dtype", "report", "recompiles"}
    assert set(RULES) - {rule for _, _, rule in ROWS} == without


def test_each_class_that_looks_for_cheats_is_in_the_table():
    classes = {test.split("::")[1] for _, test, _ in ROWS}
    missing = {test.split("::")[1] for test in all_cases()} - classes
    assert missing == {"ModuleTests", "DiagnosableTests"}  # models are made of graphs; reports are core's
