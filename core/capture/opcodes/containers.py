"""Building and unpacking of tuples, lists, dicts and sets."""

from __future__ import annotations

from typing import Any

from ...variables.base import VariableTracker, find_special, has_special
from .host import Host


class ContainerOpcodes(Host):
    """Handlers of container displays and unpacking."""

    def BUILD_TUPLE(self, instruction: Any) -> None:
        self.push(self.new_tuple(self.pop_many(instruction.arg)))

    def BUILD_LIST(self, instruction: Any) -> None:
        self.push(self.new_list(self.pop_many(instruction.arg)))

    def BUILD_SET(self, instruction: Any) -> None:
        self.push(self.new_set(self.pop_many(instruction.arg)))

    def BUILD_MAP(self, instruction: Any) -> None:
        values = self.pop_many(2 * instruction.arg)
        self.push(self.new_dict(zip(values[::2], values[1::2])))

    def BUILD_CONST_KEY_MAP(self, instruction: Any) -> None:
        keys = self.pop().as_constant()
        values = self.pop_many(instruction.arg)
        self.push(self.new_dict([(self.constant(key), value) for key, value in zip(keys, values)]))

    def LIST_APPEND(self, instruction: Any) -> None:
        value = self.pop()
        self.stack[-instruction.arg].call_method(self, "append", [value], {})

    def SET_ADD(self, instruction: Any) -> None:
        value = self.pop()
        self.stack[-instruction.arg].call_method(self, "add", [value], {})

    def MAP_ADD(self, instruction: Any) -> None:
        value, key = self.pop(), self.pop()
        self.stack[-instruction.arg].set_item(self, key, value)

    def LIST_EXTEND(self, instruction: Any) -> None:
        values = self.pop().realize(self)
        cls = values.python_type()
        if not has_special(cls, "__iter__") and not has_special(cls, "__getitem__"):
            self.raise_exception(TypeError, f"Value after * must be an iterable, not {cls.__name__}")
        self.stack[-instruction.arg].call_method(self, "extend", [values], {})

    def SET_UPDATE(self, instruction: Any) -> None:
        values = self.pop()
        self.stack[-instruction.arg].call_method(self, "update", [values], {})

    def DICT_UPDATE(self, instruction: Any) -> None:
        mapping = self.pop()
        self.stack[-instruction.arg].call_method(self, "update", [mapping], {})

    def DICT_MERGE(self, instruction: Any) -> None:
        mapping = contents_of(self.pop().realize(self))
        target = self.stack[-instruction.arg]
        for key in self.mapping_keys(mapping):
            if target.contains(self, key):
                self.raise_exception(TypeError, f"got multiple values for keyword argument {key.as_constant()!r}")
            target.set_item(self, key, mapping.get_item(self, key))

    def LIST_TO_TUPLE(self, instruction: Any) -> None:
        self.push(self.new_tuple(self.pop().unpack(self)))

    def UNPACK_SEQUENCE(self, instruction: Any) -> None:
        values = self._exactly(self.pop(), instruction.arg)
        stored = self.stores_ahead()
        values[stored:] = [value.realize(self) for value in values[stored:]]
        self.stack.extend(reversed(values))

    def _exactly(self, sequence: Any, count: int) -> list[Any]:
        if sequence.kind in ("list", "tuple"):
            values = sequence.unpack(self)
            if len(values) > count:
                self.raise_exception(ValueError, f"too many values to unpack (expected {count})")
        else:
            iterator = sequence.iterate(self)
            values = []
            while len(values) < count and (item := iterator.next_item(self)) is not None:
                values.append(item)
            if len(values) == count and iterator.next_item(self) is not None:
                self.raise_exception(ValueError, f"too many values to unpack (expected {count})")
        if len(values) < count:
            self.raise_exception(ValueError, f"not enough values to unpack (expected {count}, got {len(values)})")
        return values

    def UNPACK_EX(self, instruction: Any) -> None:
        before, after = instruction.arg & 0xFF, instruction.arg >> 8
        values = self.pop().unpack(self)
        if len(values) < before + after:
            self.raise_exception(
                ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(values)})"
            )
        middle = values[before : len(values) - after]
        tail = values[len(values) - after :]
        for value in reversed(tail):
            self.push(value.realize(self))
        self.push(self.new_list(middle))
        for value in reversed(values[:before]):
            self.push(value.realize(self))


def contents_of(mapping: VariableTracker) -> VariableTracker:
    """What `**mapping` reads: of an object whose class extends dict and iterates as dict does, the dict itself."""
    payload = getattr(mapping, "payload", None)
    if (
        payload is None
        or payload.kind != "dict"
        or find_special(mapping.python_type(), "__iter__") is not dict.__iter__
    ):
        return mapping
    inner: VariableTracker = payload
    return inner
