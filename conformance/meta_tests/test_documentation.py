"""docs/conformance-tests.md says of the suite what is there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cheats_table import CAUGHT_BY
from core_conformance.rules import RULES
from suite_cases import OWN, all_cases

PAGE = (Path(__file__).parents[2] / "docs" / "conformance-tests.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("cheat", CAUGHT_BY)
def test_each_cheat_has_its_line_with_the_tests_that_catch_it(cheat):
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{cheat}` |")]
    for test, rule in CAUGHT_BY[cheat]:
        assert f"`{test.partition('::')[2]}` [{rule}]" in line


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_has_its_line(rule):
    assert f"| `{rule}` | {RULES[rule]} |" in PAGE


def test_each_class_has_its_line_with_the_number_of_its_tests():
    counts = Counter(test.split("::")[1] for test in all_cases())
    for name in OWN:
        assert f"| `{name}` | {counts[name]} | " in PAGE
