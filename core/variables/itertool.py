"""The iterators of the itertools module, and `make`, which builds the iterator that a call asks for."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .base import VariableTracker, has_special
from .container import Cursor, as_index, call_checked
from .iterator import CallCursor, EnumerateCursor, FilterCursor, MapCursor, ZipCursor, iterator_of, passes
from .literal import run

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
Args = Sequence[VT]
GROUP_CLASS = type(next(itertools.groupby("a"))[1])


class ChainCursor(CallCursor):
    """itertools.chain.from_iterable(iterables)."""

    def __init__(self, tx: Tracer, iterables: VT) -> None:
        self.rest = iterator_of(tx, iterables)
        self.current: VT | None = None

    def __call__(self, tx: Tracer) -> VT | None:
        while True:
            if self.current is None:
                following = self.rest.next_item(tx)
                if following is None:
                    return None
                self.current = iterator_of(tx, following)
            item = self.current.next_item(tx)
            if item is not None:
                return item
            self.current = None

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        emit.push_null()
        emit.load_global_object(itertools.chain.from_iterable)
        if self.current is None:
            emit.load(self.rest)
        else:
            emit.push_null()
            emit.load_global_object(itertools.chain)
            emit.load(self.current)
            emit.build_tuple(1)
            emit.load(self.rest)
            emit.call(2)
        emit.call(1)


class IsliceCursor(CallCursor):
    """itertools.islice(iterable, [start,] stop[, step])."""

    def __init__(self, tx: Tracer, iterable: VT, *bounds: VT) -> None:
        values = [_bound(tx, bound) for bound in bounds]
        run(tx, itertools.islice, [(), *values])  # raises what Python raises for bounds that it doesn't take
        start, stop, step = (0, values[0], 1) if len(values) == 1 else (*values, None)[:3]
        self.step = 1 if step is None else step
        self.next = 0 if start is None else start
        self.stop = stop
        self.iterator = iterator_of(tx, iterable)
        self.position = 0
        self.done = False

    def __call__(self, tx: Tracer) -> VT | None:
        if self.done:
            return None
        target = self.next if self.stop is None else min(self.next, self.stop)
        while self.position < target:
            if self.iterator.next_item(tx) is None:
                self.done = True
                return None
            self.position += 1
        item = None
        if self.stop is None or self.next < self.stop:
            item = self.iterator.next_item(tx)
        if item is None:
            self.done = True
            return None
        self.position += 1
        self.next += self.step
        return item

    def rebuild(self) -> Any:
        if self.done:
            return iter, [()], {}
        stop = None if self.stop is None else max(self.stop - self.position, 0)
        start = self.next - self.position if stop is None else min(self.next - self.position, stop)
        return itertools.islice, [self.iterator, start, stop, self.step], {}


def _bound(tx: Tracer, bound: VT) -> Any:
    bound = bound.realize(tx)
    return bound.as_constant() if bound.kind == "constant" else as_index(tx, bound)


class CountCursor(CallCursor):
    """itertools.count(start=0, step=1)."""

    def __init__(self, tx: Tracer, start: VT | None = None, step: VT | None = None) -> None:
        self.value = start.realize(tx) if start is not None else tx.constant(0)
        self.step = step.realize(tx) if step is not None else tx.constant(1)
        for value in (self.value, self.step):
            if not any(has_special(value.python_type(), name) for name in ("__index__", "__int__", "__float__")):
                if value.python_type() is not complex:
                    tx.raise_exception(TypeError, "a number is required")

    def __call__(self, tx: Tracer) -> VT | None:
        value = self.value
        self.value = tx.binary(operator.add, value, self.step)
        return value

    def rebuild(self) -> Any:
        return itertools.count, [self.value, self.step], {}


class CycleCursor(CallCursor):
    """itertools.cycle(iterable)."""

    def __init__(self, tx: Tracer, iterable: VT) -> None:
        self.iterator: VT | None = iterator_of(tx, iterable)
        self.saved: list[VT] = []
        self.index = 0

    def __call__(self, tx: Tracer) -> VT | None:
        if self.iterator is not None:
            item = self.iterator.next_item(tx)
            if item is not None:
                self.saved.append(item)
                return item
            self.iterator = None
        if not self.saved:
            return None
        item = self.saved[self.index]
        self.index = (self.index + 1) % len(self.saved)
        return item

    def rebuild(self) -> Any:
        return (itertools.cycle, [self.iterator], {}) if self.iterator is not None and not self.saved else None


class RepeatCursor(CallCursor):
    """itertools.repeat(object[, times])."""

    def __init__(self, tx: Tracer, object: VT, times: VT | None = None) -> None:
        self.object = object
        self.left = max(as_index(tx, times), 0) if times is not None else None

    def __call__(self, tx: Tracer) -> VT | None:
        if self.left is not None:
            if self.left == 0:
                return None
            self.left -= 1
        return self.object.realize(tx)

    def rebuild(self) -> Any:
        return itertools.repeat, [self.object] if self.left is None else [self.object, self.left], {}


class IndexedCursor(CallCursor):
    """product, permutations and combinations: Python's own iterator over positions picks from pools of items."""

    def __init__(self, function: Any, pools: list[VT], positions: Iterator[tuple[int, ...]], extra: Any) -> None:
        self.function = function
        self.pools = pools
        self.positions = positions
        self.extra = extra
        self.started = False

    def __call__(self, tx: Tracer) -> VT | None:
        self.started = True
        places = next(self.positions, None)
        if places is None:
            return None
        pools = [pool.unpack(tx) for pool in self.pools]
        chosen = pools if self.function is itertools.product else pools * len(places)
        return tx.new_tuple([pool[place].realize(tx) for pool, place in zip(itertools.cycle(chosen), places)])

    def rebuild(self) -> Any:
        if self.started:
            return None
        args, keywords = self.extra
        return self.function, [*self.pools, *args], keywords


