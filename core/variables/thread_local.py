"""ThreadLocalVariable: a threading.local, whose attributes are those of the thread that calls."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from ..guards.checks import Predicate
from ..guards.source import AttrSource
from .object import DELETED, FIELDS, UserObjectVariable, call_attribute_method, find_on_type

if TYPE_CHECKING:
    from .base import VariableTracker as VT
    from .protocols import Emitter, Tracer


class ThreadLocalVariable(UserObjectVariable):
    """Such an object, or one of a class that extends it. Its dict is reached through the class alone: guards read
    the attributes as the program does."""

    kind = "thread_local"

    def own_attribute(self, tx: Tracer, name: str) -> VT | None:
        if name in self.written:
            value = self.written[name]
            return None if value is DELETED else value.realize(tx)
        if self.value is None or self.source is None:
            raise self.refuse(f"reading attribute {name!r}")
        own = self.value.__dict__
        if name in own:
            return tx.wrap(own[name], AttrSource(self.source, name))
        tx.guard(self.source, Predicate((self.source,), functools.partial(lacks, name)))
        return None

    def own_names(self) -> list[str]:
        raise self.refuse("listing the attributes")

    def _getset(self, tx: Tracer, name: str, raw: Any) -> VT:
        raise self.refuse(f"reading attribute {name!r}")

    def _is_only_traced(self, tx: Tracer, name: str) -> bool:
        return not isinstance(find_on_type(self.cls, name)[0], FIELDS) and lacks(name, self.value)

    def _emit_store(self, emit: Emitter, name: str, value: VT) -> None:
        # past a __setattr__ of the program's, which the traced code has run
        call_attribute_method(emit, threading.local, "__setattr__", name, value)

    def _emit_delete(self, emit: Emitter, name: str) -> None:
        call_attribute_method(emit, threading.local, "__delattr__", name)

    def reconstruct(self, emit: Emitter) -> None:
        raise self.refuse("giving the object back to Python")


def lacks(name: str, value: Any) -> bool:
    """True where this thread has not set the attribute."""
    return name not in value.__dict__
