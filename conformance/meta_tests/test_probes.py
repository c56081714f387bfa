"""The table of probes, and the tests as plain callables that it is made with."""

from __future__ import annotations

import pytest
from core_conformance import probes
from core_conformance.assertions import RULES as OF_ASSERTIONS
from core_conformance.cases import cases_of, run_case
from core_conformance.rules import RULES, broken, closely, exactly, require, rule_of
from suite_cases import all_cases, made

torch = pytest.importorskip("torch")


def test_there_are_sixteen_probes_and_a_right_backend_passes_them():
    rows = probes.run("aot_eager")
    assert len(rows) == 16
    assert len({row.test for row in rows}) == 16
    assert {row.outcome for row in rows} == {"passed"}
    assert probes.table("aot_eager", rows).endswith("aot_eager: 16 of 16 probes passed")


def test_a_failed_probe_has_its_rule_and_its_reason():
    rows = [row for row in probes.run(made("evil-nan-lost-in-relu")) if row.outcome != "passed"]
    assert [row.test for row in rows] == ["semantics::SemanticsTests::relu_keeps_nan"]
    assert rows[0].rule == "nan-positions" and "[nan-positions]" in rows[0].message
    assert rows[0].as_dict()["outcome"] == "failed"


def test_ids_are_unique_and_stable():
    ids = list(all_cases())
    assert len(ids) > 280
    assert all(id.count("::") == 2 and " " not in id.partition("[")[0] for id in ids)


def test_parameters_of_marks_become_cases():
    class Numbers:
        __module__ = "somewhere.numbers"

        @pytest.mark.parametrize("left,right", [(1, 2), (3, 4)], ids=str)
        @pytest.mark.parametrize("sign", ["plus", "minus"])
        def test_sum(self, subject, sign, left, right):
            require(left + right < 7 or sign == "plus", "numerics", f"{left} {sign} {right}")

    found = {case.id: case for case in cases_of(Numbers)}
    assert set(found) == {f"numbers::Numbers::sum[{w}]" for w in ("plus-1-2", "plus-3-4", "minus-1-2", "minus-3-4")}
    outcomes = {id: run_case(case, "eager") for id, case in found.items()}
    assert {id for id, result in outcomes.items() if result.outcome == "failed"} == {"numbers::Numbers::sum[minus-3-4]"}
    assert outcomes["numbers::Numbers::sum[minus-3-4]"].rule == "numerics"


def test_rules_of_the_assertion_are_among_the_rules():
    assert set(OF_ASSERTIONS) <= set(RULES)
    with pytest.raises(ValueError):
        broken("no-such-rule", "text")
    assert rule_of(broken("strides", "text")) == "strides"
    assert rule_of("something else") == ""


def test_bits_are_compared_exactly():
    nan = float("nan")
    exactly((torch.tensor([nan, 0.0]), 3), (torch.tensor([nan, 0.0]), 3), "numerics")
    for got, want, rule in (
        (torch.tensor([-0.0]), torch.tensor([0.0]), "numerics"),
        (torch.tensor([1.0]), torch.tensor([1.0 + 2**-23]), "numerics"),
        (torch.tensor([1]), torch.tensor([1.0]), "dtype"),
        (torch.zeros(2), torch.zeros(2, 1), "shape"),
        ([torch.zeros(2)], (torch.zeros(2),), "structure"),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 3j]), "numerics"),
    ):
        with pytest.raises(AssertionError) as caught:
            exactly(got, want, "numerics")
        assert rule_of(caught.value) == rule


def test_one_wrong_element_of_many_is_seen():
    want = torch.randn(1 << 20)
    got = want * (1 + 2**-23)
    closely(got, want, "numerics")
    got[12345] += 0.01
    with pytest.raises(AssertionError, match=r"\[numerics\] the result at \(12345,\)"):
        closely(got, want, "numerics")
