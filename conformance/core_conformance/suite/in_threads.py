"""A check that several threads make at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any


def in_threads(check: Callable[[Any], None], values: Sequence[Any]) -> None:
    """check(value) for each value, each in a thread of its own. Raises the first failure once all have ended."""
    failures: list[BaseException] = []

    def run(value: Any) -> None:
        try:
            check(value)
        except (AssertionError, RuntimeError) as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
