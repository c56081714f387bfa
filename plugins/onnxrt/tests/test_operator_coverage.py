"""The table of what a backend leaves to the fallback, on one model of each kind."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("core_onnxrt")
pytest.importorskip("transformers")
pytest.importorskip("core_tvm")
pytest.importorskip("tvm")
coverage = pytest.importorskip("bench.operator_coverage")


def rows_of(capsys, *arguments):
    status = coverage.main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)["rows"]


def test_models_with_shared_keys_and_recurrent_ones_are_the_runtime_s_whole(capsys):
    status, rows = rows_of(capsys, "--only", "llama,lstm,transformer,recommender")
    assert status == 0
    assert [row["model"] for row in rows] == ["llama", "lstm", "transformer", "recommender"]
    assert all(row["graphs"] == 1 and row["divided"] == 0 and row["left"] == [] for row in rows)


def test_what_is_left_is_counted_by_operator_with_its_reason(capsys):
    status, rows = rows_of(capsys, "--backend", "tvm", "--only", "recommender")
    assert status == 0 and rows[0]["error"] < 1e-6
    (operator, reason, nodes), *_ = rows[0]["left"]
    assert operator.startswith("aten.") and reason and nodes >= 1
