"""Fixtures of the tests that need torch on a CPU."""

import os

os.environ.setdefault("CORE_STRICT", "1")

import pytest
from plugin_site import empty_site

import core
from core import events


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


@pytest.fixture
def heard():
    """The events that are emitted while the test runs."""
    found = []
    stop = events.subscribe(found.append)
    yield found
    stop()
