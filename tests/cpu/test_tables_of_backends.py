"""The tools that run every backend: what counts as done, what goes on where it stopped, what the exit status says."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("core_conformance")
pytest.importorskip("core_inductor")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import vendor_table  # noqa: E402


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def profiles():
    return tool("conformance_profiles")


def report_of(passed: bool, profiles) -> dict:
    outcome = {"outcome": "passed"} if passed else {"outcome": "failed", "message": "[numerics] off"}
    tests = {"semantics::SemanticsTests::one": outcome}
    names = ("core", "core-conformance", "core-inductor")
    return {
        "tests": tests,
        "summary": profiles.report.summary(tests),
        "environment": {"digests": {name: profiles.distribution_digest(name) for name in names}},
    }


def run_with(profiles, monkeypatch, tmp_path, *, passed=True, writes=True, arguments=()):
    """The exit status of the tool where the suite gives this report, and the commands that it ran."""
    commands = []

    def suite(command, **_):
        commands.append(command)
        if writes:
            profiles.report.write(report_of(passed, profiles), Path(command[command.index("--out") + 1]))
        return profiles.subprocess.CompletedProcess(command, 0 if passed else 1, "", "it broke\nmore")

    monkeypatch.setattr(profiles.subprocess, "run", suite)
    status = profiles.main(["--backends", "inductor", "--profiles", "smoke", "--out", str(tmp_path), *arguments])
    return status, commands


def test_a_profile_that_is_certified_is_not_run_again_until_something_changes(profiles, monkeypatch, tmp_path, capsys):
    status, commands = run_with(profiles, monkeypatch, tmp_path)
    assert status == 0 and len(commands) == 1 and "--resume" in commands[0]
    assert "inductor" in capsys.readouterr().out.splitlines()[1]
    assert run_with(profiles, monkeypatch, tmp_path) == (0, [])
    assert "kept" in capsys.readouterr().out
    monkeypatch.setattr(profiles, "distribution_digest", lambda name: f"new {name}")
    assert len(run_with(profiles, monkeypatch, tmp_path)[1]) == 1


def test_a_profile_that_fails_is_the_exit_status_and_its_tests_are_named(profiles, monkeypatch, tmp_path, capsys):
    status, _ = run_with(profiles, monkeypatch, tmp_path, passed=False)
    out = capsys.readouterr().out
    assert status == 1 and "failed" in out and "semantics::SemanticsTests::one" in out


def test_an_interrupted_run_goes_on_with_the_same_nonce(profiles, monkeypatch, tmp_path, capsys):
    status, (first,) = run_with(profiles, monkeypatch, tmp_path, writes=False)
    assert status == 1 and "it broke" in capsys.readouterr().out
    status, (second,) = run_with(profiles, monkeypatch, tmp_path)
    nonces = [command[command.index("--nonce") + 1] for command in (first, second)]
    assert status == 0 and nonces[0] == nonces[1]
    assert not list(tmp_path.rglob("*.nonce"))


def test_a_backend_that_can_not_work_here_fails_nothing(profiles, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(profiles, "absence", lambda backend, device: "there is no such chip")
    assert run_with(profiles, monkeypatch, tmp_path) == (0, [])
    assert "not here" in capsys.readouterr().out


def test_declared_profiles_are_those_of_the_file_else_those_of_the_catalog(profiles, monkeypatch, tmp_path):
    file = tmp_path / "conformance.toml"
    file.write_text('profiles = ["dynamic", "smoke"]')
    monkeypatch.setattr(profiles, "shipped_declarations", lambda backend: file)
    assert profiles.declared("inductor", "0.1.0") == ["dynamic", "smoke"]
    monkeypatch.setattr(profiles, "shipped_declarations", lambda backend: None)
    assert profiles.declared("unheard_of", "1") == ["smoke"]
    assert {"smoke", "training"} <= set(profiles.declared("inductor", "0.1.0"))


# -- models through each backend --------------------------------------------------------------------------------------


def row(**changes) -> dict:
    made = dict.fromkeys(vendor_table.COLUMNS)
    return {**made, "model": "mlp", "backend": "some", "weights": "read", "eager_error": 3e-7, "note": "", **changes}


def test_a_model_through_a_backend_is_compared_timed_and_covered():
    threads = torch.get_num_threads()
    rows = vendor_table.measure("mlp", "aot_eager", 2, 1, "cpu")
    assert torch.get_num_threads() == threads
    assert [(one["backend"], one["weights"]) for one in rows] == [("aot_eager", "read"), ("aot_eager", "frozen")]
    for one in rows:
        assert one["error"] == one["eager_error"] and one["own"] == 1.0 and not vendor_table.wrong(one)
        assert min(one["run_us"], one["ratio"], one["inductor"]) > 0 and one["compile_s"] >= 0


def test_a_device_is_where_model_and_inputs_are_and_its_clock_waits_for_it(monkeypatch):
    from bench.subjects import SUBJECTS

    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    clock = vendor_table.clock_of("wall", "cuda:1")
    assert clock() <= clock() and waited == ["cuda:1"] * 2
    assert vendor_table.clock_of("cpu", "cpu") is vendor_table.CLOCKS["cpu"]
    there = SUBJECTS["mlp"]().on("meta")
    tensors = [*there.model.parameters(), *there.inputs.values()]
    assert {tensor.device.type for tensor in tensors} == {"meta"} and there.run(there.model)[0].shape == (64, 256)
    with pytest.raises(SystemExit):
        vendor_table.main(["--device", "cuda", "--clock", "cpu"])


def test_a_wrong_result_is_the_exit_status_and_a_missing_one_is_not(monkeypatch, capsys):
    given = {"right": row(error=4e-7), "wrong": row(error=1e-2), "absent": row(note="no such chip")}
    monkeypatch.setattr(vendor_table, "in_process", lambda model, backend, *_: [given[backend]])
    for names, status in (("right,absent", 0), ("right,wrong", 1)):
        assert vendor_table.main(["--models", "mlp", "--backends", names]) == status
    assert "no such chip" in capsys.readouterr().out


def test_a_table_that_was_interrupted_goes_on_behind_its_last_row(monkeypatch, tmp_path, capsys):
    asked = []

    def measured(model, backend, *_):
        asked.append(backend)
        return [row(backend=backend, error=1e-7)]

    monkeypatch.setattr(vendor_table, "in_process", measured)
    out = tmp_path / "table.json"
    for names in ("a,b", "a,b,c"):
        assert vendor_table.main(["--models", "mlp", "--backends", names, "--out", str(out)]) == 0
    assert asked == ["a", "b", "c"]
    assert [one["backend"] for one in json.loads(out.read_text())["rows"]] == ["a", "b", "c"]
    assert vendor_table.main(["--models", "mlp", "--backends", "a", "--out", str(out), "--rounds", "3"]) == 0
    assert asked[3:] == ["a"]
