"""Ranges and slices."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ..guards.checks import TypeIs
from ..guards.source import AttrSource
from .base import VariableTracker
from .container import ORDERINGS, ContainerVariable, SequenceCursor, as_index, as_slice, compare_sequences
from .literal import fold, run

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
RANGE_ITERATOR = type(iter(range(0)))


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real range or slice, guarded part by part."""
    tx.guard(source, TypeIs(type(value)))
    parts = []
    # part by part: ranges of the same numbers are equal and may still have another stop
    for name in ("start", "stop", "step"):
        parts.append(tx.wrap(getattr(value, name), source and AttrSource(source, name)))
    if isinstance(value, range):
        for part in parts:
            as_index(tx, part)  # reads it, so that its value is guarded: the number of rounds shapes the graph
        return RangeVariable(value, source)
    start, stop, step = parts
    return SliceVariable(start, stop, step, source)


def make_range(tx: Tracer, *args: VT) -> RangeVariable:
    """range(...); symbolic bounds are specialised, for the number of rounds shapes the graph."""
    return RangeVariable(run(tx, range, [as_index(tx, arg) for arg in args]))


class RangeVariable(ContainerVariable):
    """A range, known in full."""

    kind = "range"
    mutable = False

    def __init__(self, value: range, source: Any = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return range

    def as_constant(self) -> range:
        return self.value

    def hash_key(self, tx: Tracer) -> Hashable:
        return self.value

    def truth(self, tx: Tracer) -> bool:
        return bool(self.value)

    def length(self, tx: Tracer) -> VT:
        return fold(tx, len, [self.value])

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        return tx.constant(self.value == other.value) if isinstance(other, RangeVariable) else None

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("start", "stop", "step"):
            return tx.constant(getattr(self.value, name))
        return super().get_attr(tx, name)

    def take(self, tx: Tracer, index: int) -> VT | None:
        """Item `index`, None behind the end."""
        return tx.constant(self.value[index]) if self.value[index : index + 1] else None

    def unpack(self, tx: Tracer) -> list[VT]:
        return [tx.constant(number) for number in self.value]

    def contains(self, tx: Tracer, item: VT) -> bool:
        item = item.realize(tx)
        if item.kind == "constant":
            return item.as_constant() in self.value
        return any(tx.compare_equal(tx.constant(number), item) for number in self.value)

    def op_iter(self, tx: Tracer, /) -> VT:
        return tx.new_iterator(SequenceCursor(self, self.take), RANGE_ITERATOR)

    def op_reversed(self, tx: Tracer, /) -> VT:
        return RangeVariable(self.value[::-1]).iterate(tx)

    def op_len(self, tx: Tracer, /) -> VT:
        return self.length(tx)

    def op_contains(self, tx: Tracer, item: VT, /) -> VT:
        return tx.constant(self.contains(tx, item))

    def op_getitem(self, tx: Tracer, key: VT, /) -> VT:
        key = key.realize(tx)
        if key.kind == "slice":
            return RangeVariable(run(tx, self.value.__getitem__, [as_slice(tx, key)]))
        index = as_index(tx, key, "range indices must be integers or slices, not {}")
        return fold(tx, self.value.__getitem__, [index])

    def do_index(self, tx: Tracer, item: VT, /) -> VT:
        item = item.realize(tx)
        if item.kind == "constant":
            return fold(tx, self.value.index, [item.as_constant()])
        for place, number in enumerate(self.value):
            if tx.compare_equal(tx.constant(number), item):
                return tx.constant(place)
        tx.raise_exception(ValueError, "sequence.index(x): x not in sequence")

    def do_count(self, tx: Tracer, item: VT, /) -> VT:
        item = item.realize(tx)
        if item.kind == "constant":
            return fold(tx, self.value.count, [item.as_constant()])
        return tx.constant(sum(tx.compare_equal(tx.constant(number), item) for number in self.value))

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(range)
        for number in (self.value.start, self.value.stop, self.value.step):
            emit.load_const(number)
        emit.call(3)


class SliceVariable(ContainerVariable):
    """A slice of any three objects."""

    kind = "slice"
    mutable = False

    def __init__(self, start: VT, stop: VT, step: VT, source: Any = None) -> None:
        super().__init__(source)
        self.start = start
        self.stop = stop
        self.step = step

    @property
    def parts(self) -> list[VT]:
        return [self.start, self.stop, self.step]

    def python_type(self) -> type:
        return slice

    def look_inside(self, tx: Tracer) -> VT:
        self.start, self.stop, self.step = (part.look_inside(tx) for part in self.parts)
        return self

    def as_constant(self) -> slice:
        return slice(*(part.as_constant() for part in self.parts))

    def as_proxy(self) -> slice:
        return slice(*(part.as_proxy() for part in self.parts))

    def hash_key(self, tx: Tracer) -> Hashable:
        if slice.__hash__ is None:
            tx.raise_exception(TypeError, "unhashable type: 'slice'")
        return (slice, *(part.realize(tx).hash_key(tx) for part in self.parts))

    def truth(self, tx: Tracer) -> bool:
        return True

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        if not isinstance(other, SliceVariable):
            return None
        return tx.constant(all(tx.compare_equal(a, b) for a, b in zip(self.parts, other.parts)))

    def _order(self, tx: Tracer, name: str, other: VT) -> VT:
        other = other.realize(tx)
        if not isinstance(other, SliceVariable):
            return tx.constant(NotImplemented)
        return compare_sequences(tx, ORDERINGS[name], self.parts, other.parts)

    def op_lt(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "lt", other)

    def op_le(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "le", other)

    def op_gt(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "gt", other)

    def op_ge(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "ge", other)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("start", "stop", "step"):
            return getattr(self, name).realize(tx)
        return super().get_attr(tx, name)

    def do_indices(self, tx: Tracer, length: VT, /) -> VT:
        return fold(tx, as_slice(tx, self).indices, [as_index(tx, length)])

    def reconstruct(self, emit: Emitter) -> None:
        for part in self.parts:
            emit.load(part)
        emit.build_slice(3)
