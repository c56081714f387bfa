"""Lists and tuples: their trackers hold one tracker an item, and every method works on those.

A list from outside whose length nothing has asked for stays open: appending to it needs no guard, and only the new
items are written back. Whatever depends on the length (a negative index, iteration to the end, ...) guards it first.
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..guards.checks import Length, TypeIs
from ..guards.source import CallSource, ConstSource, ListItemSource, TupleItemSource, TypeAttrSource
from .base import NotConstant, VariableTracker, find_special
from .container import (
    ORDERINGS,
    ContainerVariable,
    SequenceCursor,
    as_index,
    as_slice,
    compare_sequences,
    constant_items,
    is_flat,
    load_class,
    same,
)
from .literal import from_result, run
from .sorting import EmptyForSort, sort_in_place

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
LIST_ITERATOR: type = type(iter([]))
TUPLE_ITERATOR = type(iter(()))
OPERATORS = (
    "__add__ __radd__ __mul__ __rmul__ __contains__ __getitem__ __iter__ __len__ __bool__ __reversed__ "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__"
).split()
LIST_REVERSED: type = type(reversed([]))


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real list or tuple (namedtuples, torch.Size and struct sequences included); its exact type is
    guarded, its items are looked at when they are used."""
    tx.guard(source, TypeIs(type(value)))
    return contents(tx, value, source).standing_for(value)


def contents(tx: Tracer, value: Any, source: Any) -> SequenceVariable:
    """As from_value without the guard on the type: for the contents of an object whose class extends list or tuple."""
    if isinstance(value, list):
        raw = list.__getitem__(value, slice(None))
        return ListVariable([tx.lazy(item, source and ListItemSource(source, i)) for i, item in enumerate(raw)], source)
    tx.guard(source, Length(tuple.__len__(value)))
    cls = type(value)
    place = source if source is None or cls.__getitem__ is tuple.__getitem__ else CallSource(source, tuple_items)
    items = [tx.lazy(item, place and TupleItemSource(place, i)) for i, item in enumerate(tuple.__iter__(value))]
    named = cls is tuple or field_names(cls) or hasattr(cls, "numel")
    return tuple_of(items, cls if named else tuple, source, value)


