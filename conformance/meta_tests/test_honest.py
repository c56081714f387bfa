"""Honest backends pass what catches cheats, or are refused where they say that they can't."""

from __future__ import annotations

import pytest
from cheats_table import CAUGHT_BY
from core_conformance.evil import HONEST
from suite_cases import OWN, cases_of_class, outcome

CATCHING = sorted({test for rows in CAUGHT_BY.values() for test, _ in rows})
QUICK = [test for test in CATCHING if "process" not in test and "watch" not in test and "deadline" not in test]


@pytest.mark.parametrize("test", QUICK)
def test_honest_interpreter_is_not_caught(test):
    result = outcome("honest-interpreter", test)
    assert result.outcome in ("passed", "skipped"), f"{result.rule}: {result.message}"


@pytest.mark.parametrize("test", [test for test in QUICK if "softmax" not in test])
def test_incomplete_backend_is_not_caught(test):
    result = outcome("honest-but-incomplete", test)
    assert result.outcome in ("passed", "skipped", "refused"), f"{result.rule}: {result.message}"


@pytest.mark.parametrize(
    "test",
    [
        "training::TrainingTests::gradients_of_reductions",
        "graphs::GraphTests::softmax_over_each_dimension",
        "semantics::SemanticsTests::long_sums_are_as_precise_as_eager",
        "semantics::SemanticsTests::linear_is_as_precise_as_eager",
        "manifests::ManifestTests::native_nodes_run_outside_torch",
    ],
)
def test_another_order_of_the_same_roundings_is_not_caught(test):
    result = outcome("honest-in-another-order", test)
    assert result.outcome == "passed", f"{result.rule}: {result.message}"


def test_honest_interpreter_is_the_same_where_nobody_watches():
    test = "hygiene::HygieneTests::import_leaves_settings_alone_and_nobody_has_to_watch"
    assert outcome("honest-interpreter", test).outcome == "passed"


@pytest.mark.parametrize("part", OWN)
@pytest.mark.parametrize("name", [*HONEST, "eager", "aot_eager"])
def test_every_test_of_the_suite_lets_an_honest_backend_pass(matrix, name, part):
    if not matrix:
        pytest.skip("the whole suite takes minutes: --cheats-matrix runs it")
    from core_conformance.cases import run_case
    from suite_cases import made

    caught = {}
    for id, case in cases_of_class(part).items():
        result = run_case(case, made(name))
        if result.outcome == "failed":
            caught[id] = result.message
    assert not caught
