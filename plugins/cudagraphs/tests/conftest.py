"""Shared by the plugin's tests on a GPU; they are skipped where torch finds none."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # gpu_runs.py stands beside the tests

import core  # noqa: E402


@pytest.fixture
def gpu():
    """A GPU on which nothing is captured yet, and a seed."""
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU of CUDA here")
    core.reset()
    torch.manual_seed(0)
    yield
    core.reset()
    gc.collect()
    torch.cuda.synchronize()
