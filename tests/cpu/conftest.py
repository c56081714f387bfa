"""Fixtures of the tests that need torch on a CPU."""

import os

os.environ.setdefault("CORE_STRICT", "1")

import pytest

import core


@pytest.fixture(autouse=True)
def fresh():
    """Each test starts with empty totals and leaves no compiled entries behind."""
    core.reset()
    yield
    core.reset()
