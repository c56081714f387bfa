"""sorted() and list.sort() over trackers."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


class _Ordered:
    """A sort key whose `<` is traced."""

    __slots__ = ("key", "tx")

    def __init__(self, tx: Tracer, key: VT) -> None:
        self.tx = tx
        self.key = key

    def __lt__(self, other: _Ordered) -> bool:
        return self.tx.truth(self.tx.binary(operator.lt, self.key, other.key))


class EmptyForSort(list[VT]):
    """What a list holds while it is sorted; it remembers that something was put in, also where that is gone again."""

    filled = False

    def append(self, item: VT) -> None:
        self.filled = True
        super().append(item)

    def extend(self, items: Iterable[VT]) -> None:
        before = len(self)
        super().extend(items)
        self.filled = self.filled or len(self) > before

    def insert(self, index: SupportsIndex, item: VT) -> None:
        self.filled = True
        super().insert(index, item)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.filled = self.filled or bool(self)


def sort_items(tx: Tracer, items: Sequence[VT], key: VT | None, descending: bool) -> list[VT]:
    """The items in the order of sorted()."""
    result = list(items)
    sort_in_place(tx, result, key, descending)
    return result


def sort_in_place(tx: Tracer, items: list[VT], key: VT | None, descending: bool) -> None:
    """list.sort: stable, by the same comparisons as Python's; one that raises leaves the list as far as it came."""
    realized = [item.realize(tx) for item in items]
    if key is not None:
        function = key.realize(tx)
        if not (function.kind == "constant" and function.as_constant() is None):
            realized = [tx.call_function(function, [item], {}).realize(tx) for item in realized]
    keys = [_Ordered(tx, item) for item in realized]
    order = list(range(len(keys)))
    try:
        order.sort(key=keys.__getitem__, reverse=descending)
    finally:
        items[:] = [items[place] for place in order]
