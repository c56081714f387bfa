"""A report that was altered, cut or dressed up is found out, offline."""

from __future__ import annotations

import copy
import shutil
import subprocess

import pytest
from core_conformance import report, verify
from core_conformance.decoys import decoy_tests
from core_conformance.digests import distribution_digest
from core_conformance.profiles import load
from core_conformance.seeds import seed_of

DECOYS = decoy_tests(load("dynamic").decoys)
DYNAMIC = ["dynamic::DynamicTests::a", "dynamic::DynamicTests::b"]
OTHER = ["graphs::GraphTests::a"]


def made(tests=None, declarations=(), profile="dynamic", label=""):
    found = (
        tests
        if tests is not None
        else {name: {"outcome": "passed", "message": "", "seconds": 0.1} for name in [*DYNAMIC, *DECOYS]}
    )
    return report.build(
        profile=load(profile),
        backend={"name": "eager", "distribution": "core", "version": "1", "manifest_digest": ""},
        device="cpu",
        tests=found,
        nonce="n",
        seed=seed_of(distribution_digest("core"), distribution_digest("core-conformance"), "n"),
        started="2026-12-01T10:00:00+00:00",
        ended="2026-12-01T10:05:00+00:00",
        declarations=declarations,
        label=label,
    )


def signed(changed):
    """A forged report with a digest that fits."""
    changed["digest"] = report.digest(changed)
    return changed


def rules(value, suite_tests=None):
    return {problem.rule for problem in verify.verify(value, suite_tests=suite_tests)}


def test_a_report_as_it_was_made_is_valid():
    assert verify.verify(made(), suite_tests=[*DYNAMIC, *OTHER]) == []


def test_a_changed_outcome_breaks_the_digest_and_with_a_new_digest_the_counts():
    changed = made()
    changed["tests"][DYNAMIC[0]].update(outcome="failed", message="text")
    assert rules(changed) >= {"digest", "counts"}
    assert rules(signed(changed)) == {"counts"}


def test_a_summary_that_certifies_what_failed_is_found():
    changed = made({DYNAMIC[0]: {"outcome": "failed", "message": "text"}, DYNAMIC[1]: {"outcome": "passed"}})
    changed["summary"]["certified"] = True
    assert rules(signed(changed)) == {"counts"}


def test_missing_tests_and_tests_of_others_are_found():
    cut = made()
    del cut["tests"][DYNAMIC[0]]
    cut["summary"] = report.summary(cut["tests"])
    assert rules(signed(cut), [*DYNAMIC, *OTHER]) == {"missing"}
    more = made({name: {"outcome": "passed"} for name in [*DYNAMIC, *DECOYS, *OTHER]})
    assert rules(more, [*DYNAMIC, *OTHER]) == {"unknown"}


def test_a_report_without_tests_or_nonce_or_keys_is_not_valid():
    assert "empty" in rules(made({}))
    without = made()
    without["nonce"] = ""
    assert rules(signed(without)) == {"nonce", "seed"}
    chosen = made()
    chosen["seed"] = 7
    assert rules(signed(chosen)) == {"seed"}
    del without["seed"]
    assert rules(without) == {"schema"}
    assert rules({**made(), "schema": 9}) == {"schema"}


def test_an_excuse_without_a_declaration_is_found():
    tests = {"inference::x": {"outcome": "declared"}, "graphs_x": {"outcome": "passed"}}
    assert "declaration" in rules(made(tests, profile="inference-full"))


def test_an_excuse_for_a_test_that_must_pass_is_found():
    given = {"id": DYNAMIC[0], "kind": "unsupported", "reason": "r", "issue": "i", "expires": "2027-01-01"}
    tests = {DYNAMIC[0]: {"outcome": "declared"}, DYNAMIC[1]: {"outcome": "passed"}}
    assert rules(made(tests, [given])) == {"must-pass"}


def test_a_declaration_that_had_expired_excuses_nothing():
    given = {"id": "hygiene::*", "kind": "unsupported", "reason": "r", "issue": "i", "expires": "2026-11-30"}
    tests = {"hygiene::HygieneTests::a": {"outcome": "declared"}, "graphs::GraphTests::a": {"outcome": "passed"}}
    assert rules(made(tests, [given], profile="inference-full")) == {"declaration"}


def test_a_labelled_run_passes_under_its_label_and_certifies_nothing():
    labelled = made(label="bfloat16")
    assert labelled["summary"]["passes"] and not labelled["summary"]["certified"] and rules(labelled) == set()
    labelled["summary"]["certified"] = True
    assert rules(signed(labelled)) == {"counts"}


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_a_signature_is_checked_against_who_may_sign(tmp_path):
    path, key = tmp_path / "report.json", tmp_path / "key"
    report.write(made(), path)
    quiet = {"check": True, "capture_output": True}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], **quiet)
    subprocess.run(["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", verify.NAMESPACE, str(path)], **quiet)
    signers = tmp_path / "signers"
    signers.write_text(f"vendor@example.org {key.with_suffix('.pub').read_text()}")
    signature = path.with_name("report.json.sig")
    assert verify.verify_signature(path, signature, signers, "vendor@example.org") is None
    assert verify.verify_signature(path, signature, signers, "other@example.org").rule == "signature"
    path.write_text(path.read_text().replace("passed", "failed"))
    assert verify.verify_signature(path, signature, signers, "vendor@example.org").rule == "signature"


def test_the_difference_of_two_reports_names_what_is_worse_better_new_and_gone():
    old, new = made(), copy.deepcopy(made())
    new["tests"][DYNAMIC[0]]["outcome"] = "failed"
    new["tests"][OTHER[0]] = new["tests"].pop(DYNAMIC[1])
    found = verify.difference(old, new)
    assert found["worse"] == [f"{DYNAMIC[0]}: passed, now failed"]
    assert found["gone"] == [f"{DYNAMIC[1]}: passed"] and found["new"] == [f"{OTHER[0]}: passed"]
    assert verify.difference(new, old)["better"] == [f"{DYNAMIC[0]}: failed, now passed"]


def test_a_test_that_is_skipped_now_is_worse_than_one_that_passed():
    old, new = made(), copy.deepcopy(made())
    new["tests"][DYNAMIC[0]]["outcome"] = "skipped"
    assert verify.difference(old, new)["worse"] == [f"{DYNAMIC[0]}: passed, now skipped"]
    assert verify.difference(new, old)["better"] == [f"{DYNAMIC[0]}: skipped, now passed"]
