"""Shared by the plugin's tests: every test has a kernel cache of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # compiled_graphs.py stands beside the tests


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    """A fresh folder for built kernels; the libraries of earlier tests are forgotten."""
    from core_inductor.runtime import build

    monkeypatch.setenv("CORE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(build, "_caches", {})
    monkeypatch.setattr(build, "_loaded", type(build._loaded)())
    return tmp_path / "cache" / "inductor"