def tuple_items(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the tuple holds, whatever its class makes of indexing and iteration."""
    return tuple(tuple.__iter__(value))


def tuple_of(items: Iterable[VT], cls: type, source: Any = None, value: Any = None) -> TupleVariable:
    """The tracker of a tuple, of the kind that its class asks for."""
    if not (cls.__dictoffset__ and is_namedtuple(cls)):
        return TupleVariable(items, cls, source)
    return TupleVariable.with_attributes(items, cls, source, value)


class SequenceVariable(ContainerVariable):
    """What lists and tuples share."""

    items: list[VT]

    def __init__(self, items: Iterable[VT], source: Any = None) -> None:
        super().__init__(source)
        self.items = list(items)
        self._visiting = False

    def reveal(self, tx: Tracer) -> None:
        """Guard the length before anything depends on it."""

    def look_inside(self, tx: Tracer) -> VT:
        self.reveal(tx)
        if not self._visiting:
            self._visiting = True
            try:
                for item in self.items:
                    item.look_inside(tx)
            finally:
                self._visiting = False
        return self

    def _values(self) -> list[Any]:
        if self._visiting:
            raise NotConstant("a container that contains itself")
        self._visiting = True
        try:
            return constant_items(self.items)
        finally:
            self._visiting = False

    def _proxies(self) -> list[Any]:
        if self._visiting:
            raise self.refuse("passing a container that contains itself to a tensor operation")
        self._visiting = True
        try:
            return [(getattr(item, "realized", None) or item).as_proxy() for item in self.items]
        finally:
            self._visiting = False

    def truth(self, tx: Tracer) -> bool:
        self.reveal(tx)
        return bool(self.items)

    def take(self, tx: Tracer, index: int) -> VT | None:
        """Item `index` (not negative), None behind the end."""
        if index < len(self.items):
            return self.items[index].realize(tx)
        self.reveal(tx)
        return None

    def unpack(self, tx: Tracer) -> list[VT]:
        self.reveal(tx)
        return list(self.items)

    def contains(self, tx: Tracer, item: VT) -> bool:
        item = item.realize(tx)
        index = 0
        while (candidate := self.take(tx, index)) is not None:
            if same(tx, candidate, item):
                return True
            index += 1
        return False

    def length(self, tx: Tracer) -> VT:
        self.reveal(tx)
        return tx.constant(len(self.items))

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        peer = self.payload_like(other)
        if not isinstance(peer, SequenceVariable):
            return None
        self.reveal(tx)
        peer.reveal(tx)
        if len(self.items) != len(peer.items):
            return tx.constant(False)
        return tx.constant(all(same(tx, a, b) for a, b in zip(list(self.items), list(peer.items))))

    def _order(self, tx: Tracer, name: str, other: VT) -> VT:
        peer = self.payload_like(other.realize(tx))
        if not isinstance(peer, SequenceVariable):
            return tx.constant(NotImplemented)
        self.reveal(tx)
        peer.reveal(tx)
        return compare_sequences(tx, ORDERINGS[name], self.items, peer.items)

    def op_lt(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "lt", other)

    def op_le(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "le", other)

    def op_gt(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "gt", other)

    def op_ge(self, tx: Tracer, other: VT, /) -> VT:
        return self._order(tx, "ge", other)

    def op_len(self, tx: Tracer, /) -> VT:
        return self.length(tx)

    def op_contains(self, tx: Tracer, item: VT, /) -> VT:
        return tx.constant(self.contains(tx, item))

    def op_getitem(self, tx: Tracer, key: VT, /) -> VT:
        key = key.realize(tx)
        if key.kind == "slice":
            return self._slice(tx, as_slice(tx, key))
        name = self.python_type().__name__ if isinstance(self, ListVariable) else "tuple"
        index = as_index(tx, key, f"{name} indices must be integers or slices, not {{}}")
        if index < 0:
            self.reveal(tx)
            index += len(self.items)
        item = self.take(tx, index) if index >= 0 else None
        if item is None:
            tx.raise_exception(IndexError, f"{name} index out of range")
        return item

    def _slice(self, tx: Tracer, key: slice) -> VT:
        raise NotImplementedError

    def _times(self, tx: Tracer, count: VT) -> list[VT] | None:
        count = count.realize(tx)
        if count.kind not in ("constant", "symbolic", "tensor") and count.lookup_special(tx, "__index__") is None:
            return None
        if count.kind == "constant" and not hasattr(count.python_type(), "__index__"):
            return None
        self.reveal(tx)
        return self.items * as_index(tx, count)

    def do_index(self, tx: Tracer, item: VT, start: VT | None = None, stop: VT | None = None, /) -> VT:
        item = item.realize(tx)
        message = "slice indices must be integers or have an __index__ method"
        first = as_index(tx, start, message) if start is not None else 0
        last = as_index(tx, stop, message) if stop is not None else None
        if first < 0 or last is not None:
            self.reveal(tx)
            first = max(first + len(self.items), 0) if first < 0 else first
            if last is not None and last < 0:
                last = max(last + len(self.items), 0)
        index = first
        while (last is None or index < last) and (candidate := self.take(tx, index)) is not None:
            if same(tx, candidate, item):
                return tx.constant(index)
            index += 1
        text = repr(item.as_constant()) if item.is_constant() else item.describe()
        if isinstance(self, ListVariable):
            tx.raise_exception(ValueError, f"{text} is not in list")
        tx.raise_exception(ValueError, "tuple.index(x): x not in tuple")

    def do_count(self, tx: Tracer, item: VT, /) -> VT:
        item = item.realize(tx)
        self.reveal(tx)
        return tx.constant(sum(same(tx, candidate, item) for candidate in list(self.items)))


class ListVariable(SequenceVariable):
    """A list."""

    kind = "list"

    def __init__(self, items: Iterable[VT], source: Any = None) -> None:
        super().__init__(items, source)
        self._original = len(self.items) if source is not None else 0
        self._open = source is not None  # the length is not guarded: the items are the first ones and what was appended
        self._only_grown = True

    def python_type(self) -> type:
        return list

    def reveal(self, tx: Tracer) -> None:
        if self.source is not None:
            tx.guard(self.source, Length(self._original))
        self._open = False

    def take(self, tx: Tracer, index: int) -> VT | None:
        if index >= self._original:
            self.reveal(tx)
        return super().take(tx, index)

    def as_constant(self) -> list[Any]:
        if self._open:
            raise NotConstant("nothing guards the length of the list")
        return self._values()

    def as_proxy(self) -> list[Any]:
        if self._open:
            raise self.refuse("passing to a tensor operation (before it was looked into)")
        return self._proxies()

    def _change(self, tx: Tracer) -> None:
        self.reveal(tx)
        tx.side_effects.mutated(self)
        self._only_grown = False

    def _grow(self, tx: Tracer) -> None:
        tx.side_effects.mutated(self)

    def _slice(self, tx: Tracer, key: slice) -> VT:
        self.reveal(tx)
        return tx.new_list(self._checked(tx, lambda: self.items[key]))

    @staticmethod
    def _checked(tx: Tracer, action: Any) -> Any:
        # items is a real list: its own errors are the ones that Python would raise
        try:
            return action()
        except (IndexError, ValueError) as error:
            tx.raise_exception(type(error), *error.args)

    # -- item access -----------------------------------------------------------------------------------------------

    def op_iter(self, tx: Tracer, /) -> VT:
        return tx.new_iterator(SequenceCursor(self, self.take), LIST_ITERATOR)

    def op_reversed(self, tx: Tracer, /) -> VT:
        self.reveal(tx)
        return tx.new_iterator(ReversedCursor(self), LIST_REVERSED)

    def op_setitem(self, tx: Tracer, key: VT, value: VT, /) -> None:
        key = key.realize(tx)
        if key.kind == "slice":
            window = as_slice(tx, key)
            value = value.realize(tx)
            if value.lookup_special(tx, "__iter__") is None and value.lookup_special(tx, "__getitem__") is None:
                run(tx, operator.setitem, [[], window, None])  # raises what Python raises
            values = value.unpack(tx)
            self._change(tx)
            self._checked(tx, lambda: operator.setitem(self.items, window, values))
            return
        index = as_index(tx, key, "list indices must be integers or slices, not {}")
        self.reveal(tx)
        if not -len(self.items) <= index < len(self.items):
            tx.raise_exception(IndexError, "list assignment index out of range")
        self._change(tx)
        self.items[index] = value

    def op_delitem(self, tx: Tracer, key: VT, /) -> None:
        key = key.realize(tx)
        if key.kind == "slice":
            window = as_slice(tx, key)
            self._change(tx)
            self._checked(tx, lambda: operator.delitem(self.items, window))
            return
        index = as_index(tx, key, "list indices must be integers or slices, not {}")
        self.reveal(tx)
        if not -len(self.items) <= index < len(self.items):
            tx.raise_exception(IndexError, "list assignment index out of range")
        self._change(tx)
        del self.items[index]

    # -- operators -------------------------------------------------------------------------------------------------

    def op_add(self, tx: Tracer, other: VT, /) -> VT:
        peer = self.payload_like(other.realize(tx))
        if not isinstance(peer, ListVariable):
            return tx.constant(NotImplemented)
        return tx.new_list(self.unpack(tx) + peer.unpack(tx))

    def op_mul(self, tx: Tracer, count: VT, /) -> VT:
        items = self._times(tx, count)
        return tx.constant(NotImplemented) if items is None else tx.new_list(items)

    op_rmul = op_mul

    def op_iadd(self, tx: Tracer, other: VT, /) -> VT:
        self.do_extend(tx, other)
        return self

    def op_imul(self, tx: Tracer, count: VT, /) -> VT:
        items = self._times(tx, count)
        if items is None:
            return tx.constant(NotImplemented)
        self._change(tx)
        self.items[:] = items
        return self

    # -- methods ---------------------------------------------------------------------------------------------------

    def do_append(self, tx: Tracer, item: VT, /) -> None:
        self._grow(tx)
        self.items.append(item)

    def do_extend(self, tx: Tracer, iterable: VT, /) -> None:
        iterable = iterable.realize(tx)
        if iterable.kind in ("list", "tuple") or iterable is self.payload_of:  # itself as it was before
            items = (self if iterable is self.payload_of else iterable).unpack(tx)
            self._grow(tx)
            self.items.extend(items)
            return
        iterator = iterable.iterate(tx).realize(tx)
        while (item := iterator.next_item(tx)) is not None:
            self._grow(tx)
            self.items.append(item)

    def do_insert(self, tx: Tracer, index: VT, item: VT, /) -> None:
        place = as_index(tx, index)
        self._change(tx)
        self.items.insert(place, item)

    def do_pop(self, tx: Tracer, index: VT | None = None, /) -> VT:
        place = as_index(tx, index) if index is not None else -1
        self.reveal(tx)
        if not self.items:
            tx.raise_exception(IndexError, "pop from empty list")
        if not -len(self.items) <= place < len(self.items):
            tx.raise_exception(IndexError, "pop index out of range")
        self._change(tx)
        return self.items.pop(place).realize(tx)

    def do_remove(self, tx: Tracer, item: VT, /) -> None:
        item = item.realize(tx)
        index = 0
        while (candidate := self.take(tx, index)) is not None:
            if same(tx, candidate, item):
                self._change(tx)
                del self.items[index : index + 1]
                return
            index += 1
        tx.raise_exception(ValueError, "list.remove(x): x not in list")

    def do_clear(self, tx: Tracer, /) -> None:
        self._change(tx)
        self.items.clear()

    def do_copy(self, tx: Tracer, /) -> VT:
        return tx.new_list(self.unpack(tx))

    def do_reverse(self, tx: Tracer, /) -> None:
        self._change(tx)
        self.items.reverse()

    def do_sort(self, tx: Tracer, /, *, key: VT | None = None, reverse: VT | None = None) -> None:
        self.reveal(tx)
        descending = tx.truth(reverse.realize(tx)) if reverse is not None else False
        self._change(tx)
        # as in Python, the list is empty while its keys are computed and compared
        items = self.items
        self.items = empty = EmptyForSort()
        try:
            sort_in_place(tx, items, key, descending)
            if empty.filled:
                tx.raise_exception(ValueError, "list modified during sort")
        finally:
            self.items = items

    def op_init(self, tx: Tracer, iterable: VT | None = None, /) -> None:
        self._change(tx)
        self.items.clear()
        if iterable is not None:
            self.do_extend(tx, iterable)

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        if is_flat(self.items):
            for item in self.items:
                emit.load(item)
            emit.build_list(len(self.items))
            return
        emit.build_list(0)
        emit.remember(self)
        emit.copy_top()
        self._assign(emit)

    def _assign(self, emit: Emitter) -> None:
        # stack: list -> ; list[:] = items
        for item in self.items:
            emit.load(item)
        emit.build_list(len(self.items))
        emit.swap(2)
        emit.load_const(None)
        emit.load_const(None)
        emit.build_slice(2)
        emit.store_subscr()

    def write_back(self, emit: Emitter) -> None:
        emit.load(self)
        if not (self._only_grown and self.source is not None):
            self._assign(emit)
            return
        # list += new items, so that nothing depends on the length; kept, for the emitter knows objects by their tracker
        self._tail = ListVariable(self.items[self._original :])
        emit.call_method("extend", [self._tail])
        emit.pop_top()


class TupleVariable(SequenceVariable):
    """A tuple, or an object of a tuple class with named items: namedtuple, struct sequence, torch.Size."""

    kind = "tuple"
    mutable = False
    with_attributes: ClassVar[Any] = None  # the kind of named tuples with an instance dict; see named_tuple.py

    def __init__(self, items: Iterable[VT], cls: type = tuple, source: Any = None) -> None:
        super().__init__(items, source)
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def as_constant(self) -> tuple[Any, ...]:
        return self._build(self._values())

    def as_proxy(self) -> tuple[Any, ...]:
        items = self._proxies()
        return self._build(items) if is_namedtuple(self.cls) else tuple(items)

    def _build(self, items: Sequence[Any]) -> tuple[Any, ...]:
        if self.cls is tuple:
            return tuple(items)
        if is_namedtuple(self.cls):
            return tuple.__new__(self.cls, items)
        return self.cls(items)

    def hash_key(self, tx: Tracer) -> Hashable:
        if self.cls.__hash__ is not tuple.__hash__ or self.cls.__eq__ is not tuple.__eq__:
            raise self.refuse("hashing")
        return tuple(item.realize(tx).hash_key(tx) for item in self.items)

    # -- attributes ------------------------------------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> VT:
        names = field_names(self.cls)
        if name in names and not isinstance(getattr(self.cls, name, None), (property, types.FunctionType)):
            return self.items[names.index(name)].realize(tx)
        if names and name in ("_fields", "_field_defaults", "__match_args__"):
            return from_result(tx, getattr(self.cls, name))
        raw = next((base.__dict__[name] for base in self.cls.__mro__ if name in base.__dict__), None)
        if isinstance(raw, property) and raw.fget is not None:
            return tx.call_function(tx.wrap(raw.fget, None, constant=True), [self])
        if isinstance(raw, (classmethod, staticmethod)) and not self.has_method(name):
            return tx.wrap(self.cls, None, constant=True).get_attr(tx, name)
        if raw is not None and not hasattr(type(raw), "__get__"):
            return tx.wrap(raw, TypeAttrSource(ConstSource(self.cls, self.cls.__name__), name))
        return super().get_attr(tx, name)

    def call_python_method(
        self, tx: Tracer, name: str, function: types.FunctionType, args: Sequence[VT], kwargs: dict[str, VT]
    ) -> VT:
        source = TypeAttrSource(ConstSource(self.cls, self.cls.__name__), name)
        return tx.call_function(tx.wrap(function, source), [self, *args], kwargs)

    def has_method(self, name: str) -> bool:
        own = next((base for base in self.cls.__mro__ if name in base.__dict__), None)
        if own is None or self.handler(name) is None:
            return False
        # a method that a user's namedtuple class defines comes before ours
        return not (isinstance(own.__dict__[name], types.FunctionType) and not name.startswith("_"))

    def op_iter(self, tx: Tracer, /) -> VT:
        return tx.new_iterator(SequenceCursor(self, self.take), TUPLE_ITERATOR)

    def _class_of(self, tx: Tracer, method: str) -> type:
        # torch.Size keeps its class in the operations that it defines (more of them in later versions)
        return self.cls if self.cls.__module__ == "torch" and method in self.cls.__dict__ else tuple

    def _slice(self, tx: Tracer, key: slice) -> VT:
        cls = self._class_of(tx, "__getitem__")
        if cls is self.cls and self.items[key] == self.items:
            return self
        return tx.new_tuple(self.items[key], cls)

    # -- operators -------------------------------------------------------------------------------------------------

    def op_add(self, tx: Tracer, other: VT, /) -> VT:
        peer = self.payload_like(other.realize(tx))
        if not isinstance(peer, TupleVariable):
            return tx.constant(NotImplemented)
        return tx.new_tuple(self.items + peer.items, self._class_of(tx, "__add__"))

    def op_radd(self, tx: Tracer, other: VT, /) -> VT:
        peer = self.payload_like(other.realize(tx))
        if not isinstance(peer, TupleVariable):
            return tx.constant(NotImplemented)
        return tx.new_tuple(peer.items + self.items, self._class_of(tx, "__radd__"))

    def op_mul(self, tx: Tracer, count: VT, /) -> VT:
        items = self._times(tx, count)
        return tx.constant(NotImplemented) if items is None else tx.new_tuple(items, self._class_of(tx, "__mul__"))

    op_rmul = op_mul

    # -- methods of tuple classes ----------------------------------------------------------------------------------

    def do_numel(self, tx: Tracer, /) -> VT:
        one = tx.constant(1)
        return functools.reduce(lambda a, b: tx.binary(operator.mul, a, b.realize(tx)), self.items, one)

    def do__asdict(self, tx: Tracer, /) -> VT:
        return tx.new_dict([(tx.constant(name), item) for name, item in zip(field_names(self.cls), self.items)])

    def do__replace(self, tx: Tracer, /, **changes: VT) -> VT:
        names = field_names(self.cls)
        if not set(changes).issubset(names):
            example: Any = tuple.__new__(self.cls, [None] * len(names))
            run(tx, example._replace, [], dict.fromkeys(changes))  # raises what this version of Python raises
        return tx.new_tuple([changes.get(name, item) for name, item in zip(names, self.items)], self.cls)

    def op_getnewargs(self, tx: Tracer, /) -> VT:
        return tx.new_tuple([tx.new_tuple(self.items)] if self.cls is tuple else self.items)

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        if self.cls is not tuple:
            emit.push_null()
            if is_namedtuple(self.cls):
                emit.load_global_object(tuple)
                emit.load_attr("__new__")
                load_class(emit, self.cls)
            else:
                load_class(emit, self.cls)
        for item in self.items:
            emit.load(item)
        emit.build_tuple(len(self.items))
        if self.cls is not tuple:
            emit.call(2 if is_namedtuple(self.cls) else 1)

    def write_back(self, emit: Emitter) -> None:
        raise self.refuse("changing")


class ReversedCursor(SequenceCursor):
    """reversed(list): from the last item that there was at the start, whatever the list does meanwhile."""

    def __init__(self, sequence: ListVariable) -> None:
        super().__init__(sequence, sequence.take)
        self.index = len(sequence.items) - 1
        self.state: VT | None = None

    def __call__(self, tx: Tracer) -> VT | None:
        item = self.take(tx, self.index) if self.sequence is not None and self.index >= 0 else None
        if item is None:
            self.sequence = None
            return None
        self.index -= 1
        self.state = tx.constant(self.index)
        return item

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        emit.push_null()
        emit.load_global_object(reversed)
        if self.sequence is None:
            emit.build_list(0)
            emit.call(1)
            return
        emit.load(self.sequence)
        emit.call(1)
        if self.state is not None:
            emit.copy_top()
            emit.call_method("__setstate__", [self.state])
            emit.pop_top()


def is_namedtuple(cls: type) -> bool:
    """True for classes made by collections.namedtuple or typing.NamedTuple, and their subclasses that leave a tuple's
    operators as they are: others are objects with methods of their own around a tuple."""
    fields = getattr(cls, "_fields", None)
    found = issubclass(cls, tuple) and isinstance(fields, tuple) and hasattr(cls, "_make")
    return found and not any(find_special(cls, name) is not getattr(tuple, name, None) for name in OPERATORS)


def field_names(cls: type) -> tuple[str, ...]:
    """Names of the items of a namedtuple or struct sequence, in order; () for other tuples."""
    if is_namedtuple(cls):
        return cls._fields  # type: ignore[attr-defined]
    if hasattr(cls, "n_sequence_fields"):
        return cls.__match_args__  # type: ignore[attr-defined]
    return ()
