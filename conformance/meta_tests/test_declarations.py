"""Declarations excuse what they name, for as long as they say, and nothing silently."""

from __future__ import annotations

from datetime import date

import pytest
from core_conformance.declarations import Declaration, check, covering, judge, profiles_of, read
from core_conformance.profiles import Profile

from core.errors import SuiteMisused

TODAY = date(2026, 12, 1)
PROFILE = Profile("some", "", include=("graphs::*", "ops::*"), must_pass=("graphs::GraphTests::must",))
SUITE = ["graphs::GraphTests::must", "graphs::GraphTests::other", "ops::OpTests::op[add-float32]"]


def declared(id="graphs::GraphTests::other", kind="unsupported", expires="2027-01-31"):
    return Declaration(id, kind, "the compiler has no such thing", "https://example.org/1", expires)


def written(tmp_path, text):
    path = tmp_path / "conformance.toml"
    path.write_text(text)
    return path


ENTRY = """[[declaration]]
id = "ops::OpTests::op[add-*]"
kind = "known-wrong"
reason = "rounds twice"
issue = "https://example.org/1"
expires = 2027-01-31
"""


def test_a_file_is_read(tmp_path):
    (found,) = read(written(tmp_path, ENTRY))
    assert found.kind == "known-wrong" and found.expires == "2027-01-31"
    assert covering([found], "ops::OpTests::op[add-float32]") is found
    assert covering([found], "ops::OpTests::op[sub-float32]") is None


def test_a_file_says_which_profiles_its_backend_passes(tmp_path):
    path = written(tmp_path, 'profiles = ["smoke", "training"]\n' + ENTRY)
    assert profiles_of(path) == ["smoke", "training"] and len(read(path)) == 1
    assert profiles_of(written(tmp_path, ENTRY)) == []
    with pytest.raises(SuiteMisused, match="no profile 'smoky'"):
        profiles_of(written(tmp_path, 'profiles = ["smoky"]'))
    with pytest.raises(SuiteMisused, match="not a list of names"):
        profiles_of(written(tmp_path, 'profiles = "smoke"'))


@pytest.mark.parametrize(
    "change, said",
    [
        (("known-wrong", "flaky"), "kind is 'flaky'"),
        (('reason = "rounds twice"\n', ""), "it must have"),
        (('"rounds twice"', '""'), "it must have"),
        (("2027-01-31", '"soon"'), "not a date"),
        (("[[declaration]]", "[[declarations]]"), "unknown keys"),
        (("[[declaration]]", "[[declaration"), "can't be read"),
    ],
)
def test_a_file_with_a_fault_is_refused(tmp_path, change, said):
    with pytest.raises(SuiteMisused, match="CORE-T002") as raised:
        read(written(tmp_path, ENTRY.replace(*change)))
    assert said in raised.value.what and raised.value.remedy


def test_a_pattern_that_fits_no_test_is_refused():
    with pytest.raises(SuiteMisused, match="fits no test"):
        check([declared(id="graphs::GraphTests::gone*")], PROFILE, SUITE, SUITE)


@pytest.mark.parametrize("kind", ["unsupported", "known-wrong"])
def test_a_test_that_must_pass_admits_no_declaration(kind):
    check([declared(kind=kind)], PROFILE, SUITE, SUITE)
    with pytest.raises(SuiteMisused, match="must pass"):
        check([declared(id="graphs::*", kind=kind)], PROFILE, SUITE, SUITE)


@pytest.mark.parametrize(
    "raw, kind, outcome",
    [
        ("failed", "known-wrong", "xfailed"),
        ("passed", "known-wrong", "failed"),
        ("refused", "known-wrong", "failed"),
        ("refused", "unsupported", "declared"),
        ("passed", "unsupported", "failed"),
        ("failed", "unsupported", "failed"),
        ("skipped", "unsupported", "failed"),
    ],
)
def test_an_outcome_agrees_with_its_declaration_or_fails(raw, kind, outcome):
    assert judge(raw, "text", declared(kind=kind), required=False, today=TODAY).outcome == outcome


@pytest.mark.parametrize("raw", ["passed", "failed", "refused"])
def test_an_expired_declaration_fails(raw):
    verdict = judge(raw, "", declared(expires="2026-11-30"), required=False, today=TODAY)
    assert verdict.outcome == "failed" and "expired on 2026-11-30" in verdict.message
    assert judge("refused", "", declared(expires="2026-12-01"), required=False, today=TODAY).outcome == "declared"


def test_without_a_declaration_a_refusal_fails_and_a_skip_stays_one_unless_the_test_must_pass():
    assert judge("refused", "no", None, required=False).outcome == "failed"
    assert judge("skipped", "no", None, required=False).outcome == "skipped"
    assert judge("skipped", "no", None, required=True).outcome == "failed"
    assert judge("passed", "", None, required=True).outcome == "passed"
