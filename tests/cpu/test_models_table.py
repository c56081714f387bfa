"""The table of architectures: what a row says, what is complained of, and a stopped run that goes on."""

from __future__ import annotations

import json

import pytest
import torch

from bench import models_table, table_rows

FINE = {"name": "a", "mode": "infer", "implementation": "core:eager", "graphs": 1, "breaks": 0, "recompiles": 0}
FINE |= {"skipped": 0, "error": 0.0, "s": 0.1, "reasons": []}


@pytest.mark.parametrize("name", sorted(table_rows.OPTIMIZERS))
def test_an_optimizers_step_has_no_break_and_eagers_parameters(name):
    half = models_table.measure(name, "step", "core:eager", "wall")
    assert (half["breaks"], half["skipped"], half["error"]) == (0, 0, 0.0), half
    assert half["graphs"] == half["recompiles"] + 1  # the first step makes the optimizer's state


def test_a_row_counts_the_graphs_breaks_and_reasons_of_core():
    half = models_table.measure("unet", "train", "core:eager", "cpu")
    assert {key: half[key] for key in ("graphs", "breaks", "recompiles", "skipped", "error", "reasons")} == {
        "graphs": 1,
        "breaks": 0,
        "recompiles": 0,
        "skipped": 0,
        "error": 0.0,
        "reasons": [],
    }


def test_rows_are_complained_of_for_wrong_results_failures_and_breaks_that_the_peer_has_not():
    complaints = models_table.complaints
    assert complaints([FINE]) == complaints([FINE, {**FINE, "breaks": 2}]) == []
    assert complaints([{**FINE, "error": 1.0}]) == complaints([{**FINE, "error": float("nan")}]) == ["wrong result"]
    assert complaints([{**FINE, "breaks": 1}, FINE]) == complaints([{**FINE, "skipped": 1}, FINE]) == ["more breaks"]
    assert complaints([{"failed": "why"}, FINE]) == ["failed", "more breaks"]
    assert complaints([FINE, {"failed": "why"}]) == []


@pytest.mark.parametrize("draw", [torch.seed, lambda: None])
def test_a_model_that_eager_does_not_repeat_is_not_called_wrong(monkeypatch, draw):
    """Wrong results of core are complained of where eager gives its own results again, and nowhere else."""
    compiled = []

    def run(target):
        draw()
        return [torch.rand(4) + (target in compiled)]

    def compiler(implementation, target):
        compiled.append(target)
        return target, lambda: {"graphs": 1, "breaks": 0, "recompiles": 0, "skipped": 0, "reasons": []}

    rows = iter([(object(), run) for _ in range(3)])
    monkeypatch.setattr(table_rows, "row", lambda name, mode: table_rows.Row(*next(rows)))
    monkeypatch.setattr(models_table, "compiler", compiler)
    half = models_table.measure("any", "infer", "core:eager", "wall")
    if draw is torch.seed:
        assert (half["repeatable"], models_table.complaints([half])) == (False, [])
        assert "eager is not repeatable" in models_table.summary([[half]])
    else:
        assert (half["repeatable"], models_table.complaints([half])) == (True, ["wrong result"])
        assert "1 wrong or failed" in models_table.summary([[half]])


def test_a_stopped_run_goes_on_with_what_it_has_measured(monkeypatch, tmp_path, capsys):
    measured = []

    def in_process(name, mode, implementation, clock):
        measured.append((name, mode))
        return {**FINE, "name": name, "mode": mode, "implementation": implementation}

    monkeypatch.setattr(models_table, "in_process", in_process)
    arguments = ["--only", "lstm,sgd", "--state", str(tmp_path)]
    assert models_table.main([*arguments, "--modes", "train"]) == 0
    assert models_table.main(arguments) == models_table.main(arguments) == 0
    assert measured == [("lstm", "train"), ("lstm", "infer"), ("sgd", "step")]
    # another clock is another measurement
    assert models_table.main([*arguments, "--clock", "cpu", "--shard", "1/2"]) == 0
    assert measured[3:] == [("sgd", "step")]
    assert "core:inductor: 1 rows, 0 wrong or failed, 1 without a break, 0 breaks" in capsys.readouterr().out


def test_all_numbers_can_be_had_as_json_and_a_wrong_result_is_the_exit_status(monkeypatch, capsys):
    monkeypatch.setattr(models_table, "in_process", lambda *half: {**FINE, "error": 1.0})
    assert models_table.main(["--only", "sgd", "--json"]) == 1
    made = json.loads(capsys.readouterr().out)
    assert made["rows"][0][0]["error"] == 1.0
    assert set(made) == {"machine", "clock", "versions", "date", "rows"}
