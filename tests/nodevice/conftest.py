"""Fixtures of the tests that need no torch."""

import pytest
from plugin_site import empty_site


@pytest.fixture
def site(tmp_path, monkeypatch):
    """An empty site folder; see plugin_site.empty_site."""
    yield from empty_site(tmp_path, monkeypatch)
