"""What torch._check does with a bool read out of a tensor. The way to `raise` has no branch: see assumptions."""

from __future__ import annotations

from collections.abc import Callable


def demand(holds: bool, error: type[Exception], words: str) -> None:
    """Raise `error` with `words`."""
    if not holds:
        raise error(words)


def demand_saying(holds: bool, error: type[Exception], say: Callable[[], object]) -> None:
    """Raise `error` with what `say` gives."""
    if not holds:
        raise error(str(say()))
