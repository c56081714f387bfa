"""Views of dicts (keys, values, items) and iteration over dicts that may change meanwhile."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from .base import VariableTracker
from .container import ContainerVariable, Cursor, advance, same

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
_EXAMPLES: Any = (collections.OrderedDict(), {})
VIEW_CLASSES = {
    (ordered, part): type(getattr(_EXAMPLES[not ordered], part)())
    for ordered in (True, False)
    for part in ("keys", "values", "items")
}


def _is_ordered(owner: VT) -> bool:
    return issubclass(owner.python_type(), collections.OrderedDict)


class DictCursor(Cursor):
    """Iteration over the keys, values or items of a dict, which notices changes as Python does."""

    def __init__(self, tx: Tracer, owner: Any, part: str, backwards: bool = False) -> None:
        owner.reveal(tx)
        self.owner: Any = owner
        self.part = part
        self.backwards = backwards
        self.version = owner.version
        tokens = list(owner.table(tx))
        self.tokens = tokens[::-1] if backwards else tokens
        self.size = len(tokens)
        self.given = 0

    @staticmethod
    def iterator_class(owner: VT, part: str, backwards: bool = False) -> type:
        """The class of Python's iterator."""
        example: Any = collections.OrderedDict() if _is_ordered(owner) else {}
        view = getattr(example, part)()
        return type(reversed(view)) if backwards else type(iter(view))

    def __call__(self, tx: Tracer) -> VT | None:
        if self.owner is None:
            return None
        table = self.owner.table(tx)
        if self.owner.version != self.version:
            self._notice_change(tx, len(table))
        if self.owner is None or self.given >= len(self.tokens):
            self.owner = None
            return None
        key, value = table[self.tokens[self.given]]
        self.given += 1
        if self.part == "keys":
            return key.realize(tx)
        return value.realize(tx) if self.part == "values" else tx.new_tuple([key, value])

    def _notice_change(self, tx: Tracer, size: int) -> None:
        owner = self.owner
        if _is_ordered(owner):
            self.owner = None
            if self.given < len(self.tokens):
                tx.raise_exception(RuntimeError, "OrderedDict mutated during iteration")
        elif size != self.size:
            self.size = -1  # Python makes this state stick: every later step raises again
            tx.raise_exception(RuntimeError, "dictionary changed size during iteration")
        else:
            raise owner.refuse("replacing keys of a dict during iteration over it")

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        emit.push_null()
        emit.load_global_object(reversed if self.backwards else iter)
        if self.owner is None:
            emit.load_const(())
            emit.call(1)
            return
        if self.owner.version != self.version:
            raise owner.refuse("giving the iterator of a changed dict back to Python")
        emit.load(self.owner)
        emit.call_method(self.part, [])
        emit.call(1)
        advance(emit, owner, self.given)