def _product(tx: Tracer, *iterables: VT, repeat: VT | None = None) -> Cursor:
    times = as_index(tx, repeat) if repeat is not None else 1
    if times < 0:
        tx.raise_exception(ValueError, "repeat argument cannot be negative")
    pools = [tx.new_tuple(iterator_of(tx, iterable).unpack(tx)) for iterable in iterables]
    positions = itertools.product(*(range(len(pool.unpack(tx))) for pool in pools), repeat=times)
    return IndexedCursor(itertools.product, pools, positions, ([], {"repeat": times}))


def _selection(function: Any) -> Callable[..., Cursor]:
    def make(tx: Tracer, iterable: VT, r: VT | None = None) -> Cursor:
        pool = tx.new_tuple(iterator_of(tx, iterable).unpack(tx))
        size = len(pool.unpack(tx))
        chosen = size
        if r is not None and not (r.realize(tx).kind == "constant" and r.realize(tx).as_constant() is None):
            chosen = as_index(tx, r)
        if chosen < 0:
            tx.raise_exception(ValueError, "r must be non-negative")
        return IndexedCursor(function, [pool], function(range(size), chosen), ([chosen], {}))

    return make


class AccumulateCursor(CallCursor):
    """itertools.accumulate(iterable, func=None, *, initial=None)."""

    def __init__(self, tx: Tracer, iterable: VT, func: VT | None = None, *, initial: VT | None = None) -> None:
        self.iterator = iterator_of(tx, iterable)
        self.function = _none_to_missing(tx, func)
        self.initial = _none_to_missing(tx, initial)
        self.total: VT | None = None

    def __call__(self, tx: Tracer) -> VT | None:
        if self.initial is not None:
            self.total, self.initial = self.initial, None
            return self.total
        item = self.iterator.next_item(tx)
        if item is None:
            return None
        if self.total is None:
            self.total = item
        elif self.function is None:
            self.total = tx.binary(operator.add, self.total, item)
        else:
            self.total = tx.call_function(self.function, [self.total, item], {})
        return self.total

    def rebuild(self) -> Any:
        if self.total is not None:
            return None
        keywords = {} if self.initial is None else {"initial": self.initial}
        return itertools.accumulate, [self.iterator, self.function], keywords


def _none_to_missing(tx: Tracer, value: VT | None) -> VT | None:
    value = value.realize(tx) if value is not None else None
    return None if value is not None and value.kind == "constant" and value.as_constant() is None else value


class ZipLongestCursor(CallCursor):
    """itertools.zip_longest(*iterables, fillvalue=None)."""

    def __init__(self, tx: Tracer, *iterables: VT, fillvalue: VT | None = None) -> None:
        self.iterators: list[VT | None] = [iterator_of(tx, iterable) for iterable in iterables]
        self.fill = fillvalue if fillvalue is not None else tx.constant(None)

    def __call__(self, tx: Tracer) -> VT | None:
        if all(iterator is None for iterator in self.iterators):
            return None
        items = []
        for place, iterator in enumerate(self.iterators):
            item = iterator.next_item(tx) if iterator is not None else None
            if item is None:
                self.iterators[place] = None
                if all(other is None for other in self.iterators):
                    return None
                item = self.fill.realize(tx)
            items.append(item)
        return tx.new_tuple(items)

    def rebuild(self) -> Any:
        rest = [() if iterator is None else iterator for iterator in self.iterators]
        return itertools.zip_longest, rest, {"fillvalue": self.fill}


