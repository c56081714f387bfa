"""Meta tests: the suite is tested with backends that cheat."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the table and the cases are imported by their names
os.environ.setdefault("CORE_STRICT", "1")

import pytest  # noqa: E402
from core_conformance.evil.process import LeavesThreads  # noqa: E402
from core_conformance.surroundings import restore, state  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cheats-matrix", action="store_true", help="run every cheat of the table, the slow ones too")


@pytest.fixture
def matrix(request: pytest.FixtureRequest) -> bool:
    """Whether everything runs, however long it takes."""
    return bool(request.config.getoption("--cheats-matrix", default=False))


@pytest.fixture(autouse=True)
def settings_survive():
    """What a cheat changes in the process is put back."""
    before = state()
    LeavesThreads.stop.clear()
    yield
    LeavesThreads.stop.set()
    restore(before)
