"""Iterators that were under way before the traced code: what a loop across a graph break goes on with.

Nothing is used up while tracing: items that lie ahead are looked at in place, and are sources like any other, counted
from where the iterator stands, so that one entry serves each turn of a loop. When the graph has run, the real iterator
takes the steps that the traced code took.
"""

from __future__ import annotations

import gc
import operator
from typing import TYPE_CHECKING, Any, ClassVar

from .. import _C
from ..errors import Unsupported
from ..guards.checks import ItemsLeft, TypeIs
from ..guards.source import ItemAheadSource, IteratorPartSource
from .base import VariableTracker
from .container import advance
from .iterator import FilterCursor, IteratorVariable, MapCursor, ZipCursor
from .python_module import OpaqueVariable

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

MOST_COPIED = 64  # items of a dict or set that looking ahead may copy, on each call

IN_PLACE: tuple[type, ...] = tuple(
    map(type, (iter([]), iter(()), iter(range(0)), iter(range(1 << 70, 1 << 71)), iter(""), iter("\u0100"), iter(b"")))
)
BACKWARDS: tuple[type, ...] = (type(reversed([])), reversed)
_EMPTY: dict[int, int] = {}
_VIEWS: tuple[Any, ...] = (_EMPTY.keys(), _EMPTY.values(), _EMPTY.items())
COPIED: tuple[type, ...] = (
    type(iter(set())),
    *(type(walk(view)) for walk in (iter, reversed) for view in _VIEWS),
)


class LeafIteratorVariable(IteratorVariable):
    """An iterator over items that exist: of a list, tuple, range, str, dict or set."""

    writes_first: ClassVar[bool] = True  # before what it walks changes, for that may end it

    def __init__(self, value: Any, source: Any) -> None:
        super().__init__(self._produce, type(value))
        self.source = source
        self.value = value
        self.taken = 0
        self.ended = False
        self.numbered_by: OutsideEnumerateVariable | None = None

    def _produce(self, tx: Tracer) -> VT | None:
        if self.ended:
            return None
        if not all(tx.is_untouched(walked) for walked in gc.get_referents(self.value)):
            raise Unsupported(
                f"{self.describe()} walks over a container that the traced code has changed",
                remedy="loop over a copy of the container",
            )
        if _C.iterator_left(self.value) <= self.taken:
            tx.guard(self.source, ItemsLeft(self.taken, more=False))
            self.ended = True
            tx.side_effects.mutated(self)
            return None
        tx.guard(self.source, ItemsLeft(self.taken, more=True))
        item = tx.lazy(_C.iterator_ahead(self.value, self.taken), ItemAheadSource(self.source, self.taken))
        self.taken += 1
        tx.side_effects.mutated(self)
        return item

    def write_back(self, emit: Emitter) -> None:
        if self.numbered_by is None or not self.numbered_by.moved:
            step(emit, self, self.taken + self.ended)


class OutsideCursorVariable(IteratorVariable):
    """zip, map or filter over other iterators: these keep the state, each of them is a tracker of its own."""

    def __init__(self, cursor: Any, cls: type, source: Any) -> None:
        super().__init__(cursor, cls)
        self.source = source


class OutsideEnumerateVariable(IteratorVariable):
    """enumerate: it keeps the number, so it must take the steps itself, and its iterator no others."""

    writes_first: ClassVar[bool] = True

    def __init__(self, count: VT, iterator: VT, source: Any) -> None:
        super().__init__(self._produce, enumerate)
        self.source = source
        self.count = count
        self.iterator = iterator
        self.taken = 0
        self.ended = False
        self.numbered_by: OutsideEnumerateVariable | None = None
        claim(iterator, self)

    @property
    def moved(self) -> bool:
        """True when the traced code took a step."""
        return self.taken > 0 or self.ended

    def _produce(self, tx: Tracer) -> VT | None:
        if not steps_alone(self.iterator, self.taken, self.ended):
            raise Unsupported(
                f"{self.describe()} numbers the items of an iterator that is also read by itself",
                remedy="make the iterator inside the compiled function",
            )
        item = self.iterator.next_item(tx)
        tx.side_effects.mutated(self)
        if item is None:
            self.ended = True
            return None
        number = self.count
        if self.taken:
            number = tx.binary(operator.add, number, tx.constant(self.taken))
        self.taken += 1
        return tx.new_tuple([number, item])

    def write_back(self, emit: Emitter) -> None:
        if not steps_alone(self.iterator, self.taken, self.ended):
            raise self.refuse("reading by other means what it numbers")
        if self.numbered_by is None or not self.numbered_by.moved:
            step(emit, self, self.taken + self.ended)


