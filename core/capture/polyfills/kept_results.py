"""What stands for objects of C that traced code makes for itself: functools.lru_cache's wrapper, and locks.

They live in the trace alone: one that would have to be given back to Python ends the graph before it is made.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any


class KeptResults:
    """A function that keeps its results by its arguments; the ones not asked for longest go first."""

    def __init__(self, function: Callable[..., Any], maxsize: int | None, typed: bool, info: Any) -> None:
        self._function, self._most, self._typed, self._info = function, maxsize, typed, info
        self._kept: dict[Any, Any] = {}
        self._hits = self._misses = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._most == 0:
            self._misses += 1
            return self._function(*args, **kwargs)
        key = key_of(args, kwargs, self._typed)
        kept = self._kept
        if key in kept:
            self._hits += 1
            result = kept[key]
            if self._most is not None:
                del kept[key]  # it goes to the end
                kept[key] = result
            return result
        self._misses += 1
        result = self._function(*args, **kwargs)
        if key not in kept:  # the function may have called itself
            if self._most is not None and len(kept) >= self._most:
                del kept[next(iter(kept))]
            kept[key] = result
        return result

    def __get__(self, receiver: Any, owner: Any = None) -> Any:
        return self if receiver is None else types.MethodType(self, receiver)

    def cache_info(self) -> Any:
        """(hits, misses, most, now), in the class that the maker gave."""
        return self._info(self._hits, self._misses, self._most, len(self._kept))

    def cache_clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._hits = self._misses = 0


def key_of(args: tuple[Any, ...], kwargs: dict[str, Any], typed: bool) -> Any:
    """Equal for calls that the real wrapper takes for one: a lone int is another key than a float equal to it."""
    if not kwargs and not typed and len(args) == 1 and type(args[0]) in (int, str):
        return args[0]
    key = (args, tuple(kwargs.items()))
    if typed:
        key += (tuple([type(value) for value in args]), tuple([type(value) for value in kwargs.values()]))
    return key


class FreeLock:
    """A lock that traced code makes: no other thread can hold it, for none knows it."""

    def __init__(self) -> None:
        self._held = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Hold it once more."""
        self._held += 1
        return True

    def release(self) -> None:
        """Hold it once less."""
        if not self._held:
            raise RuntimeError("cannot release un-acquired lock")
        self._held -= 1

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: Any) -> None:
        self.release()


class FreeOnce(FreeLock):
    """A lock that nobody may take twice."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Hold it; False where it is held."""
        if self._held:
            if not blocking:
                return False
            wait_for_nobody()
        self._held = 1
        return True

    def release(self) -> None:
        """Hold it no more."""
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = 0

    def locked(self) -> bool:
        """Whether it is held."""
        return self._held > 0


def wait_for_nobody() -> None:
    """What only the real lock can do."""


wait_for_nobody._core_disable = "a lock that the function holds is taken again"  # type: ignore[attr-defined]
