"""Printed Triton programs give eager's numbers: under Triton's interpreter, and on a GPU where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parent))
from triton_cases import CASES  # noqa: E402

sys.path.pop(0)


def run_cases(device: str, interpret: str) -> dict[str, tuple[float, str]]:
    """Case name -> (largest error over the allowed one, exception text), from a process of its own."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    result = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("triton_cases.py")), device],
        env={**os.environ, "TRITON_INTERPRET": interpret, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert result.returncode == 0, result.stderr
    lines = (line.split("|") for line in result.stdout.splitlines())
    return {name: (float(error), text) for name, error, text in lines}


@pytest.fixture(scope="module")
def errors():
    return run_cases("cpu", "1")


@pytest.fixture(scope="module")
def errors_on_gpu():
    return run_cases("cuda", "0")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", CASES)
def test_a_group_gives_the_numbers_of_eager_on_a_gpu(errors_on_gpu, name):
    error, text = errors_on_gpu[name]
    assert error <= 10.0, text or f"{error} times the allowed error of the interpreter"


@pytest.mark.parametrize("name", CASES)
def test_a_group_gives_the_numbers_of_eager(errors, name):
    if name == "softmax with symbolic sizes" and triton.__version__ < "3.7":
        pytest.skip("the interpreter of this Triton can't compare a block with a size")
    error, text = errors[name]
    assert error <= 1.0, text or f"{error} times the allowed error"
