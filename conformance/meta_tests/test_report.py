"""Reports: counts follow from outcomes, the digest from everything, values and order from the nonce."""

from __future__ import annotations

import json

import core_conformance
import pytest
import torch
from core_conformance import report
from core_conformance.digests import distribution_digest, folder_digest
from core_conformance.messages import for_report
from core_conformance.patterns import matches
from core_conformance.profiles import Profile, load, names
from core_conformance.samples import operators
from core_conformance.seeds import fresh_nonce, seed_of, shards, shuffled

PROFILE = Profile("some", "", must_pass=("graphs::*",))


def outcome(name="passed", **more):
    return {"outcome": name, "seconds": 0.1, "message": "" if name == "passed" else "text", **more}


def built(tests, **more):
    return report.build(
        profile=PROFILE,
        backend={"name": "eager", "distribution": "core", "version": "1", "manifest_digest": ""},
        device="cpu",
        tests=tests,
        nonce="n",
        seed=1,
        started="2026-12-01T10:00:00+00:00",
        ended="2026-12-01T10:05:00+00:00",
        declarations=[],
        **more,
    )


@pytest.mark.parametrize(
    "outcomes, certified",
    [
        (["passed"], True),
        (["passed", "declared", "skipped"], True),
        (["passed", "failed"], False),
        (["passed", "xfailed"], False),
        (["skipped"], False),
        ([], False),
    ],
)
def test_a_certificate_needs_a_pass_and_no_failure(outcomes, certified):
    tests = {f"graphs::GraphTests::t{i}": outcome(name) for i, name in enumerate(outcomes)}
    summary = built(tests)["summary"]
    assert summary["certified"] is certified
    assert (
        summary["total"]
        == len(outcomes)
        == sum(summary[k] for k in ("passed", "failed", "declared", "xfailed", "skipped"))
    )


def test_coverage_is_the_native_share_of_the_operator_tests():
    tests = {
        "ops::OpTests::op[add-float32]": outcome(provenance={"native": 3, "library": 1}),
        "graphs::GraphTests::a": outcome(provenance={"library": 50}),
    }
    assert built(tests)["summary"]["coverage"] == 0.75
    assert built({"graphs::GraphTests::a": outcome()})["summary"]["coverage"] is None


def test_the_digest_is_of_everything_but_itself_and_of_no_spaces(tmp_path):
    made = built({"graphs::GraphTests::a": outcome()})
    report.write(made, tmp_path / "report.json")
    again = report.read(tmp_path / "report.json")
    assert report.digest(again) == again["digest"] == made["digest"]
    again["tests"]["graphs::GraphTests::a"]["seconds"] = 0.2
    assert report.digest(again) != made["digest"]
    assert json.loads(report.canonical(made)) == {k: v for k, v in made.items() if k != "digest"}


def test_the_environment_names_versions_and_digests_and_few_variables(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = built({"graphs::GraphTests::a": outcome()})["environment"]
    assert found["variables"]["OMP_NUM_THREADS"] == "1" and "SECRET_TOKEN" not in json.dumps(found)
    assert set(found["digests"]) >= {"core", "core-conformance", "torch"}
    assert all(len(digest) == 64 for digest in found["digests"].values())
    assert any(line.startswith("torch==") for line in found["installed"])


def test_a_digest_follows_the_contents_of_a_distribution(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "a.py").write_text("x = 1\n")
    before = folder_digest(tmp_path / "package")
    (tmp_path / "package" / "a.py").write_text("x = 2\n")
    assert folder_digest(tmp_path / "package") != before
    assert distribution_digest("no-such-distribution") == ""


def test_the_seed_follows_from_plugin_suite_and_nonce():
    seeds = {seed_of(p, s, n) for p in "ab" for s in "ab" for n in "ab"}
    assert len(seeds) == 8 and all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of("a", "b", "c") == seed_of("a", "b", "c")
    assert fresh_nonce() != fresh_nonce()


def test_the_order_is_the_seeds_and_the_shards_lose_no_test():
    tests = [f"t{i}" for i in range(50)]
    assert shuffled(tests, 1) == shuffled(list(reversed(tests)), 1) != shuffled(tests, 2)
    dealt = shards(shuffled(tests, 1), 3)
    assert sorted(test for shard in dealt for test in shard) == sorted(tests)


def test_brackets_of_ids_are_no_part_of_the_pattern_language():
    assert matches("ops::OpTests::op[add-*]", "ops::OpTests::op[add-float32]")
    assert not matches("ops::OpTests::op[add-*]", "ops::OpTests::opa")
    assert not matches("ops::*", "xops::a")


@pytest.mark.parametrize("name", names())
def test_every_profile_loads_and_names_operators_of_the_table(name):
    profile = load(name)
    assert profile.summary and (profile.include or profile.operators or profile.gradients)
    unknown = set(profile.operators) | set(profile.gradients)
    assert unknown - {"*"} <= set(operators())


def test_the_profiles_hold_operators_in_their_dtypes():
    smoke, core = load("smoke"), load("inference-core")
    assert smoke.holds("ops::OpTests::op[add-float32]") and not smoke.holds("ops::OpTests::op[add-bfloat16]")
    assert core.holds("ops::OpTests::op[add-bfloat16]") and core.requires("ops::OpTests::op[add-bfloat16]")
    assert not core.holds("ops::OpTests::gradients[add-float32]")
    assert set(smoke.operators) <= set(core.operators)


def test_messages_do_not_tell_where_packages_lie():
    text = for_report(f"at {core_conformance.__file__}:3 and {torch.__file__}:4, not at /home/nobody/program.py:5")
    assert text == "at core_conformance/__init__.py:3 and torch/__init__.py:4, not at /home/nobody/program.py:5"
