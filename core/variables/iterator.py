"""Iterators made by the traced code; zip, enumerate, map and filter (itertools' own stand in itertool.py).

All are lazy: an item is computed when it is asked for, so that changes of the underlying containers and the order of
side effects are Python's. Each kind is a cursor, built from the arguments of the Python call. A cursor that can say how
to go on from where it stands can be given back to Python in the middle of a loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .base import BuiltinMethodVariable, ObservedException, VariableTracker, find_special
from .container import Cursor, as_index
from .literal import run

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
Args = Sequence[VT]


class IteratorVariable(VariableTracker):
    """An iterator. `produce(tx)` gives the next item or None; `cls` is its Python class.

    A class that produces its items itself overrides `next_item`: a method of its own, kept in it, would be a cycle, and
    what the trace holds would live until the next collection.
    """

    kind = "iterator"
    mutable = True

    def __init__(self, produce: Callable[[Tracer], VT | None] | None, cls: type) -> None:
        super().__init__(None)
        self.produce = produce
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx: Tracer) -> bool:
        return True

    def iterate(self, tx: Tracer) -> VT:
        return self

    def next_item(self, tx: Tracer) -> VT | None:
        assert self.produce is not None
        try:
            return self.produce(tx)
        except ObservedException as raised:  # of a function that it calls: the end, as Python takes it
            if issubclass(raised.value.python_type(), StopIteration):
                return None
            raise

    def contains(self, tx: Tracer, item: VT) -> bool:
        while (candidate := self.next_item(tx)) is not None:
            if tx.compare_equal(candidate, item):
                return True
        return False

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("__iter__", "__next__"):
            return BuiltinMethodVariable(self, name)
        inherited = self.inherited(tx, name)
        if inherited is None:
            tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        return inherited

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: dict[str, VT]) -> VT:
        if name == "__iter__":
            return self
        if name == "__next__":
            item = self.next_item(tx)
            if item is None:
                tx.raise_exception(StopIteration)
            return item
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, emit: Emitter) -> None:
        if not isinstance(self.produce, Cursor):
            raise self.refuse("giving the iterator back to Python")
        self.produce.reconstruct(emit, self)

    def write_back(self, emit: Emitter) -> None:
        """Nothing: `reconstruct` makes the iterator where it stands."""


def iterator_of(tx: Tracer, iterable: VT) -> VT:
    """iter(object)."""
    iterable = iterable.realize(tx)
    cls = iterable.python_type()
    if find_special(cls, "__iter__") is None and find_special(cls, "__getitem__") is None:
        tx.raise_exception(TypeError, f"'{cls.__name__}' object is not iterable")
    return iterable.iterate(tx).realize(tx)


class CallCursor(Cursor):
    """A cursor that is given back as `cls(*arguments)`: the call that makes an iterator standing here."""

    cls: Any

    def rebuild(self) -> tuple[Any, list[Any], dict[str, Any]] | None:
        """(callable, arguments, keywords), trackers or plain constants; None where no call does."""
        return None

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        found = self.rebuild()
        if found is None:
            raise owner.refuse("giving a partly consumed iterator back to Python")
        function, args, keywords = found
        emit.push_null()
        emit.load_global_object(function)
        for arg in (*args, *keywords.values()):
            if isinstance(arg, VariableTracker):
                emit.load(arg)
            else:
                emit.load_const(arg)
        if keywords:
            emit.call_keywords(tuple(keywords), len(args) + len(keywords))
        else:
            emit.call(len(args))


class ZipCursor(CallCursor):
    """zip(*iterables, strict=False)."""

    def __init__(self, tx: Tracer, *iterables: VT, strict: VT | None = None) -> None:
        self.iterators = [iterator_of(tx, iterable) for iterable in iterables]
        self.strict = strict is not None and tx.truth(strict.realize(tx))

    def __call__(self, tx: Tracer) -> VT | None:
        if not self.iterators:
            return None
        items: list[VT] = []
        for place, iterator in enumerate(self.iterators):
            item = iterator.next_item(tx)
            if item is None:
                if self.strict:
                    self._check(tx, place)
                return None
            items.append(item)
        return tx.new_tuple(items)

    def _check(self, tx: Tracer, place: int) -> None:
        def name(count: int) -> str:
            return "argument 1" if count == 1 else f"arguments 1-{count}"

        if place > 0:
            tx.raise_exception(ValueError, f"zip() argument {place + 1} is shorter than {name(place)}")
        for other in range(1, len(self.iterators)):
            if self.iterators[other].next_item(tx) is not None:
                tx.raise_exception(ValueError, f"zip() argument {other + 1} is longer than {name(other)}")

    def rebuild(self) -> Any:
        return zip, self.iterators, {"strict": True} if self.strict else {}


class EnumerateCursor(CallCursor):
    """enumerate(iterable, start=0)."""

    def __init__(self, tx: Tracer, iterable: VT, start: VT | None = None) -> None:
        self.iterator = iterator_of(tx, iterable)
        self.count = as_index(tx, start) if start is not None else 0

    def __call__(self, tx: Tracer) -> VT | None:
        item = self.iterator.next_item(tx)
        if item is None:
            return None
        self.count += 1
        return tx.new_tuple([tx.constant(self.count - 1), item])

    def rebuild(self) -> Any:
        return enumerate, [self.iterator, self.count], {}


class MapCursor(CallCursor):
    """map(function, *iterables)."""

    def __init__(self, tx: Tracer, function: VT, *iterables: VT) -> None:
        if not iterables:
            tx.raise_exception(TypeError, "map() must have at least two arguments.")
        self.function = function.realize(tx)
        self.iterators = [iterator_of(tx, iterable) for iterable in iterables]

    def __call__(self, tx: Tracer) -> VT | None:
        items = []
        for iterator in self.iterators:
            item = iterator.next_item(tx)
            if item is None:
                return None
            items.append(item)
        return tx.call_function(self.function, items, {})

    def rebuild(self) -> Any:
        return map, [self.function, *self.iterators], {}


class FilterCursor(CallCursor):
    """filter(function, iterable), and filterfalse with `wanted` False."""

    def __init__(self, tx: Tracer, function: VT, iterable: VT, wanted: bool = True) -> None:
        self.function = function.realize(tx)
        self.iterator = iterator_of(tx, iterable)
        self.wanted = wanted

    def __call__(self, tx: Tracer) -> VT | None:
        while (item := self.iterator.next_item(tx)) is not None:
            if passes(tx, self.function, item) == self.wanted:
                return item
        return None

    def rebuild(self) -> Any:
        return (filter if self.wanted else itertools.filterfalse), [self.function, self.iterator], {}


def passes(tx: Tracer, function: VT, item: VT) -> bool:
    if function.kind == "constant" and function.as_constant() is None:
        return tx.truth(item.realize(tx))
    return tx.truth(tx.call_function(function, [item], {}))


class SentinelCursor(CallCursor):
    """iter(callable, sentinel)."""

    def __init__(self, tx: Tracer, function: VT, sentinel: VT) -> None:
        self.function = function.realize(tx)
        self.sentinel = sentinel.realize(tx)
        self.done = False

    def __call__(self, tx: Tracer) -> VT | None:
        if self.done:
            return None
        item = tx.call_function(self.function, [], {})
        if tx.compare_equal(item, self.sentinel):
            self.done = True
            return None
        return item

    def rebuild(self) -> Any:
        return (iter, [int, 0], {}) if self.done else (iter, [self.function, self.sentinel], {})


def make_sentinel_iterator(tx: Tracer, function: VT, sentinel: VT) -> VT:
    """iter(callable, sentinel)."""
    if not callable_type(function.realize(tx)):
        run(tx, iter, [None, None])  # raises what Python raises
    return tx.new_iterator(SentinelCursor(tx, function, sentinel), type(iter(int, 1)))


def callable_type(tracker: VT) -> bool:
    """callable(object)."""
    return find_special(tracker.python_type(), "__call__") is not None