class StarmapCursor(CallCursor):
    """itertools.starmap(function, iterable)."""

    def __init__(self, tx: Tracer, function: VT, iterable: VT, /) -> None:
        self.function = function.realize(tx)
        self.iterator = iterator_of(tx, iterable)

    def __call__(self, tx: Tracer) -> VT | None:
        item = self.iterator.next_item(tx)
        if item is None:
            return None
        return tx.call_function(self.function, item.realize(tx).unpack(tx), {})

    def rebuild(self) -> Any:
        return itertools.starmap, [self.function, self.iterator], {}


class WhileCursor(CallCursor):
    """itertools.takewhile and dropwhile."""

    def __init__(self, tx: Tracer, function: VT, iterable: VT, taking: bool) -> None:
        self.function = function.realize(tx)
        self.iterator = iterator_of(tx, iterable)
        self.taking = taking
        self.turned = False

    def __call__(self, tx: Tracer) -> VT | None:
        while not (self.turned and self.taking):
            item = self.iterator.next_item(tx)
            if item is None:
                return None
            if self.turned:
                return item
            self.turned = not passes(tx, self.function, item)
            if self.turned != self.taking:
                return item
        return None

    def rebuild(self) -> Any:
        function = itertools.takewhile if self.taking else itertools.dropwhile
        return None if self.turned else (function, [self.function, self.iterator], {})


class CompressCursor(CallCursor):
    """itertools.compress(data, selectors)."""

    def __init__(self, tx: Tracer, data: VT, selectors: VT) -> None:
        self.data = iterator_of(tx, data)
        self.selectors = iterator_of(tx, selectors)

    def __call__(self, tx: Tracer) -> VT | None:
        while (item := self.data.next_item(tx)) is not None:
            selector = self.selectors.next_item(tx)
            if selector is None:
                return None
            if tx.truth(selector):
                return item
        return None

    def rebuild(self) -> Any:
        return itertools.compress, [self.data, self.selectors], {}


class PairwiseCursor(CallCursor):
    """itertools.pairwise(iterable)."""

    def __init__(self, tx: Tracer, iterable: VT, /) -> None:
        self.iterator = iterator_of(tx, iterable)
        self.previous: VT | None = None
        self.ended = False

    def __call__(self, tx: Tracer) -> VT | None:
        if self.ended:
            return None
        first = self.previous = self.previous or self.iterator.next_item(tx)
        item = self.iterator.next_item(tx) if first is not None else None  # may ask this iterator for a pair, too
        if first is None or item is None:
            self.ended = True
            return None
        self.previous = item
        return tx.new_tuple([first, item])

    def rebuild(self) -> Any:
        return (itertools.pairwise, [self.iterator], {}) if self.previous is None else None


class BatchedCursor(CallCursor):
    """itertools.batched(iterable, n, *, strict=False)."""

    def __init__(self, tx: Tracer, iterable: VT, n: VT, *, strict: VT | None = None) -> None:
        self.size = as_index(tx, n)
        if self.size < 1:
            tx.raise_exception(ValueError, "n must be at least one")
        self.strict = strict is not None and tx.truth(strict.realize(tx))
        self.iterator = iterator_of(tx, iterable)

    def __call__(self, tx: Tracer) -> VT | None:
        items: list[VT] = []
        while len(items) < self.size and (item := self.iterator.next_item(tx)) is not None:
            items.append(item)
        if items and self.strict and len(items) < self.size:
            tx.raise_exception(ValueError, "batched(): incomplete batch")
        return tx.new_tuple(items) if items else None

    def rebuild(self) -> Any:
        return itertools.batched, [self.iterator, self.size], {"strict": True} if self.strict else {}  # type: ignore[attr-defined]


class TeeCursor(Cursor):
    """One of the iterators that itertools.tee gives; they share what was read ahead."""

    def __init__(self, iterator: VT, buffer: list[VT]) -> None:
        self.iterator = iterator
        self.buffer = buffer
        self.index = 0

    def __call__(self, tx: Tracer) -> VT | None:
        if self.index == len(self.buffer):
            item = self.iterator.next_item(tx)
            if item is None:
                return None
            self.buffer.append(item)
        self.index += 1
        return self.buffer[self.index - 1]


