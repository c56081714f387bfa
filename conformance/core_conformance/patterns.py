"""Patterns of test ids: `*` and `?` as in a shell, all else as it stands; brackets are part of ids."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in pattern), re.S)


def matches(pattern: str, test: str) -> bool:
    """Whether the whole id fits the pattern."""
    return _compiled(pattern).fullmatch(test) is not None


def matches_any(patterns: Iterable[str], test: str) -> bool:
    """Whether an id fits one of several patterns."""
    return any(matches(pattern, test) for pattern in patterns)
