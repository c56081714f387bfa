"""InstanceDictVariable: `object.__dict__`, read and changed by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .base import VariableTracker

if TYPE_CHECKING:
    from .object import UserObjectVariable
    from .protocols import Emitter, Tracer

VT = VariableTracker


class InstanceDictVariable(VariableTracker):
    """`object.__dict__`: a mapping view of the attributes."""

    kind = "instance_dict"
    mutable = True

    def __init__(self, owner: UserObjectVariable) -> None:
        super().__init__(None)
        self.owner = owner

    def python_type(self) -> type:
        return dict

    def truth(self, tx: Tracer) -> bool:
        return bool(self.owner.own_names())

    def length(self, tx: Tracer) -> VT:
        return tx.constant(len(self._names(tx)))

    def _names(self, tx: Tracer) -> list[str]:
        if self.owner.value is not None and self.owner.source is not None:
            tx.guard_instance_keys(self.owner)
        return self.owner.own_names()

    def get_item(self, tx: Tracer, key: VT) -> VT:
        value = self.owner.own_attribute(tx, key.as_constant())
        if value is None:
            tx.raise_exception(KeyError, key.as_constant())
        return value

    def set_item(self, tx: Tracer, key: VT, value: VT) -> None:
        if not key.is_constant() or type(key.as_constant()) is not str:
            raise self.owner.refuse("a key of __dict__ that is no string")
        self.owner.write(tx, key.as_constant(), value)

    def del_item(self, tx: Tracer, key: VT) -> None:
        if self.owner.own_attribute(tx, key.as_constant()) is None:
            tx.raise_exception(KeyError, key.as_constant())
        self.owner.remove(tx, key.as_constant())

    def contains(self, tx: Tracer, item: VT) -> bool:
        return self.owner.own_attribute(tx, item.as_constant()) is not None

    def iterate(self, tx: Tracer) -> VT:
        return self.snapshot(tx).iterate(tx)

    def snapshot(self, tx: Tracer) -> VT:
        pairs = []
        for name in self._names(tx):
            value = self.owner.own_attribute(tx, name)
            assert value is not None
            pairs.append((tx.constant(name), value))
        return tx.new_dict(pairs)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        return DictMethodVariable(self, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name == "get":
            value = self.owner.own_attribute(tx, args[0].as_constant())
            return value if value is not None else (args[1] if len(args) > 1 else tx.constant(None))
        if name == "pop":
            value = self.owner.own_attribute(tx, args[0].as_constant())
            if value is None:
                if len(args) > 1:
                    return args[1]
                tx.raise_exception(KeyError, args[0].as_constant())
            self.owner.remove(tx, args[0].as_constant())
            return value
        if name == "popitem":
            names = self._names(tx)
            if not names:
                tx.raise_exception(KeyError, "popitem(): dictionary is empty")
            value = self.get_item(tx, tx.constant(names[-1]))
            self.owner.remove(tx, names[-1])
            return tx.new_tuple([tx.constant(names[-1]), value])
        if name == "clear":
            for own in self._names(tx):
                self.owner.remove(tx, own)
            return tx.constant(None)
        if name == "setdefault":
            value = self.owner.own_attribute(tx, args[0].as_constant())
            if value is None:
                value = args[1] if len(args) > 1 else tx.constant(None)
                self.set_item(tx, args[0], value)
            return value
        if name in ("update", "__ior__"):
            for source in [*args, tx.new_dict([(tx.constant(k), v) for k, v in kwargs.items()])]:
                for key in source.unpack(tx):
                    self.set_item(tx, key, source.get_item(tx, key))
            return self if name == "__ior__" else tx.constant(None)
        if name == "__getitem__":
            return self.get_item(tx, args[0])
        if name == "__setitem__":
            self.set_item(tx, args[0], args[1])
            return tx.constant(None)
        if name == "__delitem__":
            self.del_item(tx, args[0])
            return tx.constant(None)
        if name == "__contains__":
            return tx.constant(self.contains(tx, args[0]))
        if name == "__len__":
            return self.length(tx)
        operands = [other.snapshot(tx) if isinstance(other, InstanceDictVariable) else other for other in args]
        return self.snapshot(tx).call_method(tx, name, operands, kwargs)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load(self.owner)
        emit.load_attr("__dict__")


class DictMethodVariable(VariableTracker):
    """A method of an instance dict, looked up but not yet called."""

    kind = "method"

    def __init__(self, owner: VT, name: str) -> None:
        super().__init__(None)
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return type({}.get)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return self.owner.call_method(tx, self.name, args, kwargs)