class GroupbyCursor(CallCursor):
    """itertools.groupby(iterable, key=None): groups are iterators that end when the next group is asked for."""

    def __init__(self, tx: Tracer, iterable: VT, key: VT | None = None) -> None:
        self.iterator = iterator_of(tx, iterable)
        self.key = _none_to_missing(tx, key)
        self.item: VT | None = None
        self.current: VT | None = None
        self.target: VT | None = None
        self.group: object = None

    def _step(self, tx: Tracer) -> bool:
        self.item = self.iterator.next_item(tx)
        if self.item is None:
            return False
        self.current = tx.call_function(self.key, [self.item], {}) if self.key is not None else self.item
        return True

    def __call__(self, tx: Tracer) -> VT | None:
        self.group = None
        while self.current is None or (self.target is not None and tx.compare_equal(self.target, self.current)):
            if not self._step(tx):
                return None
        assert self.current is not None
        self.target = self.current
        self.group = marker = object()
        target = self.target

        def produce(tx: Tracer) -> VT | None:
            if self.group is not marker:
                return None
            if self.item is None:
                if not self._step(tx):
                    return None
            if not tx.compare_equal(target, self.current):  # type: ignore[arg-type]
                return None
            item, self.item = self.item, None
            return item

        return tx.new_tuple([self.current, tx.new_iterator(produce, GROUP_CLASS)])

    def rebuild(self) -> Any:
        return (itertools.groupby, [self.iterator, self.key], {}) if self.current is None else None


def _chain(tx: Tracer, *iterables: VT) -> Cursor:
    return ChainCursor(tx, tx.new_tuple(iterables))


MAKERS: dict[Any, tuple[Callable[..., Cursor], type]] = {
    zip: (ZipCursor, zip),
    enumerate: (EnumerateCursor, enumerate),
    map: (MapCursor, map),
    filter: (FilterCursor, filter),
    itertools.filterfalse: (
        lambda tx, function, iterable: FilterCursor(tx, function, iterable, False),
        itertools.filterfalse,
    ),
    itertools.chain: (_chain, itertools.chain),
    itertools.chain.from_iterable: (ChainCursor, itertools.chain),
    itertools.islice: (IsliceCursor, itertools.islice),
    itertools.count: (CountCursor, itertools.count),
    itertools.cycle: (CycleCursor, itertools.cycle),
    itertools.repeat: (RepeatCursor, itertools.repeat),
    itertools.product: (_product, itertools.product),
    itertools.permutations: (_selection(itertools.permutations), itertools.permutations),
    itertools.combinations: (_selection(itertools.combinations), itertools.combinations),
    itertools.combinations_with_replacement: (
        _selection(itertools.combinations_with_replacement),
        itertools.combinations_with_replacement,
    ),
    itertools.accumulate: (AccumulateCursor, itertools.accumulate),
    itertools.zip_longest: (ZipLongestCursor, itertools.zip_longest),
    itertools.starmap: (StarmapCursor, itertools.starmap),
    itertools.takewhile: (lambda tx, f, it: WhileCursor(tx, f, it, True), itertools.takewhile),
    itertools.dropwhile: (lambda tx, f, it: WhileCursor(tx, f, it, False), itertools.dropwhile),
    itertools.compress: (CompressCursor, itertools.compress),
    itertools.pairwise: (PairwiseCursor, itertools.pairwise),
    itertools.groupby: (GroupbyCursor, itertools.groupby),
}
if hasattr(itertools, "batched"):
    MAKERS[itertools.batched] = (BatchedCursor, itertools.batched)


def make(tx: Tracer, function: Any, args: Args, kwargs: dict[str, VT]) -> VT:
    """The tracker of function(*args, **kwargs) for a function of MAKERS."""
    maker, cls = MAKERS[function]
    return tx.new_iterator(call_checked(tx, cls.__name__, maker, args, kwargs), cls)


def make_tee(tx: Tracer, iterable: VT, n: VT | None = None) -> VT:
    """itertools.tee(iterable, n=2)."""
    count = as_index(tx, n) if n is not None else 2
    if count < 0:
        tx.raise_exception(ValueError, "n must be >= 0")
    iterator, buffer = iterator_of(tx, iterable), []  # type: ignore[var-annotated]
    cls: type = type(itertools.tee(())[0])
    return tx.new_tuple([tx.new_iterator(TeeCursor(iterator, buffer), cls) for _ in range(count)])
