"""heapq and bisect in Python, with the comparisons of the C code in its order, for items that only a run can tell."""

from __future__ import annotations

from typing import Any


def heappush(heap: list[Any], item: Any) -> None:
    """Add an item."""
    heap.append(item)
    _rise(heap, 0, len(heap) - 1)


def heappop(heap: list[Any]) -> Any:
    """Take the smallest item out."""
    last = heap.pop()
    if not heap:
        return last
    smallest, heap[0] = heap[0], last
    _sink(heap, 0)
    return smallest


def heapify(heap: list[Any]) -> None:
    """Make a heap of a list."""
    for place in reversed(range(len(heap) // 2)):
        _sink(heap, place)


def heappushpop(heap: list[Any], item: Any) -> Any:
    """Add an item, then take the smallest out."""
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        _sink(heap, 0)
    return item


def heapreplace(heap: list[Any], item: Any) -> Any:
    """Take the smallest item out, then add one."""
    smallest = heap[0]
    heap[0] = item
    _sink(heap, 0)
    return smallest


def nsmallest(n: int, iterable: Any, key: Any = None) -> list[Any]:
    """The n smallest items, smallest first."""
    return sorted(iterable, key=key)[: max(n, 0)]


def nlargest(n: int, iterable: Any, key: Any = None) -> list[Any]:
    """The n largest items, largest first."""
    return sorted(iterable, key=key, reverse=True)[: max(n, 0)]


def _rise(heap: list[Any], start: int, place: int) -> None:
    item = heap[place]
    while place > start:
        above = (place - 1) // 2
        if not item < heap[above]:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = item


def _sink(heap: list[Any], place: int) -> None:
    start, item, end = place, heap[place], len(heap)
    below = 2 * place + 1
    while below < end:  # to the bottom without a look at the item, then up again to where it belongs
        if below + 1 < end and not heap[below] < heap[below + 1]:
            below += 1
        heap[place] = heap[below]
        place, below = below, 2 * below + 1
    heap[place] = item
    _rise(heap, start, place)


def bisect_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    """The place behind all items that are not larger."""
    lo, hi = _within(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def bisect_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    """The place before all items that are not smaller."""
    lo, hi = _within(a, lo, hi)
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def insort_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    """Insert behind the items that are not larger."""
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


def insort_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    """Insert before the items that are not smaller."""
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


def _within(a: Any, lo: int, hi: int | None) -> tuple[int, int]:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    return lo, len(a) if hi is None else hi
