"""Iterators that were under way before the traced code: what a loop across a graph break goes on with.

Nothing is used up while tracing: items that lie ahead are looked at in place, and are sources like any other, counted
from where the iterator stands, so that one entry serves each turn of a loop. When the graph has run, the real iterator
takes the steps that the traced code took.
"""

from __future__ import annotations

import gc
import itertools
import operator
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from .. import _C
from ..errors import Unsupported
from ..guards.checks import ItemsLeft, Length, TypeIs
from ..guards.source import CallSource, ItemAheadSource, IteratorPartSource, ListItemSource
from .base import VariableTracker
from .container import advance
from .iterator import FilterCursor, IteratorVariable, MapCursor, ZipCursor, iterator_of
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


def _nobody() -> None:
    """The owner of an iterator that takes its own steps."""


def is_stepped(owner: OutsideEnumerateVariable | None) -> bool:
    """Whether the steps of an iterator were taken by another that numbers or chains its items."""
    return owner is not None and owner.moved


class LeafIteratorVariable(IteratorVariable):
    """An iterator over items that exist: of a list, tuple, range, str, dict or set."""

    writes_first: ClassVar[bool] = True  # before what it walks changes, for that may end it

    def __init__(self, value: Any, source: Any) -> None:
        super().__init__(None, type(value))
        self.source = source
        self.value = value
        self.taken = 0
        self.ended = False
        self._owner: Callable[[], OutsideEnumerateVariable | None] = _nobody

    def next_item(self, tx: Tracer) -> VT | None:
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
        if not is_stepped(self._owner()):
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
        super().__init__(None, enumerate)
        self.source = source
        self.count = count
        self.iterator = iterator
        self.taken = 0
        self.ended = False
        self._owner: Callable[[], OutsideEnumerateVariable | None] = _nobody
        claim(iterator, self)

    @property
    def moved(self) -> bool:
        """True when the traced code took a step."""
        return self.taken > 0 or self.ended

    def next_item(self, tx: Tracer) -> VT | None:
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
        if not is_stepped(self._owner()):
            step(emit, self, self.taken + self.ended)


class OutsideChainVariable(OutsideEnumerateVariable):
    """itertools.chain: which iterator it is at is its own state, so it takes the steps itself, and its parts none."""

    def __init__(self, rest: VT, current: VT | None, source: Any) -> None:
        IteratorVariable.__init__(self, None, itertools.chain)
        self.source = source
        self.rest = rest
        self.current = current
        self.taken = 0
        self.ended = False
        self._owner = _nobody
        self.drawn: dict[int, tuple[VT, int, bool]] = {}  # by id: iterators, their steps, whether ended
        for part in (rest, current):
            if part is not None:
                self._draw_on(part)

    def _draw_on(self, iterator: VT) -> None:
        if iterator.source is None or id(iterator) in self.drawn:
            return
        if not steps_alone(iterator, 0, False):
            raise Unsupported(
                f"{self.describe()} draws on an iterator that has moved, or that can't be looked into",
                remedy="make the iterator inside the compiled function",
            )
        self.drawn[id(iterator)] = (iterator, 0, False)
        claim(iterator, self)

    def _next_of(self, tx: Tracer, iterator: VT) -> VT | None:
        self._check()
        item = iterator.next_item(tx)
        if id(iterator) in self.drawn:
            _, taken, _ = self.drawn[id(iterator)]
            self.drawn[id(iterator)] = (iterator, taken + (item is not None), item is None)
        return item

    def _check(self) -> None:
        if not all(steps_alone(*one) for one in self.drawn.values()):
            raise Unsupported(
                f"{self.describe()} draws on an iterator that is also read by itself",
                remedy="make the iterator inside the compiled function",
            )

    def next_item(self, tx: Tracer) -> VT | None:
        tx.side_effects.mutated(self)
        while not self.ended:
            if self.current is None:
                following = self._next_of(tx, self.rest)
                if following is None:
                    self.ended = True
                    break
                self.current = self._iterator(tx, following.realize(tx))
            item = self._next_of(tx, self.current)
            if item is not None:
                self.taken += 1
                return item
            self.current = None
        return None

    def _iterator(self, tx: Tracer, iterable: VT) -> VT:
        if iterable.python_type() not in CHAINED:
            raise Unsupported(
                f"{self.describe()} goes on to a {iterable.python_type().__name__}, which is not traced",
                remedy="make the iterator inside the compiled function",
            )
        iterator = iterator_of(tx, iterable)
        self._draw_on(iterator)
        return iterator

    def write_back(self, emit: Emitter) -> None:
        self._check()
        if not is_stepped(self._owner()):
            step(emit, self, self.taken + self.ended)


