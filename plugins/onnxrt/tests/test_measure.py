"""The command that measures the plugin: which sides it has, what it waits for, what its exit status says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

import core

pytest.importorskip("onnxruntime")
pytest.importorskip("core_onnxrt")


@pytest.fixture
def measure(monkeypatch):
    spec = importlib.util.spec_from_file_location("measure", Path(__file__).resolve().parents[1] / "measure.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "measure", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CALLS", 2)
    core.reset()
    return module


def test_a_side_that_can_not_work_here_has_its_reason(measure, monkeypatch, capsys):
    sides = {"onnxrt": {"backend": "onnxrt"}, "of a GPU": {"backend": "tensorrt"}}
    monkeypatch.setattr(measure, "SIDES", sides)
    assert measure.main(["--rounds", "1", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert (
        out.count("of a GPU") == 2
        and "can't work on cpu" in out
        and "error" in out
        and "onnxruntime" in out.splitlines()[-1]
    )


def test_a_wrong_result_is_the_exit_status(measure, monkeypatch):
    monkeypatch.setattr(measure, "SIDES", {"onnxrt": {"backend": "onnxrt"}})
    errors = iter([1e-7, 1e-2] * 2)
    monkeypatch.setattr(measure, "worst", lambda got, reference: next(errors))
    assert measure.main(["--rounds", "1"]) == 1


def test_another_device_is_waited_for_before_the_clock_is_read(measure, monkeypatch):
    waited = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited.append)
    clock = measure.Clock("cuda:1")
    assert measure.seconds(lambda: None, 3, clock) >= 0 and waited == ["cuda:1"] * 2
    assert measure.Clock("cpu")() > 0 and len(waited) == 2