class DictViewVariable(ContainerVariable):
    """dict.keys(), dict.values() or dict.items()."""

    kind = "dict_view"
    mutable = False

    def __init__(self, owner: Any, part: str) -> None:
        super().__init__(None)
        self.owner = owner
        self.part = part

    def python_type(self) -> type:
        return VIEW_CLASSES[_is_ordered(self.owner), self.part]

    def truth(self, tx: Tracer) -> bool:
        return self.owner.truth(tx)

    def length(self, tx: Tracer) -> VT:
        return self.owner.length(tx)

    def unpack(self, tx: Tracer) -> list[VT]:
        pairs = self.owner.pairs(tx)
        if self.part == "items":
            return [tx.new_tuple(pair) for pair in pairs]
        return [pair[0 if self.part == "keys" else 1] for pair in pairs]

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "mapping":
            raise self.refuse("the attribute 'mapping'")
        return super().get_attr(tx, name)

    def contains(self, tx: Tracer, item: VT) -> bool:
        item = item.realize(tx)
        if self.part == "keys":
            return self.owner.contains(tx, item)
        if self.part == "values":
            return any(same(tx, value, item) for value in self.unpack(tx))
        if item.kind != "tuple":
            return False
        pair = item.unpack(tx)
        if len(pair) != 2:
            return False
        value = self.owner.lookup(tx, pair[0])
        return value is not None and same(tx, value, pair[1])

    def op_iter(self, tx: Tracer, /) -> VT:
        return tx.new_iterator(DictCursor(tx, self.owner, self.part), DictCursor.iterator_class(self.owner, self.part))

    def op_reversed(self, tx: Tracer, /) -> VT:
        cls = DictCursor.iterator_class(self.owner, self.part, True)
        return tx.new_iterator(DictCursor(tx, self.owner, self.part, backwards=True), cls)

    def op_len(self, tx: Tracer, /) -> VT:
        return self.length(tx)

    def op_contains(self, tx: Tracer, item: VT, /) -> VT:
        return tx.constant(self.contains(tx, item))

    # -- set operations of keys and items --------------------------------------------------------------------------

    def _set(self, tx: Tracer) -> VT:
        return tx.new_set(self.unpack(tx))

    def _is_iterable(self, tx: Tracer, other: VT) -> bool:
        return self.part != "values" and other.realize(tx).lookup_special(tx, "__iter__") is not None

    def op_and(self, tx: Tracer, other: VT, /) -> VT:
        other = other.realize(tx)
        if not self._is_iterable(tx, other):
            return tx.constant(NotImplemented)
        # the smaller side is walked, so that the result fills up in the order that Python fills it
        small, large = (self, other) if isinstance(other, DictViewVariable) else (other, self)
        if isinstance(other, DictViewVariable) and len(other.unpack(tx)) <= len(self.unpack(tx)):
            small, large = other, self
        if other.kind == "set" and other.python_type() is set:
            if len(other.unpack(tx)) >= len(self.unpack(tx)):
                return other.call_method(tx, "intersection", [self], {})
        return tx.new_set([item for item in small.unpack(tx) if large.contains(tx, item.realize(tx))])

    op_rand = op_and

    def op_or(self, tx: Tracer, other: VT, /) -> VT:
        return self._combine(tx, self, other, "update")

    def op_ror(self, tx: Tracer, other: VT, /) -> VT:
        return self._combine(tx, other, self, "update")

    def op_sub(self, tx: Tracer, other: VT, /) -> VT:
        return self._combine(tx, self, other, "difference_update")

    def op_rsub(self, tx: Tracer, other: VT, /) -> VT:
        return self._combine(tx, other, self, "difference_update")

    def op_xor(self, tx: Tracer, other: VT, /) -> VT:
        return self._combine(tx, self, other, "symmetric_difference_update")

    def op_rxor(self, tx: Tracer, other: VT, /) -> VT:
        return self._combine(tx, other, self, "symmetric_difference_update")

    def _combine(self, tx: Tracer, left: VT, right: VT, method: str) -> VT:
        left, right = left.realize(tx), right.realize(tx)
        if not (self._is_iterable(tx, left) and self._is_iterable(tx, right)):
            return tx.constant(NotImplemented)
        made = tx.new_set(left.unpack(tx))
        made.call_method(tx, method, [right], {})
        return made

    def do_isdisjoint(self, tx: Tracer, other: VT, /) -> VT:
        return tx.constant(not any(self.contains(tx, item.realize(tx)) for item in other.realize(tx).unpack(tx)))

    def _compare(self, tx: Tracer, other: VT, fits: Any) -> VT:
        other = other.realize(tx)
        is_set = other.kind == "set" or (isinstance(other, DictViewVariable) and other.part != "values")
        if self.part == "values" or not is_set:
            return tx.constant(NotImplemented)
        mine, theirs = self.unpack(tx), other.unpack(tx)
        return tx.constant(fits(self, mine, other, theirs))

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        def fits(left: VT, mine: list[VT], right: VT, theirs: list[VT]) -> bool:
            return len(mine) == len(theirs) and all(right.contains(tx, item.realize(tx)) for item in mine)

        result = self._compare(tx, other, fits)
        return None if result.as_constant() is NotImplemented else result

    def op_le(self, tx: Tracer, other: VT, /) -> VT:
        return self._compare(
            tx, other, lambda a, m, b, t: len(m) <= len(t) and all(b.contains(tx, item.realize(tx)) for item in m)
        )

    def op_lt(self, tx: Tracer, other: VT, /) -> VT:
        return self._compare(
            tx, other, lambda a, m, b, t: len(m) < len(t) and all(b.contains(tx, item.realize(tx)) for item in m)
        )

    def op_ge(self, tx: Tracer, other: VT, /) -> VT:
        return self._compare(
            tx, other, lambda a, m, b, t: len(m) >= len(t) and all(a.contains(tx, item.realize(tx)) for item in t)
        )

    def op_gt(self, tx: Tracer, other: VT, /) -> VT:
        return self._compare(
            tx, other, lambda a, m, b, t: len(m) > len(t) and all(a.contains(tx, item.realize(tx)) for item in t)
        )

    def reconstruct(self, emit: Emitter) -> None:
        emit.load(self.owner)
        emit.call_method(self.part, [])
