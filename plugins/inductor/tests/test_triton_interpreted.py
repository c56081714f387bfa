"""Printed Triton programs give eager's numbers, run by Triton's interpreter in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parent))
from triton_cases import CASES  # noqa: E402

sys.path.pop(0)


@pytest.fixture(scope="module")
def errors():
    """Case name -> (largest error over the allowed one, exception text)."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("triton_cases.py"))],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.returncode == 0, result.stderr
    lines = (line.split("|") for line in result.stdout.splitlines())
    return {name: (float(error), text) for name, error, text in lines}


@pytest.mark.parametrize("name", CASES)
def test_a_group_gives_the_numbers_of_eager(errors, name):
    error, text = errors[name]
    assert error <= 1.0, text or f"{error} times the allowed error"
