"""collections.deque.

A deque from outside whose content nothing has asked for stays unread: appending to it needs no guard, and only the new
items are written, so that one entry serves a program that keeps the last losses, or what it saw.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..guards.checks import Length, Predicate, TypeIs
from ..guards.source import CallSource, ListItemSource
from .base import VariableTracker
from .container import (
    ORDERINGS,
    ContainerVariable,
    Cursor,
    advance,
    as_index,
    compare_sequences,
    same,
)
from .literal import is_plain

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
DEQUE_ITERATOR: type = type(iter(collections.deque()))
DEQUE_REVERSED: type = type(reversed(collections.deque()))


def from_value(tx: Tracer, value: collections.deque[Any], source: Any) -> VT:
    """The tracker of a real deque; its exact type is guarded."""
    tx.guard(source, TypeIs(type(value)))
    return contents(tx, value, source).standing_for(value)


def contents(tx: Tracer, value: collections.deque[Any], source: Any) -> DequeVariable:
    """As from_value without the guard on the type: for the contents of an object whose class extends deque."""
    if source is None:
        return DequeVariable([tx.lazy(item, None) for item in deque_items(value)], value.maxlen)
    made = DequeVariable(source=source)
    made.later = functools.partial(_read, tx, value, source)
    return made


def _read(tx: Tracer, value: collections.deque[Any], source: Any) -> collections.deque[VT]:
    """What is in a deque from outside. One of literals is guarded by value; others are reached through a list."""
    items = deque_items(value)
    if all(map(is_plain, items)):
        tx.guard(source, Predicate((source,), SameDeque(value)))
        return collections.deque((tx.lazy(item, None) for item in items), value.maxlen)
    place = CallSource(source, deque_items)
    tx.guard(place, Length(len(items)))
    tx.guard(source, Predicate((source,), SameBound(value.maxlen)))
    return collections.deque((tx.lazy(item, ListItemSource(place, i)) for i, item in enumerate(items)), value.maxlen)


def deque_items(value: collections.deque[Any]) -> list[Any]:
    """What the deque holds, whatever its class makes of iteration."""
    return list(collections.deque.__iter__(value))


class SameBound:
    """A predicate for guards: a deque has this maxlen."""

    __qualname__ = "SameBound"

    def __init__(self, maxlen: int | None) -> None:
        self.maxlen = maxlen

    def __call__(self, value: collections.deque[Any]) -> bool:
        return value.maxlen == self.maxlen


class SameDeque:
    """A predicate for guards: a deque has these items, types included, and this maxlen."""

    __qualname__ = "SameDeque"

    def __init__(self, value: collections.deque[Any]) -> None:
        self.content = self._content(value)

    @staticmethod
    def _content(value: collections.deque[Any]) -> Any:
        return value.maxlen, [(type(item), item) for item in value]

    def __call__(self, value: collections.deque[Any]) -> bool:
        return bool(self.content == self._content(value))


class DequeVariable(ContainerVariable):
    """A deque. `items` is a real deque of trackers, so that bounds and rotation are Python's.

    later: gives the items of one that is unread. added: what was appended to it since.
    """

    kind = "deque"

    def __init__(self, items: Iterable[VT] = (), maxlen: int | None = None, source: Any = None) -> None:
        super().__init__(source)
        self._items: collections.deque[VT] = collections.deque(items, maxlen)
        self.later: Callable[[], collections.deque[VT]] | None = None
        self.added: list[VT] = []
        self.version = 0

    @property
    def items(self) -> collections.deque[VT]:
        """The items, which the entry depends on from here on."""
        if self.later is not None:
            later, self.later = self.later, None
            self._items = later()
            self._items.extend(self.added)
        return self._items

    def python_type(self) -> type:
        return collections.deque

    def look_inside(self, tx: Tracer) -> VT:
        for item in list(self.items):
            item.look_inside(tx)
        return self

    def truth(self, tx: Tracer) -> bool:
        return bool(self.items)

    def length(self, tx: Tracer) -> VT:
        return tx.constant(len(self.items))

    def unpack(self, tx: Tracer) -> list[VT]:
        return list(self.items)

    def contains(self, tx: Tracer, item: VT) -> bool:
        return any(same(tx, candidate, item) for candidate in list(self.items))

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        peer = self.payload_like(other)
        if not isinstance(peer, DequeVariable):
            return None
        if len(self.items) != len(peer.items):
            return tx.constant(False)
        return tx.constant(all(same(tx, a, b) for a, b in zip(list(self.items), list(peer.items))))

    def get_attr(self, tx: Tracer, name: str) -> VT:
        return tx.constant(self.items.maxlen) if name == "maxlen" else super().get_attr(tx, name)

    def _change(self, tx: Tracer) -> None:
        tx.side_effects.mutated(self)
        self.version += 1

    def _checked(self, tx: Tracer, action: Any) -> Any:
        # items is a real deque: its own errors are the ones that Python would raise
        try:
            return action()
        except (IndexError, ValueError) as error:
            tx.raise_exception(type(error), *error.args)

    # -- item access -----------------------------------------------------------------------------------------------

    def _place(self, tx: Tracer, key: VT) -> int:
        key = key.realize(tx)
        return as_index(tx, key, "sequence index must be integer, not '{}'")

    def op_len(self, tx: Tracer, /) -> VT:
        return self.length(tx)

    def op_contains(self, tx: Tracer, item: VT, /) -> VT:
        return tx.constant(self.contains(tx, item))

    def op_getitem(self, tx: Tracer, key: VT, /) -> VT:
        place = self._place(tx, key)
        return self._checked(tx, lambda: self.items[place]).realize(tx)

    def op_setitem(self, tx: Tracer, key: VT, value: VT, /) -> None:
        place = self._place(tx, key)
        self._checked(tx, lambda: self.items[place])
        tx.side_effects.mutated(self)
        self.items[place] = value

    def op_delitem(self, tx: Tracer, key: VT, /) -> None:
        place = self._place(tx, key)
        self._checked(tx, lambda: self.items[place])
        self._change(tx)
        del self.items[place]

    def op_iter(self, tx: Tracer, /) -> VT:
        return tx.new_iterator(DequeCursor(self, False), DEQUE_ITERATOR)

    def op_reversed(self, tx: Tracer, /) -> VT:
        return tx.new_iterator(DequeCursor(self, True), DEQUE_REVERSED)

    # -- operators -------------------------------------------------------------------------------------------------

    def _order(self, tx: Tracer, name: str, other: VT) -> VT:
        peer = self.payload_like(other.realize(tx))
        if not isinstance(peer, DequeVariable):
            return tx.constant(NotImplemented)
        return compare_sequences(tx, ORDERINGS[name], list(self.items), list(peer.items))

    def op_lt(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "lt", other)

    def op_le(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "le", other)

    def op_gt(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "gt", other)

    def op_ge(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "ge", other)

    def _like(self, tx: Tracer, items: Iterable[VT]) -> VT:
        return DequeVariable(items, self.items.maxlen)

    def op_add(self, tx: Tracer, other: VT, /) -> VT:
        peer = self.payload_like(other.realize(tx))
        if not isinstance(peer, DequeVariable):
            return tx.constant(NotImplemented)
        return self._like(tx, [*self.items, *peer.items])

    def op_mul(self, tx: Tracer, count: VT, /) -> VT:
        count = count.realize(tx)
        if count.lookup_special(tx, "__index__") is None:
            return tx.constant(NotImplemented)
        times = as_index(tx, count)
        return self._like(tx, operator.mul(list(self.items), times))

    op_rmul = op_mul

    def op_iadd(self, tx: Tracer, other: VT, /) -> VT:
        self.do_extend(tx, other)
        return self

    def op_imul(self, tx: Tracer, count: VT, /) -> VT:
        count = count.realize(tx)
        if count.lookup_special(tx, "__index__") is None:
            return tx.constant(NotImplemented)
        times = as_index(tx, count)
        items = self.items
        self._change(tx)
        items *= times
        return self

    # -- methods ---------------------------------------------------------------------------------------------------

    def do_append(self, tx: Tracer, item: VT, /) -> None:
        self._change(tx)
        (self.items if self.later is None else self.added).append(item)

    def do_appendleft(self, tx: Tracer, item: VT, /) -> None:
        self._change(tx)
        self.items.appendleft(item)

    def _extend(self, tx: Tracer, iterable: VT, add: Any) -> None:
        iterable = iterable.realize(tx)
        if iterable is self:
            for item in list(self.items):
                add(tx, item)
            return
        iterator = iterable.iterate(tx).realize(tx)
        while (found := iterator.next_item(tx)) is not None:
            add(tx, found)

    def do_extend(self, tx: Tracer, iterable: VT, /) -> None:
        self._extend(tx, iterable, self.do_append)

    def do_extendleft(self, tx: Tracer, iterable: VT, /) -> None:
        self._extend(tx, iterable, self.do_appendleft)

    def do_pop(self, tx: Tracer, /) -> VT:
        if self.items:
            self._change(tx)
        return self._checked(tx, self.items.pop).realize(tx)

    def do_popleft(self, tx: Tracer, /) -> VT:
        if self.items:
            self._change(tx)
        return self._checked(tx, self.items.popleft).realize(tx)

    def do_clear(self, tx: Tracer, /) -> None:
        self._change(tx)
        self.items.clear()

    def do_copy(self, tx: Tracer, /) -> VT:
        return self._like(tx, self.items)

    op_copy = do_copy

    def do_reverse(self, tx: Tracer, /) -> None:
        tx.side_effects.mutated(self)
        self.items.reverse()

    def do_rotate(self, tx: Tracer, n: VT | None = None, /) -> None:
        steps = as_index(tx, n) if n is not None else 1
        self._change(tx)
        self.items.rotate(steps)

    def do_insert(self, tx: Tracer, index: VT, item: VT, /) -> None:
        place = as_index(tx, index)
        if self.items.maxlen is not None and len(self.items) >= self.items.maxlen:
            tx.raise_exception(IndexError, "deque already at its maximum size")
        self._change(tx)
        self.items.insert(place, item)

    def do_count(self, tx: Tracer, item: VT, /) -> VT:
        return tx.constant(sum(same(tx, candidate, item) for candidate in list(self.items)))

    def do_index(self, tx: Tracer, item: VT, start: VT | None = None, stop: VT | None = None, /) -> VT:
        window = slice(
            as_index(tx, start) if start is not None else 0, as_index(tx, stop) if stop is not None else None
        )
        places = range(len(self.items))[window]
        for place in places:
            if same(tx, self.items[place], item):
                return tx.constant(place)
        item = item.realize(tx)
        text = repr(item.as_constant()) if item.is_constant() else item.describe()
        tx.raise_exception(ValueError, f"{text} is not in deque")

    def do_remove(self, tx: Tracer, item: VT, /) -> None:
        for place, candidate in enumerate(list(self.items)):
            if same(tx, candidate, item):
                self._change(tx)
                del self.items[place]
                return
        item = item.realize(tx)
        text = repr(item.as_constant()) if item.is_constant() else item.describe()
        tx.raise_exception(ValueError, f"{text} is not in deque")

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(collections.deque)
        emit.load_const(())
        emit.load_const(self.items.maxlen)
        emit.call(2)
        emit.remember(self)
        self._emit_fill(emit)

    def _emit_fill(self, emit: Emitter) -> None:
        # stack: deque -> deque
        for item in self.items:
            emit.copy_top()
            emit.call_method("append", [item])
            emit.pop_top()

    def write_back(self, emit: Emitter) -> None:
        # the items first: some may be reached through the deque itself, which is emptied then
        unread = self.later is not None
        items = self.added if unread else self.items
        emit.push_null()
        emit.load_const(collections.deque.extend if unread else refill)
        emit.load(self)
        for item in items:
            emit.load(item)
        emit.build_list(len(items))
        emit.call(2)
        emit.pop_top()


def refill(place: collections.deque[Any], items: list[Any]) -> None:
    """Give a deque other items."""
    collections.deque.clear(place)
    collections.deque.extend(place, items)


class DequeCursor(Cursor):
    """Iteration over a deque, which notices every change of its shape."""

    def __init__(self, owner: DequeVariable, backwards: bool) -> None:
        self.owner: DequeVariable | None = owner
        self.backwards = backwards
        self.version = owner.version
        self.given = 0

    def __call__(self, tx: Tracer) -> VT | None:
        owner = self.owner
        if owner is None:
            return None
        if owner.version != self.version:
            self.owner = None
            tx.raise_exception(RuntimeError, "deque mutated during iteration")
        if self.given >= len(owner.items):
            self.owner = None
            return None
        self.given += 1
        return owner.items[-self.given if self.backwards else self.given - 1].realize(tx)

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        emit.push_null()
        emit.load_global_object(reversed if self.backwards else iter)
        if self.owner is None:
            emit.load_const(())
            emit.call(1)
            return
        if self.owner.version != self.version:
            raise owner.refuse("giving the iterator of a changed deque back to Python")
        emit.load(self.owner)
        emit.call(1)
        advance(emit, owner, self.given)