def claim(iterator: VT, owner: OutsideEnumerateVariable) -> None:
    """The steps of `iterator`, and of those that it draws on, are taken by `owner`."""
    if isinstance(iterator, (LeafIteratorVariable, OutsideEnumerateVariable)):
        iterator.numbered_by = owner
    if isinstance(iterator, OutsideCursorVariable):
        for drawn in iterator.produce.iterators:  # type: ignore[attr-defined]
            claim(drawn, owner)


def steps_alone(iterator: VT, taken: int, ended: bool) -> bool:
    """True when `iterator` stands where this many next() calls, and one that found it ended, leave it."""
    if isinstance(iterator, (LeafIteratorVariable, OutsideEnumerateVariable)):
        return iterator.taken == taken and iterator.ended == ended
    if not isinstance(iterator, OutsideCursorVariable) or not isinstance(iterator.produce, ZipCursor):
        return False  # map and filter call functions, and not once more
    drawn = iterator.produce.iterators
    if not ended:
        return all(steps_alone(one, taken, False) for one in drawn)
    if iterator.produce.strict:
        return all(steps_alone(one, taken, True) for one in drawn)
    for place, one in enumerate(drawn):
        if steps_alone(one, taken, True):
            return all(steps_alone(other, taken, False) for other in drawn[place + 1 :])
        if not steps_alone(one, taken + 1, False):
            return False
    return False


def step(emit: Emitter, owner: VT, count: int) -> None:
    """Emit `count` steps of the real iterator; the last may find it ended."""
    if count == 1:
        emit.load_const(next)
        emit.load(owner)
        emit.load_const(None)
        emit.call(2)
    else:
        emit.load(owner)
        advance(emit, owner, count)
    emit.pop_top()


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real iterator of a builtin type."""
    cls = type(value)
    left = -1 if source is None or cls in PARTED else _C.iterator_left(value)
    if cls in COPIED and value.__length_hint__() > MOST_COPIED:
        left = -1
    tx.guard(source, TypeIs(cls))
    if source is not None and cls in PARTED:
        try:
            return _parted(tx, value, source)
        except Unsupported as refusal:  # of one that it draws on; it may still be passed around
            return OpaqueVariable(value, refusal.what, refusal.remedy, source)
    if left < 0:
        where = source.name() if source is not None else "an iterator"
        reason = f"{where} is a {cls.__name__} that was made outside the compiled function"
        remedy = "pass the list or the other iterable, and make the iterator inside"
        return OpaqueVariable(value, reason, remedy, source)
    return LeafIteratorVariable(value, source)


def _parted(tx: Tracer, value: Any, source: Any) -> VT:
    parts = value.__reduce__()[1]
    trackers = [tx.lazy(part, IteratorPartSource(source, place)) for place, part in enumerate(parts)]
    cls = type(value)
    if cls is enumerate:
        inner = trackers[0].realize(tx)
        if not steps_alone(inner, 0, False):
            return OpaqueVariable(
                value,
                f"an enumerate over a {inner.python_type().__name__} made outside is not traced",
                "make the iterator inside the compiled function",
                source,
            )
        return OutsideEnumerateVariable(trackers[1], inner, source)
    cursor: Any
    if cls is zip:
        cursor = ZipCursor(tx, *trackers, strict=tx.constant(len(value.__reduce__()) > 2))
    else:
        cursor = MapCursor(tx, *trackers) if cls is map else FilterCursor(tx, trackers[0], trackers[1])
    return OutsideCursorVariable(cursor, cls, source)


PARTED = (zip, map, filter, enumerate)
CLASSES = (*IN_PLACE, *BACKWARDS, *COPIED, *PARTED)
