"""Fixtures of the tests that need torch on a CPU."""

import os

os.environ.setdefault("CORE_STRICT", "1")

import pytest
from plugin_site import empty_site

import core


@pytest.fixture(autouse=True)
def fresh():
    """Each test starts with empty totals and leaves no compiled entries behind."""
    core.reset()
    yield
    core.reset()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An empty site folder; see plugin_site.empty_site."""
    yield from empty_site(tmp_path, monkeypatch)
