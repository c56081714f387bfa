"""Dicts (dict, OrderedDict, defaultdict, Counter) and mapping proxies.

A table maps the stand-in of each key (`hash_key`) to its (key, value) trackers, in insertion order. A dict from outside
is read key by key: a key found is guarded by its item's source, a key not found by MissingKey, and only what depends
on all keys (iteration, len, ==, ...) guards them all. Changes are replayed key by key, so that a dict that grows with
each call needs no guard on its size.
"""

from __future__ import annotations

import collections
import gc
import operator
import types
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import DictKeys, IsNot, MissingKey, Predicate, TypeIs
from ..guards.source import AttrSource, CallSource, ConstSource, DictItemSource
from .base import NotConstant, VariableTracker, store_attributes
from .container import ContainerVariable, is_flat, load_class, same
from .dict_view import DictCursor, DictViewVariable
from .literal import is_plain

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
Pairs = Iterable[tuple[VT, VT]]
DICT_CLASSES = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real dict (or OrderedDict, defaultdict, Counter) or mapping proxy; its exact type is guarded."""
    tx.guard(source, TypeIs(type(value)))
    if isinstance(value, types.MappingProxyType):
        return _proxy_from_value(tx, value, source).standing_for(value)
    return contents(tx, value, source).standing_for(value)


def contents(tx: Tracer, value: dict[Any, Any], source: Any, base: type | None = None) -> DictVariable:
    """As from_value without the guard on the type: for the contents of an object whose class extends `base`."""
    cls = base or next(base for base in type(value).__mro__ if base in DICT_CLASSES)
    factory = None
    if isinstance(value, collections.defaultdict):
        factory = tx.lazy(value.default_factory, source and AttrSource(source, "default_factory"))
    real = dict(dict.items(value)) if cls is not collections.OrderedDict else _in_order(value)
    return DictVariable((), cls, source, factory, original=real)


def _in_order(value: Any) -> dict[Any, Any]:
    """The items of an OrderedDict by the order of its own, which methods of dict itself do not keep up."""
    try:
        keys = list(collections.OrderedDict.__iter__(value))
    except KeyError:  # Python's own iterator stumbles over a key that is gone
        keys = None
    if keys is None or len(keys) != dict.__len__(value) or not all(dict.__contains__(value, key) for key in keys):
        raise Unsupported(
            "the order that an OrderedDict keeps is not that of its keys",
            remedy="change an OrderedDict by its own methods, not by those of dict",
        )
    return {key: dict.__getitem__(value, key) for key in keys}


def _proxy_from_value(tx: Tracer, value: types.MappingProxyType[Any, Any], source: Any) -> MappingProxyVariable:
    behind = gc.get_referents(value)
    if source is not None and len(behind) == 1 and type(behind[0]) in (dict, collections.OrderedDict):
        return MappingProxyVariable(tx.wrap(behind[0], CallSource(source, mapping_behind)).realize(tx), source)
    real = dict(value)
    if source is not None:
        if not all(is_plain(key) and is_plain(item) for key, item in real.items()):
            raise Unsupported(
                f"{source.name()} is a mapping proxy of objects that can't be guarded through it",
                remedy="pass the dict itself",
            )
        tx.guard(source, Predicate((source,), SameItems(real)))
    return MappingProxyVariable(DictVariable((), dict, None, None, original=real), source)


def mapping_behind(proxy: types.MappingProxyType[Any, Any]) -> Any:
    """What a mapping proxy shows."""
    return gc.get_referents(proxy)[0]


class SameItems:
    """A predicate for guards: a mapping has these items in this order, types included."""

    __qualname__ = "SameItems"

    def __init__(self, items: Mapping[Any, Any]) -> None:
        self.items = [(key, type(key), item, type(item)) for key, item in items.items()]

    def __call__(self, value: Mapping[Any, Any]) -> bool:
        return self.items == [(key, type(key), item, type(item)) for key, item in value.items()]


class DictVariable(ContainerVariable):
    """A dict. `original` holds the real contents of one that came from outside."""

    kind = "dict"

    def __init__(
        self,
        items: Mapping[VT, VT] | Pairs = (),
        cls: type = dict,
        source: Any = None,
        default_factory: VT | None = None,
        original: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__(source)
        self.cls = cls
        self.default_factory = default_factory
        self.version = 0  # counts changes of the set of keys or their order
        self._pending: list[tuple[VT, VT]] = list(items.items() if isinstance(items, Mapping) else items)
        self._original = original if original is not None else {}
        self._plain = original is None or all(is_plain(key) for key in original)
        self._loaded = original is None and not self._pending
        self._open = source is not None  # the keys are not guarded
        self._table: dict[Hashable, tuple[VT, VT]] = {}
        self._real_keys: dict[Hashable, Any] = {}
        self._stored_keys: dict[Any, Any] = {}
        self._stored: dict[Hashable, VT] = {}
        self._deleted: dict[Hashable, VT] = {}
        self._rebuilt = False
        self._factory_changed = False
        self._visiting = False
        self.attributes: dict[str, VT] = {}  # that the traced code set on an OrderedDict of its own

    def python_type(self) -> type:
        return self.cls

    # -- the table -------------------------------------------------------------------------------------------------

    def table(self, tx: Tracer) -> dict[Hashable, tuple[VT, VT]]:
        """All entries, without any guard on the keys."""
        if not self._loaded:
            self._loaded = True
            fetched, self._table = self._table, {}
            for key, value in self._original.items():
                tracker, token = self._real_key(tx, key)
                self._table[token] = fetched.get(token) or (tracker, self._lazy(tx, key, value))
            for key_tracker, value_tracker in self._pending:
                token = key_tracker.realize(tx).hash_key(tx)
                old = self._table.get(token)
                self._table[token] = (old[0] if old else key_tracker.realize(tx), value_tracker)
            self._pending = []
        return self._table

    def _real_key(self, tx: Tracer, key: Any) -> tuple[VT, Hashable]:
        if is_plain(key) and not isinstance(key, (tuple, frozenset)):
            tracker = tx.constant(key)
        else:
            tracker = tx.wrap(key, ConstSource(key) if self.source is not None else None)
        token = tracker.hash_key(tx)
        self._real_keys[token] = key
        return tracker, token

    def _lazy(self, tx: Tracer, key: Any, value: Any) -> VT:
        return tx.lazy(value, DictItemSource(self.source, key) if self.source is not None else None)

    def _find(self, tx: Tracer, token: Hashable) -> tuple[VT, VT] | None:
        if self._loaded or not self._plain or self._pending:
            return self.table(tx).get(token)
        if token in self._table:
            return self._table[token]
        if not is_plain(token) or token not in self._original:
            return None
        if not self._stored_keys:
            self._stored_keys = {key: key for key in self._original}
        key = self._stored_keys[token]  # the dict's own key: True where 1 was asked for
        tracker, token = self._real_key(tx, key)
        self._table[token] = (tracker, self._lazy(tx, key, self._original[key]))
        return self._table[token]

    def reveal(self, tx: Tracer) -> None:
        """Guard all keys and their order before anything depends on them."""
        if self._open and self.source is not None and not self._rebuilt:
            tx.guard(self.source, DictKeys(tuple(self._original)))
        self._open = False
        self.table(tx)

    def _guard_found(self, tx: Tracer, token: Hashable) -> None:
        if self.source is not None and not self._rebuilt and token not in self._stored:
            value = self._original[self._real_keys[token]]
            # any key that is there passes: only its absence is a miss
            absent = Ellipsis if value is not Ellipsis else NotImplemented
            tx.guard(DictItemSource(self.source, self._real_keys[token]), IsNot(absent))

    def _guard_missing(self, tx: Tracer, token: Hashable) -> None:
        if self.source is None or self._rebuilt or token in self._deleted:
            return
        if is_plain(token):
            tx.guard(self.source, MissingKey(token))
        else:
            self.reveal(tx)

    # -- reading and changing one key ------------------------------------------------------------------------------

    def lookup(self, tx: Tracer, key: VT) -> VT | None:
        """The value of a key, None when it is missing; guarded either way."""
        token = key.realize(tx).hash_key(tx)
        entry = self._find(tx, token)
        if entry is None:
            self._guard_missing(tx, token)
            return None
        self._guard_found(tx, token)
        return entry[1].realize(tx)

    def contains(self, tx: Tracer, item: VT) -> bool:
        token = item.realize(tx).hash_key(tx)
        if self._find(tx, token) is None:
            self._guard_missing(tx, token)
            return False
        self._guard_found(tx, token)
        return True

    def store(self, tx: Tracer, key: VT, value: VT) -> None:
        """dict[key] = value."""
        key = key.realize(tx)
        token = key.hash_key(tx)
        table = self.table(tx)
        tx.side_effects.mutated(self)
        old = table.get(token)
        table[token] = (old[0] if old is not None else key, value)
        self._stored.setdefault(token, key)
        if old is None:
            self.version += 1

    def delete(self, tx: Tracer, key: VT) -> VT | None:
        """Delete a key and give its value; None when it is missing."""
        value = self.lookup(tx, key)
        if value is None:
            return None
        token = key.realize(tx).hash_key(tx)
        tx.side_effects.mutated(self)
        entry = self.table(tx).pop(token)
        if self._stored.pop(token, None) is not None:
            # stored without a look at what was there; to leave nothing behind, the replay must know
            if token in self._real_keys:
                self._guard_found(tx, token)
            else:
                self._guard_missing(tx, token)
        if token in self._real_keys:
            self._deleted[token] = entry[0]
        self.version += 1
        return value

    def _empty(self, tx: Tracer) -> None:
        tx.side_effects.mutated(self)
        self._loaded = self._rebuilt = True
        self._pending, self._table = [], {}
        self._stored.clear()
        self._deleted.clear()
        self.version += 1

    # -- container protocol ----------------------------------------------------------------------------------------

    def pairs(self, tx: Tracer) -> list[tuple[VT, VT]]:
        """All (key, value) trackers in order; the keys are guarded."""
        self.reveal(tx)
        return list(self._table.values())

    def unpack(self, tx: Tracer) -> list[VT]:
        return [key for key, _ in self.pairs(tx)]

    def truth(self, tx: Tracer) -> bool:
        self.reveal(tx)
        return bool(self._table)

    def length(self, tx: Tracer) -> VT:
        self.reveal(tx)
        return tx.constant(len(self._table))

    def look_inside(self, tx: Tracer) -> VT:
        self.reveal(tx)
        if not self._visiting:
            self._visiting = True
            try:
                for key, value in self._table.values():
                    key.look_inside(tx)
                    value.look_inside(tx)
            finally:
                self._visiting = False
        return self

    def _known_pairs(self) -> list[tuple[VT, VT]]:
        if self._open or (not self._loaded and self._original):
            raise NotConstant("nothing guards the keys of the dict")
        pairs = self._table.values() if self._loaded else self._pending
        return [(key, getattr(value, "realized", None) or value) for key, value in pairs]

    def as_constant(self) -> dict[Any, Any]:
        if self._visiting or self.cls not in (dict, collections.OrderedDict):
            raise NotConstant("a dict that contains itself or has behaviour of its own")
        self._visiting = True
        try:
            return self.cls((key.as_constant(), value.as_constant()) for key, value in self._known_pairs())
        finally:
            self._visiting = False

    def as_proxy(self) -> dict[Any, Any]:
        if self._visiting:
            raise self.refuse("passing a container that contains itself to a tensor operation")
        self._visiting = True
        try:
            return {key.as_constant(): value.as_proxy() for key, value in self._known_pairs()}
        except NotConstant as error:
            raise self.refuse(f"passing to a tensor operation ({error})") from None
        finally:
            self._visiting = False

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        peer = self.payload_like(other)
        if not isinstance(peer, DictVariable):
            return None
        mine, theirs = self.pairs(tx), peer.pairs(tx)
        if len(mine) != len(theirs):
            return tx.constant(False)
        ordered = issubclass(self.cls, collections.OrderedDict) and issubclass(peer.cls, collections.OrderedDict)
        if ordered and list(self._table) != list(peer._table):
            return tx.constant(False)
        for token, (_, value) in list(self._table.items()):
            if token not in peer._table or not same(tx, value, peer._table[token][1]):
                return tx.constant(False)
        return tx.constant(True)

    def has_method(self, name: str) -> bool:
        if not super().has_method(name):
            return False
        # Counter's own methods come first, but for those that are written out here
        function = getattr(self.cls, name)
        return not isinstance(function, types.FunctionType) or name in COUNTER_METHODS

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.default_factory.realize(tx) if self.default_factory is not None else tx.constant(None)
        if name in self.attributes:
            return self.attributes[name]
        return super().get_attr(tx, name)

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if name == "default_factory" and self.cls is collections.defaultdict:
            tx.side_effects.mutated(self)
            self.default_factory = value.realize(tx)
            self._factory_changed = True
            return
        if self.cls is collections.OrderedDict and self.source is None and not hasattr(self.cls, name):
            self.attributes[name] = value
            return
        super().set_attr(tx, name, value)

    # -- methods ---------------------------------------------------------------------------------------------------

    def op_len(self, tx: Tracer, /) -> VT:
        return self.length(tx)

    def op_contains(self, tx: Tracer, key: VT, /) -> VT:
        return tx.constant(self.contains(tx, key))

    def op_getitem(self, tx: Tracer, key: VT, /) -> VT:
        value = self.lookup(tx, key)
        if value is not None:
            return value
        owner = self.payload_of  # an object whose class may have a __missing__ of its own
        method = owner.lookup_special(tx, "__missing__") if owner is not None else None
        return self.op_missing(tx, key) if method is None else method.call(tx, [key], {})

    def op_missing(self, tx: Tracer, key: VT, /) -> VT:
        if self.cls is collections.Counter:
            return tx.constant(0)
        factory = self.get_attr(tx, "default_factory") if self.cls is collections.defaultdict else None
        if factory is None or (factory.kind == "constant" and factory.as_constant() is None):
            tx.raise_exception(KeyError, key.realize(tx))
        value = tx.call_function(factory, [], {})
        self.store(tx, key, value)
        return value

    def op_setitem(self, tx: Tracer, key: VT, value: VT, /) -> None:
        self.store(tx, key, value)

    def op_delitem(self, tx: Tracer, key: VT, /) -> None:
        if self.delete(tx, key) is None and self.cls is not collections.Counter:
            tx.raise_exception(KeyError, key.realize(tx))

    def op_iter(self, tx: Tracer, /) -> VT:
        return self.do_keys(tx).iterate(tx)

    def op_reversed(self, tx: Tracer, /) -> VT:
        return tx.new_iterator(
            DictCursor(tx, self, "keys", backwards=True), DictCursor.iterator_class(self, "keys", True)
        )

    def do_keys(self, tx: Tracer, /) -> VT:
        return DictViewVariable(self, "keys")

    def do_values(self, tx: Tracer, /) -> VT:
        return DictViewVariable(self, "values")

    def do_items(self, tx: Tracer, /) -> VT:
        return DictViewVariable(self, "items")

    def do_get(self, tx: Tracer, key: VT, default: VT | None = None, /) -> VT | None:
        value = self.lookup(tx, key)
        return default if value is None else value

    def do_setdefault(self, tx: Tracer, key: VT, default: VT | None = None, /) -> VT:
        value = self.lookup(tx, key)
        if value is None:
            value = default if default is not None else tx.constant(None)
            self.store(tx, key, value)
        return value

    def do_pop(self, tx: Tracer, key: VT, default: VT | None = None, /) -> VT:
        value = self.delete(tx, key)
        if value is None:
            if default is None:
                tx.raise_exception(KeyError, key.realize(tx))
            return default
        return value

    def do_popitem(self, tx: Tracer, /, last: VT | None = None) -> VT:
        if last is not None and not self._is_ordered:
            tx.raise_exception(TypeError, "dict.popitem() takes no arguments (1 given)")
        self.reveal(tx)
        if not self._table:
            tx.raise_exception(KeyError, f"{'' if self._is_ordered else 'popitem(): '}dictionary is empty")
        from_end = True
        if last is not None:
            from_end = tx.truth(last.realize(tx))
        entries = self._table.values()
        key, value = next(reversed(entries) if from_end else iter(entries))
        self.delete(tx, key)
        return tx.new_tuple([key, value])

    @property
    def _is_ordered(self) -> bool:
        return issubclass(self.cls, collections.OrderedDict)

    def do_move_to_end(self, tx: Tracer, /, key: VT, last: VT | None = None) -> None:
        self.reveal(tx)
        token = key.realize(tx).hash_key(tx)
        if token not in self._table:
            tx.raise_exception(KeyError, key.realize(tx))
        tx.side_effects.mutated(self)
        entry = self._table.pop(token)
        if last is None or tx.truth(last.realize(tx)):
            self._table[token] = entry
        else:
            self._table = {token: entry, **self._table}
        self._rebuilt = True
        self.version += 1

    def do_clear(self, tx: Tracer, /) -> None:
        self._empty(tx)

    def do_copy(self, tx: Tracer, /) -> VT:
        made = tx.new_dict(self.pairs(tx), self.cls)
        made.default_factory = self.default_factory  # type: ignore[attr-defined]
        return made

    op_copy = do_copy

    def do_update(self, tx: Tracer, other: VT | None = None, /, **named: VT) -> None:
        if self.cls is collections.Counter:
            self._count(tx, other, named, 1)
            return
        if other is not None:
            for key, value in mapping_pairs(tx, other):
                self.store(tx, key, value)
        for name, value in named.items():
            self.store(tx, tx.constant(name), value)

    def op_init(self, tx: Tracer, /, *args: VT, **named: VT) -> None:
        if self.cls is collections.defaultdict and args:
            self.default_factory, args = args[0].realize(tx), args[1:]
        if len(args) > 1:
            tx.raise_exception(TypeError, f"{self.cls.__name__} expected at most 1 argument, got {len(args)}")
        self.do_update(tx, *args, **named)

    # -- operators -------------------------------------------------------------------------------------------------

    def op_or(self, tx: Tracer, other: VT, /) -> VT:
        peer = self.payload_like(other.realize(tx))
        return tx.constant(NotImplemented) if peer is None else self._merged(tx, self, peer)

    def op_ror(self, tx: Tracer, other: VT, /) -> VT:
        peer = self.payload_like(other.realize(tx))
        return tx.constant(NotImplemented) if peer is None else self._merged(tx, peer, self)

    def _merged(self, tx: Tracer, first: Any, second: Any) -> VT:
        made = tx.new_dict([*first.pairs(tx), *second.pairs(tx)], self.cls)
        made.default_factory = self.default_factory  # type: ignore[attr-defined]
        return made

    def op_ior(self, tx: Tracer, other: VT, /) -> VT:
        self.do_update(tx, other)
        return self

    # -- Counter ---------------------------------------------------------------------------------------------------

    def _count(self, tx: Tracer, other: VT | None, named: dict[str, VT], sign: int) -> None:
        import operator

        changes: list[tuple[VT, VT]] = []
        if other is not None:
            other = other.realize(tx)
            if not (other.kind == "constant" and other.as_constant() is None):
                peer = self.payload_like(other)
                one = tx.constant(1)
                changes = peer.pairs(tx) if isinstance(peer, DictVariable) else [(key, one) for key in other.unpack(tx)]
                if sign > 0 and isinstance(peer, DictVariable) and not self.truth(tx):
                    for key, amount in changes:  # into an empty Counter the counts go as they are
                        self.store(tx, key, amount)
                    changes = []
        if sign > 0 and named and not changes and not self.truth(tx):
            for name, value in named.items():
                self.store(tx, tx.constant(name), value)
            return
        changes += [(tx.constant(name), value) for name, value in named.items()]
        for key, amount in changes:
            current = self.lookup(tx, key)
            current = tx.constant(0) if current is None else current
            if sign > 0:
                self.store(tx, key, tx.binary(operator.add, amount.realize(tx), current))
            else:
                self.store(tx, key, tx.binary(operator.sub, current, amount.realize(tx)))

    def do_subtract(self, tx: Tracer, other: VT | None = None, /, **named: VT) -> None:
        self._count(tx, other, named, -1)

    def do_total(self, tx: Tracer, /) -> VT:
        import operator

        total = tx.constant(0)
        for _, value in self.pairs(tx):
            total = tx.binary(operator.add, total, value.realize(tx))
        return total

    # -- coming back -----------------------------------------------------------------------------------------------

    def _final_pairs(self) -> list[tuple[VT, VT]]:
        return list(self._table.values()) if self._loaded else list(self._pending)

    def reconstruct(self, emit: Emitter) -> None:
        pairs = self._final_pairs()
        if self.cls is dict and is_flat([item for pair in pairs for item in pair]):
            for key, value in pairs:
                emit.load(key)
                emit.load(value)
            emit.build_map(len(pairs))
            return
        if self.cls is dict:
            emit.build_map(0)
        else:
            emit.push_null()
            load_class(emit, self.cls)
            if self.default_factory is not None:
                emit.load(self.default_factory)
            emit.call(int(self.default_factory is not None))
        emit.remember(self)
        for key, value in pairs:
            emit.copy_top()
            self._emit_store(emit, key, value)
        store_attributes(emit, self)

    @staticmethod
    def _emit_store(emit: Emitter, key: VT, value: VT) -> None:
        # stack: dict -> ; dict[key] = value
        emit.load(value)
        emit.swap(2)
        emit.load(key)
        emit.store_subscr()

    def write_back(self, emit: Emitter) -> None:
        if self._factory_changed and self.default_factory is not None:
            emit.load(self.default_factory)
            emit.load(self)
            emit.store_attr("default_factory")
        if self._rebuilt:
            emit.load(self)
            emit.call_method("clear", [])
            emit.pop_top()
            for key, value in self._table.values():
                emit.load(self)
                self._emit_store(emit, key, value)
            return
        # a key that was deleted and set again stands at the end, so it is deleted first
        for key in self._deleted.values():
            emit.load(self)
            emit.load(key)
            emit.delete_subscr()
        # in the order of the stores: whether a key was there before, and as 1 or as True, is not known
        for token, key in self._stored.items():
            emit.load(self)
            self._emit_store(emit, key, self._table[token][1])


COUNTER_METHODS = frozenset({"__init__", "__missing__", "__delitem__", "update", "subtract", "total", "copy"})


def mapping_pairs(tx: Tracer, other: VT) -> list[tuple[VT, VT]]:
    """(key, value) pairs of what dict(x) accepts: a mapping, an object with keys(), or an iterable of pairs."""
    other = other.realize(tx)
    payload = getattr(other, "payload", None)
    if isinstance(other, DictVariable):
        return other.pairs(tx)
    if isinstance(payload, DictVariable) and other.python_type().__iter__ is dict.__iter__:  # type: ignore[attr-defined]
        return payload.pairs(tx)
    if hasattr(other.python_type(), "keys"):
        keys = other.call_method(tx, "keys", [], {}).realize(tx).unpack(tx)
        return [(key, other.get_item(tx, key.realize(tx))) for key in keys]
    pairs = []
    for index, pair in enumerate(other.unpack(tx)):
        pair = pair.realize(tx)
        if pair.lookup_special(tx, "__iter__") is None:
            tx.raise_exception(TypeError, f"cannot convert dictionary update sequence element #{index} to a sequence")
        items = pair.unpack(tx)
        if len(items) != 2:
            tx.raise_exception(
                ValueError, f"dictionary update sequence element #{index} has length {len(items)}; 2 is required"
            )
        pairs.append((items[0].realize(tx), items[1]))
    return pairs


class MappingProxyVariable(ContainerVariable):
    """types.MappingProxyType: a dict that can only be read."""

    kind = "mappingproxy"
    mutable = False
    READING = frozenset(
        "get keys values items copy __contains__ __getitem__ __iter__ __len__ __or__ __ror__ __reversed__".split()
    )

    def __init__(self, mapping: VT, source: Any = None) -> None:
        super().__init__(source)
        self.mapping = mapping

    def python_type(self) -> type:
        return types.MappingProxyType

    def has_method(self, name: str) -> bool:
        return name in self.READING or name in ("__eq__", "__ne__")

    def truth(self, tx: Tracer) -> bool:
        return self.mapping.truth(tx)

    def length(self, tx: Tracer) -> VT:
        return self.mapping.length(tx)

    def contains(self, tx: Tracer, item: VT) -> bool:
        return self.mapping.contains(tx, item)

    def unpack(self, tx: Tracer) -> list[VT]:
        return self.mapping.unpack(tx)

    def iterate(self, tx: Tracer) -> VT:
        return self.mapping.iterate(tx)

    def get_item(self, tx: Tracer, key: VT) -> VT:
        return self.mapping.get_item(tx, key)

    def set_item(self, tx: Tracer, key: VT, value: VT) -> None:
        tx.raise_exception(TypeError, "'mappingproxy' object does not support item assignment")

    def del_item(self, tx: Tracer, key: VT) -> None:
        tx.raise_exception(TypeError, "'mappingproxy' object does not support item deletion")

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        return tx.binary(operator.eq, self.mapping, other.mapping if isinstance(other, MappingProxyVariable) else other)

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name in self.READING:
            return self.mapping.call_method(tx, name, args, kwargs)
        if name in ("__eq__", "__ne__"):
            handler = self.handler(name)
            return handler(self, tx, *args)
        return self.get_attr(tx, name).call(tx, args, kwargs)

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(types.MappingProxyType)
        emit.load(self.mapping)
        emit.call(1)