class OutsideCountVariable(OutsideEnumerateVariable):
    """itertools.count over ints."""

    def __init__(self, value: VT, by: VT | None, source: Any) -> None:
        IteratorVariable.__init__(self, None, itertools.count)
        self.source = source
        self.count = value
        self.by = by
        self.taken = 0
        self.ended = False
        self._owner = _nobody

    def next_item(self, tx: Tracer) -> VT | None:
        tx.side_effects.mutated(self)
        number = self.count
        if self.taken:
            far = tx.constant(self.taken)
            number = tx.binary(operator.add, number, far if self.by is None else tx.binary(operator.mul, self.by, far))
        self.taken += 1
        return number

    def write_back(self, emit: Emitter) -> None:
        if not is_stepped(self._owner()):
            step(emit, self, self.taken)


def claim(iterator: VT, owner: OutsideEnumerateVariable) -> None:
    """The steps of `iterator`, and of those that it draws on, are taken by `owner`."""
    if isinstance(iterator, (LeafIteratorVariable, OutsideEnumerateVariable)):
        iterator._owner = weakref.ref(owner)  # not the owner itself: it has the iterator, and would be a cycle
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
    if source is not None and cls in ITERTOOLS:
        try:
            return ITERTOOLS[cls](tx, value, source)
        except Unsupported as refusal:
            return OpaqueVariable(value, refusal.what, refusal.remedy, source)
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


def _chain(tx: Tracer, value: Any, source: Any) -> VT:
    parts = gc.get_referents(value)  # from 3.12 on its class, what is left to iterate over, the iterator it is at
    place = CallSource(source, gc.get_referents)
    tx.guard(place, Length(len(parts)))
    trackers = [
        tx.lazy(part, ListItemSource(place, at)).realize(tx)
        for at, part in enumerate(parts)
        if part is not itertools.chain
    ]
    if not trackers:
        ended = tx.new_iterator(lambda tx: None, itertools.chain)
        ended.source = source
        return ended
    return OutsideChainVariable(trackers[0], trackers[1] if len(trackers) > 1 else None, source)


def _count(tx: Tracer, value: Any, source: Any) -> VT:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        parts = value.__reduce__()[1] if hasattr(value, "__reduce__") else ()
    if said or not parts or not all(type(part) is int for part in parts):
        raise Unsupported(
            f"{source.name()} is a count that was made outside the compiled function",
            remedy="make the iterator inside",
        )
    trackers = [tx.lazy(part, IteratorPartSource(source, at)).realize(tx) for at, part in enumerate(parts)]
    return OutsideCountVariable(trackers[0], trackers[1] if len(trackers) > 1 else None, source)


PARTED = (zip, map, filter, enumerate)
ITERTOOLS: dict[Any, Callable[..., VT]] = {itertools.chain: _chain, itertools.count: _count}
CHAINED = (list, tuple, range, str, bytes, dict, set, frozenset, *IN_PLACE, *BACKWARDS, zip, enumerate)
"""What a chain may go on to: iter() of these runs no code of the program's."""
CLASSES = (*IN_PLACE, *BACKWARDS, *COPIED, *PARTED, *ITERTOOLS)
