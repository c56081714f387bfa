"""The command line of the suite: what it prints, its exit codes, and what it says where the suite is not installed."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch
from core_conformance import profiles, report
from core_conformance.decoys import decoy_tests
from core_conformance.digests import distribution_digest
from core_conformance.seeds import seed_of

from core.cli import main
from core.errors import SuiteMisused, SuiteNotInstalled


@pytest.fixture
def made(tmp_path):
    """A report of a run that passed, on disk."""
    profile = profiles.load("dynamic")
    tests = {name: {"outcome": "passed", "seconds": 0.1} for name in ("dynamic::DynamicTests::a", *decoy_tests(4))}
    value = report.build(
        profile=profile,
        backend={"name": "eager", "distribution": "core", "version": "1", "manifest_digest": ""},
        device="cpu",
        tests=tests,
        nonce="n",
        seed=seed_of(distribution_digest("core"), distribution_digest("core-conformance"), "n"),
        started="2026-12-01T10:00:00+00:00",
        ended="2026-12-01T10:05:00+00:00",
        declarations=[],
    )
    report.write(value, tmp_path / "report.json")
    return tmp_path / "report.json"


def test_profiles_are_listed(capsys):
    assert main(["conformance", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [profile["name"] for profile in listed["profiles"]] == profiles.names()


def test_a_valid_report_is_valid_and_an_altered_one_is_a_finding(made, capsys):
    assert main(["conformance", "verify", str(made), "--quick"]) == 0
    made.write_text(made.read_text().replace('"outcome": "passed"', '"outcome": "failed"', 1))
    assert main(["conformance", "verify", str(made), "--quick", "--json"]) == 1
    assert "digest" in {
        problem["rule"] for problem in json.loads(capsys.readouterr().out.partition("\n")[2])["problems"]
    }


def test_a_report_differs_from_itself_in_nothing_and_has_a_badge(made, tmp_path):
    assert main(["conformance", "diff", str(made), str(made)]) == 0
    assert main(["conformance", "badge", str(made), "--out", str(tmp_path / "badge.svg")]) == 0
    assert "certified" in (tmp_path / "badge.svg").read_text()


def test_a_badge_is_told_to_machines_too(made, capsys):
    assert main(["conformance", "badge", str(made), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["left"] == "core dynamic" and told["right"].startswith("certified") and told["svg"].startswith("<svg")


def test_a_valid_report_goes_to_its_place_in_a_catalog_and_another_does_not(made, tmp_path, capsys):
    catalog = tmp_path / "catalog"
    command = ["conformance", "submit", str(made), "--catalog", str(catalog)]
    assert main(command) == 2  # it has no folder of reports
    (catalog / "reports").mkdir(parents=True)
    assert main(command) == 0
    placed = catalog / "reports" / "2026.12" / "eager" / "1-dynamic-cpu.json"
    assert report.read(placed) == report.read(made)
    assert main(command) == 2 and main([*command, "--replace", "--json"]) == 0
    made.write_text(made.read_text().replace('"outcome": "passed"', '"outcome": "failed"', 1))
    before = placed.read_text()
    assert main([*command, "--replace"]) == 1
    assert placed.read_text() == before and "not valid" in capsys.readouterr().out


@pytest.mark.parametrize(
    "key, value", [("tests", 5), ("summary", []), ("environment", None), ("suite", 3), ("tests", {"a": 1})]
)
def test_a_damaged_report_is_said_to_be_one(made, tmp_path, key, value, capsys):
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps({**report.read(made), key: value}))
    assert main(["conformance", "verify", "--quick", str(path)]) == 1
    assert "[schema]" in capsys.readouterr().out
    assert main(["conformance", "badge", str(path)]) == 2
    assert main(["conformance", "diff", str(made), str(path), "--json"]) == 2
    assert "is no report" in json.loads(capsys.readouterr().out)["error"]["what"]


@pytest.mark.parametrize("command", [["badge", "REPORT"], ["run", "--backend", "eager", "--profile", "smoke"]])
def test_a_file_that_can_not_be_written_is_said_before_anything_runs(made, command, capsys):
    given = [str(made) if word == "REPORT" else word for word in command]
    assert main(["conformance", *given, "--out", str(made / "below-a-file.json"), "--json"]) == 2
    assert "can't be written" in json.loads(capsys.readouterr().out)["error"]["what"]


def test_a_run_with_another_minor_of_torch_goes_beside(made, tmp_path):
    catalog = tmp_path / "catalog"
    (catalog / "reports").mkdir(parents=True)
    command = ["conformance", "submit", str(made), "--catalog", str(catalog)]
    assert main(command) == 0
    other = report.read(made)
    other["environment"]["torch"] = "2.99.1+cpu"
    other["digest"] = report.digest(other)
    report.write(other, made)
    assert main(command) == 0 and main(command) == 2
    folder = catalog / "reports" / "2026.12" / "eager"
    assert sorted(path.name for path in folder.iterdir()) == ["1-dynamic-cpu-torch2.99.json", "1-dynamic-cpu.json"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--backend", "eager", "--profile", "everything"],
        ["run", "--backend", "eager", "--profile", "gpu"],
        ["run", "--backend", "eager", "--profile", "smoke", "--label", "int8"],
        ["run", "--backend", "eager", "--profile", "smoke", "--option", "no-value"],
        ["run", "--backend", "eager", "--profile", "smoke", "--only", "no::such::test"],
        ["verify", "no-such-file"],
        ["run", "--backend", "eager"],
    ],
)
def test_wrong_usage_is_said_with_exit_code_two(arguments, capsys):
    assert main(["conformance", *arguments]) == 2
    assert capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_said_before_anything_runs(capsys):
    assert main(["conformance", "run", "--backend", "eager", "--profile", "gpu", "--device", "cuda"]) == 2
    assert "finds no device of kind cuda" in capsys.readouterr().err


@pytest.mark.slow
def test_times_are_measured_reported_and_judge_nothing(tmp_path, capsys):
    out = tmp_path / "report.json"
    only = ["--only", "perf_sanity::PerfTests::overhead_of_a_call", "--out", str(out)]
    assert main(["conformance", "run", "--backend", "eager", "--profile", "perf-sanity", *only]) == 0
    test = report.read(out)["tests"]["perf_sanity::PerfTests::overhead_of_a_call"]
    assert test["outcome"] == "passed" and test["measured"]["compared"] in ("faster", "alike", "slower")
    assert {"compiled_us", "eager_us", "difference_us", "ratio", "noise", "first_call_s"} <= set(test["measured"])
    assert "overhead_of_a_call: compiled_us" in capsys.readouterr().out


def test_an_unknown_profile_is_an_error_of_its_own():
    with pytest.raises(SuiteMisused, match="CORE-T002"):
        profiles.load("everything")


def test_without_the_suite_the_command_says_what_to_install(monkeypatch, capsys):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "core_conformance" else found(name))
    assert main(["conformance", "list"]) == 1
    said = capsys.readouterr().err
    assert SuiteNotInstalled.id in said and 'pip install "core[conformance]"' in said
