"""What every test of the repository starts from."""

from __future__ import annotations

import signal

import pytest

# A shell without job control starts background jobs with the interrupt ignored, which would pass on to the programs
# that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def heard():
    """The events that are emitted while the test runs."""
    from core import events

    found = []
    stop = events.subscribe(found.append)
    yield found
    stop()
