"""Sets and frozensets.

The order in which a set is walked follows from the hashes and the history of its changes. So beside the trackers a
real set of their stand-ins (`hash_key`) goes through the same changes: it says what is in the set and in which order.
"""

from __future__ import annotations

import types
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import Equals, Predicate, TypeIs
from .base import NotConstant, VariableTracker
from .container import ContainerVariable, Cursor, advance, is_flat
from .literal import is_plain
from .python_module import UnguardedVariable

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
UNGUARDED = "is a set of objects that can't be guarded through it"
REMEDY = "use a set of numbers and strings, or a dict with the objects as values"
SET_ITERATOR: type = type(iter(set()))


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real set or frozenset, guarded by value."""
    tx.guard(source, TypeIs(type(value)))
    if source is not None and not all(is_plain(item) or _is_its_identity(item) for item in value):
        return UnguardedVariable(value, f"{source.name()} {UNGUARDED}", REMEDY, source)
    return contents(tx, value, source).standing_for(value)


def contents(tx: Tracer, value: Any, source: Any) -> SetVariable:
    """As from_value without the guard on the type: for the contents of an object whose class extends a set."""
    base = frozenset if isinstance(value, frozenset) else set
    plain = all(is_plain(item) for item in base.__iter__(value))
    if source is None:
        made = SetVariable([tx.lazy(item, None) for item in base.__iter__(value)], base)
        if plain and type(value) is frozenset:
            made.adopt(tx, value)
        return made
    if not plain and not all(is_plain(item) or _is_its_identity(item) for item in base.__iter__(value)):
        raise Unsupported(f"{source.name()} {UNGUARDED}", remedy=REMEDY)
    if plain and type(value) is base:
        tx.guard(source, Equals(base(value)))
    else:
        tx.guard(source, Predicate((source,), SameElements(value)))
    order = list(base.__iter__(value))
    return SetVariable([tx.wrap(item, None, constant=True) for item in order], base, source, order)


def _is_its_identity(item: Any) -> bool:
    """True for a class or function that is equal to itself alone: which one it is says all that a set asks."""
    if isinstance(item, type):
        return type(item).__eq__ is type.__eq__ and type(item).__hash__ is type.__hash__
    return isinstance(item, (types.FunctionType, types.BuiltinFunctionType))


class SameElements:
    """A predicate for guards: a set has these elements, types included, and is walked in this order if asked for."""

    __qualname__ = "SameElements"

    def __init__(self, elements: Iterable[Any], ordered: bool = False) -> None:
        self.ordered = ordered
        self.elements = self._typed(elements)

    def _typed(self, elements: Iterable[Any]) -> Any:
        pairs = [(type(element), element) for element in elements]
        return pairs if self.ordered else set(pairs)

    def __call__(self, value: Iterable[Any]) -> bool:
        return bool(self.elements == self._typed(value))


class SetVariable(ContainerVariable):
    """A set or frozenset. `order` is the walk of the real set that this one came from."""

    kind = "set"

    def __init__(
        self, items: Iterable[VT] = (), cls: type = set, source: Any = None, order: list[Any] | None = None
    ) -> None:
        super().__init__(source)
        self.cls = cls
        self.version = 0
        self._pending = list(items)
        self._trackers: dict[Hashable, VT] = {}
        self._tokens: Any = set()
        self._order = order
        self._original: dict[Hashable, VT] | None = None

    @property
    def mutable(self) -> bool:  # type: ignore[override]
        return self.cls is not frozenset

    def python_type(self) -> type:
        return self.cls

    # -- elements --------------------------------------------------------------------------------------------------

    def tokens(self, tx: Tracer) -> Any:
        """The stand-ins of the elements, as a real set."""
        if self._pending:
            pending, self._pending = self._pending, []
            for item in pending:
                self._put(tx, item)
        if self._original is None:
            self._original = dict(self._trackers)
        return self._tokens

    def adopt(self, tx: Tracer, value: frozenset[Any]) -> None:
        """Walk the elements as `value`, a set of the same ones, is walked."""
        self.tokens(tx)
        self._tokens = value

    def fill(self, tx: Tracer, iterable: VT) -> None:
        """Put in the items of the iterable, as set(iterable) does."""
        operand, trackers = self._operand(tx, iterable)
        self.tokens(tx).update(operand)
        for token in operand:
            self._trackers.setdefault(token, trackers[token])

    def _put(self, tx: Tracer, item: VT) -> None:
        item = item.realize(tx)
        token = item.hash_key(tx)
        self._tokens.add(token)
        self._trackers.setdefault(token, item)

    def unpack(self, tx: Tracer) -> list[VT]:
        tokens = list(self.tokens(tx))
        if self._order is not None and len(tokens) > 1:
            self._guard_order(tx, tokens)
        return self._at(tokens)

    def _at(self, tokens: Iterable[Hashable]) -> list[VT]:
        try:
            return [self._trackers[token] for token in tokens]
        except KeyError:
            raise self.refuse("a comparison of elements that changes the set") from None

    def _guard_order(self, tx: Tracer, tokens: list[Hashable]) -> None:
        # equal sets may be walked in different orders, and a copy may be walked in another than the set itself
        if self.version or tokens != self._order:
            raise self.refuse(
                "walking (in an order that depends on how it was filled)", remedy="walk sorted(...) or keep a list"
            )
        tx.guard(self.source, Predicate((self.source,), SameElements(self._order or (), ordered=True)))

    def elements(self, tx: Tracer) -> list[VT]:
        """The elements, for uses to which their order makes no difference."""
        return self._at(self.tokens(tx))

    def _operand(self, tx: Tracer, other: VT) -> tuple[Any, dict[Hashable, VT]]:
        """The stand-ins of an iterable in its order (a set as a set, a dict as a dict) and their trackers."""
        other = other.realize(tx)
        peer = self.payload_like(other)
        if isinstance(peer, SetVariable):
            return peer.tokens(tx), peer._trackers
        if other.lookup_special(tx, "__iter__") is None and other.lookup_special(tx, "__getitem__") is None:
            tx.raise_exception(TypeError, f"'{other.python_type().__name__}' object is not iterable")
        trackers: dict[Hashable, VT] = {}
        tokens = []
        for item in other.unpack(tx):
            item = item.realize(tx)
            tokens.append(item.hash_key(tx))
            trackers.setdefault(tokens[-1], item)
        return (dict.fromkeys(tokens) if other.python_type() is dict else tokens), trackers

    def _made(self, tx: Tracer, tokens: Any, tables: list[dict[Hashable, VT]]) -> VT:
        # which of two equal elements is kept (1 or True) shows in the identity of the token
        exact = {id(token): item for table in reversed(tables) for token, item in table.items()}
        equal = {token: item for table in reversed(tables) for token, item in table.items()}
        made = tx.new_set([], self.cls)
        assert isinstance(made, SetVariable)
        made._tokens = tokens
        made._trackers = {token: exact.get(id(token)) or equal[token] for token in tokens}
        if self._order is not None:  # the walk of the result follows from the walk of a set that nothing guards
            made._order, made.version = self._order, 1
        return made

    def _change(self, tx: Tracer) -> None:
        self.tokens(tx)
        tx.side_effects.mutated(self)
        self.version += 1

    # -- container protocol ----------------------------------------------------------------------------------------

    def hash_key(self, tx: Tracer) -> Hashable:
        if self.cls is not frozenset:
            return super().hash_key(tx)
        return frozenset(self.tokens(tx))

    def look_inside(self, tx: Tracer) -> VT:
        for item in self.elements(tx):
            item.look_inside(tx)
        return self

    def as_constant(self) -> Any:
        if self._pending:
            return self.cls(item.as_constant() for item in self._pending)
        values = [self._trackers[token].as_constant() for token in self._tokens]
        if self.version and self._order is not None:
            raise NotConstant("the order of the set is not known")
        return self.cls(values)

    def as_proxy(self) -> Any:
        try:
            return self.as_constant()
        except NotConstant:
            raise self.refuse("passing to a tensor operation", remedy="pass a list or a tuple") from None

    def truth(self, tx: Tracer) -> bool:
        return bool(self.tokens(tx))

    def length(self, tx: Tracer) -> VT:
        return tx.constant(len(self.tokens(tx)))

    def contains(self, tx: Tracer, item: VT) -> bool:
        item = item.realize(tx)
        peer = self.payload_like(item)
        if isinstance(peer, SetVariable):  # Python looks up a set as if it were frozen
            return frozenset(peer.tokens(tx)) in self.tokens(tx)
        return item.hash_key(tx) in self.tokens(tx)

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        peer = self.payload_like(other)
        return tx.constant(self.tokens(tx) == peer.tokens(tx)) if isinstance(peer, SetVariable) else None

    def op_len(self, tx: Tracer, /) -> VT:
        return self.length(tx)

    def op_contains(self, tx: Tracer, item: VT, /) -> VT:
        return tx.constant(self.contains(tx, item))

    def op_iter(self, tx: Tracer, /) -> VT:
        return tx.new_iterator(SetCursor(tx, self), SET_ITERATOR)

    def _compare(self, tx: Tracer, other: VT, name: str) -> VT:
        peer = self.payload_like(other.realize(tx))
        if not isinstance(peer, SetVariable):
            return tx.constant(NotImplemented)
        return tx.constant(getattr(set, name)(self.tokens(tx), peer.tokens(tx)))

    def op_lt(self, tx: Tracer, other: VT, /) -> VT:
        return self._compare(tx, other, "__lt__")

    def op_le(self, tx: Tracer, other: VT, /) -> VT:
        return self._compare(tx, other, "__le__")

    def op_gt(self, tx: Tracer, other: VT, /) -> VT:
        return self._compare(tx, other, "__gt__")

    def op_ge(self, tx: Tracer, other: VT, /) -> VT:
        return self._compare(tx, other, "__ge__")

    # -- new sets --------------------------------------------------------------------------------------------------

    def _combine(self, tx: Tracer, name: str, others: tuple[VT, ...]) -> VT:
        mine = self.tokens(tx)
        operands = [self._operand(tx, other) for other in others]
        tokens = getattr(mine, name)(*(operand for operand, _ in operands))
        return self._made(tx, tokens, [self._trackers, *(trackers for _, trackers in operands)])

    def _operator(self, tx: Tracer, name: str, other: VT) -> VT:
        if self.payload_like(other.realize(tx)) is None:
            return tx.constant(NotImplemented)
        return self._combine(tx, name, (other,))

    def op_or(self, tx: Tracer, other: VT, /) -> VT:
        return self._operator(tx, "union", other)

    def op_and(self, tx: Tracer, other: VT, /) -> VT:
        return self._operator(tx, "intersection", other)

    def op_sub(self, tx: Tracer, other: VT, /) -> VT:
        return self._operator(tx, "difference", other)

    def op_xor(self, tx: Tracer, other: VT, /) -> VT:
        return self._operator(tx, "symmetric_difference", other)

    def do_union(self, tx: Tracer, /, *others: VT) -> VT:
        return self._combine(tx, "union", others)

    def do_intersection(self, tx: Tracer, /, *others: VT) -> VT:
        return self._combine(tx, "intersection", others)

    def do_difference(self, tx: Tracer, /, *others: VT) -> VT:
        return self._combine(tx, "difference", others)

    def do_symmetric_difference(self, tx: Tracer, other: VT, /) -> VT:
        return self._combine(tx, "symmetric_difference", (other,))

    def do_copy(self, tx: Tracer, /) -> VT:
        return self if self.cls is frozenset else self._combine(tx, "copy", ())

    def do_isdisjoint(self, tx: Tracer, other: VT, /) -> VT:
        return tx.constant(self.tokens(tx).isdisjoint(self._operand(tx, other)[0]))

    def do_issubset(self, tx: Tracer, other: VT, /) -> VT:
        return tx.constant(self.tokens(tx).issubset(self._operand(tx, other)[0]))

    def do_issuperset(self, tx: Tracer, other: VT, /) -> VT:
        return tx.constant(self.tokens(tx).issuperset(self._operand(tx, other)[0]))

    # -- changes ---------------------------------------------------------------------------------------------------

    def do_add(self, tx: Tracer, item: VT, /) -> None:
        item.realize(tx).hash_key(tx)
        self._change(tx)
        self._put(tx, item)

    def _drop(self, tx: Tracer, item: VT) -> bool:
        item = item.realize(tx)
        peer = self.payload_like(item)
        token = frozenset(peer.tokens(tx)) if isinstance(peer, SetVariable) else item.hash_key(tx)
        if token not in self.tokens(tx):
            return False
        self._change(tx)
        self._tokens.discard(token)
        del self._trackers[token]
        return True

    def do_remove(self, tx: Tracer, item: VT, /) -> None:
        if not self._drop(tx, item):
            tx.raise_exception(KeyError, item.realize(tx))

    def do_discard(self, tx: Tracer, item: VT, /) -> None:
        self._drop(tx, item)

    def do_pop(self, tx: Tracer, /) -> VT:
        if not self.tokens(tx):
            tx.raise_exception(KeyError, "pop from an empty set")
        self.unpack(tx)  # guards the order
        self._change(tx)
        return self._trackers.pop(self._tokens.pop())

    def do_clear(self, tx: Tracer, /) -> None:
        self._change(tx)
        self._tokens, self._trackers, self._order = set(), {}, None

    def do_update(self, tx: Tracer, /, *others: VT) -> None:
        for other in others:
            self._change(tx)
            self.fill(tx, other)

    def _narrow(self, tx: Tracer, name: str, other: VT) -> None:
        self.tokens(tx)
        operand, trackers = self._operand(tx, other)
        known = {**trackers, **self._trackers}
        self._change(tx)
        getattr(self._tokens, name)(operand)
        self._trackers = {token: known[token] for token in self._tokens}

    def do_intersection_update(self, tx: Tracer, /, *others: VT) -> None:
        made = self._combine(tx, "intersection", others)
        assert isinstance(made, SetVariable)
        self._change(tx)
        self._tokens, self._trackers = made._tokens, made._trackers

    def do_difference_update(self, tx: Tracer, /, *others: VT) -> None:
        for other in others:
            self._narrow(tx, "difference_update", other)

    def do_symmetric_difference_update(self, tx: Tracer, other: VT, /) -> None:
        self._narrow(tx, "symmetric_difference_update", other)

    def _in_place(self, tx: Tracer, other: VT, method: Any) -> VT:
        if self.payload_like(other.realize(tx)) is None:
            return tx.constant(NotImplemented)
        method(tx, other)
        return self

    def op_ior(self, tx: Tracer, other: VT, /) -> VT:
        return self._in_place(tx, other, self.do_update)

    def op_iand(self, tx: Tracer, other: VT, /) -> VT:
        return self._in_place(tx, other, self.do_intersection_update)

    def op_isub(self, tx: Tracer, other: VT, /) -> VT:
        return self._in_place(tx, other, self.do_difference_update)

    def op_ixor(self, tx: Tracer, other: VT, /) -> VT:
        return self._in_place(tx, other, self.do_symmetric_difference_update)

    def op_init(self, tx: Tracer, iterable: VT | None = None, /) -> None:
        if self.cls is frozenset:
            return
        self.do_clear(tx)
        if iterable is not None:
            self.do_update(tx, iterable)

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        elements = self._pending or [self._trackers[token] for token in self._tokens]
        if self.cls is frozenset:
            emit.push_null()
            emit.load_global_object(frozenset)
        elif not is_flat(elements):
            emit.build_set(0)
            emit.remember(self)
            self._emit_each(emit, "add", elements)
            return
        for element in elements:
            emit.load(element)
        emit.build_set(len(elements))
        if self.cls is frozenset:
            emit.call(1)

    @staticmethod
    def _emit_each(emit: Emitter, method: str, elements: list[VT]) -> None:
        # stack: set -> set
        for element in elements:
            emit.copy_top()
            emit.call_method(method, [element])
            emit.pop_top()

    def write_back(self, emit: Emitter) -> None:
        original = self._original or {}
        # by tracker, not by equality: 1.0 that left and 1 that came are two elements
        gone = [item for token, item in original.items() if self._trackers.get(token) is not item]
        new = [item for token in self._tokens if (item := self._trackers[token]) is not original.get(token)]
        emit.load(self)
        self._emit_each(emit, "discard", gone)
        self._emit_each(emit, "add", new)
        emit.pop_top()


class SetCursor(Cursor):
    """Iteration over a set that notices when its size changes."""

    def __init__(self, tx: Tracer, owner: SetVariable) -> None:
        self.owner: SetVariable | None = owner
        self.items = owner.unpack(tx)
        self.version = owner.version
        self.given = 0

    def __call__(self, tx: Tracer) -> VT | None:
        if self.owner is None:
            return None
        if self.owner.version != self.version:
            if len(self.owner.tokens(tx)) != len(self.items):
                self.version = -1
                tx.raise_exception(RuntimeError, "Set changed size during iteration")
            if list(self.owner.tokens(tx)) != [item.realize(tx).hash_key(tx) for item in self.items]:
                raise self.owner.refuse("replacing elements during iteration")
        if self.given >= len(self.items):
            self.owner = None
            return None
        self.given += 1
        return self.items[self.given - 1]

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        emit.push_null()
        emit.load_global_object(iter)
        if self.owner is None:
            emit.load_const(())
            emit.call(1)
            return
        if self.owner.version != self.version:
            raise owner.refuse("giving the iterator of a changed set back to Python")
        emit.load(self.owner)
        emit.call(1)
        advance(emit, owner, self.given)
