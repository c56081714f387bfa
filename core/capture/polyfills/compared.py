"""functools.cmp_to_key in Python: keys that compare by a function of two objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Compared:
    """An object that stands in the order which a function says."""

    __slots__ = ("_compare", "obj")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, compare: Callable[[Any, Any], Any], obj: Any) -> None:
        self._compare = compare
        self.obj = obj

    def _against(self, other: Any) -> Any:
        if not isinstance(other, Compared):
            raise TypeError("other argument must be K instance")
        return self._compare(self.obj, other.obj)

    def __lt__(self, other: Any) -> Any:
        return self._against(other) < 0

    def __le__(self, other: Any) -> Any:
        return self._against(other) <= 0

    def __gt__(self, other: Any) -> Any:
        return self._against(other) > 0

    def __ge__(self, other: Any) -> Any:
        return self._against(other) >= 0

    def __eq__(self, other: Any) -> Any:
        return self._against(other) == 0


def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Callable[[Any], Compared]:
    """A function that makes the key of an object."""
    return lambda obj: Compared(mycmp, obj)
