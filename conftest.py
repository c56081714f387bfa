"""What every test of the repository starts from."""

from __future__ import annotations

import signal
import zlib
from collections.abc import Sequence

import pytest

# A shell without job control starts background jobs with the interrupt ignored, which would pass on to the programs
# that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow", default="none", metavar="none|all|SHARD/SHARDS", help="which of the tests that are marked slow run"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: starts processes or takes seconds; `--slow` says whether it runs")
    try:
        _slow_shard(config.getoption("--slow"))
    except ValueError as error:
        raise pytest.UsageError(f"--slow takes none, all or SHARD/SHARDS, such as 0/4: {error}") from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    shard, shards = _slow_shard(config.getoption("--slow"))
    dropped = [item for item in items if item.get_closest_marker("slow") and not _is_of(item, shard, shards)]
    if dropped and not _are_files(config.args):  # what is asked for by its file or its name runs
        config.hook.pytest_deselected(items=dropped)
        left_out = set(dropped)
        items[:] = [item for item in items if item not in left_out]


def _slow_shard(option: str) -> tuple[int, int]:
    """The shard of the slow tests that runs, and how many there are; of no shards none runs."""
    if option in ("none", "all"):
        return 0, int(option == "all")
    shard, shards = map(int, option.split("/"))
    if not 0 <= shard < shards:
        raise ValueError(f"there is no shard {shard} of {shards}")
    return shard, shards


def _is_of(item: pytest.Item, shard: int, shards: int) -> bool:
    return bool(shards) and zlib.crc32(item.nodeid.encode()) % shards == shard


def _are_files(args: Sequence[str]) -> bool:
    return all(".py" in argument for argument in args)


@pytest.fixture
def heard():
    """The events that are emitted while the test runs."""
    from core import events

    found = []
    stop = events.subscribe(found.append)
    yield found
    stop()
