"""The methods of `type` itself, as a metaclass's super() or an explicit type.__call__ reach them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..guards.checks import Predicate
from ..guards.source import ConstSource
from .base import SlotMethodVariable, VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


class TypeMethodVariable(SlotMethodVariable):
    """A method of `type` bound to a class."""

    receiver: Any

    def python_type(self) -> type:
        return type(self.descriptor.__get__(int, type))

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        handler = getattr(self, "on_" + self.name.strip("_"), None)
        if handler is None:
            raise self.receiver.refuse(f"type.{self.name}")
        return handler(tx, *args, **kwargs)

    def on_call(self, tx: Tracer, /, *args: VT, **kwargs: VT) -> VT:
        return self.receiver.instantiate(tx, args, kwargs)

    def on_init(self, tx: Tracer, /, *args: VT, **kwargs: VT) -> VT:
        if len(args) not in (1, 3):
            tx.raise_exception(TypeError, "type.__init__() takes 1 or 3 arguments")
        return tx.constant(None)

    def on_setattr(self, tx: Tracer, name: VT, value: VT) -> VT:
        name = name.realize(tx)
        if not issubclass(name.python_type(), str):
            kind = name.python_type().__name__
            tx.raise_exception(TypeError, f"attribute name must be string, not '{kind}'")
        self.receiver.plain_set_attr(tx, name.as_constant(), value)
        return tx.constant(None)

    def on_delattr(self, tx: Tracer, name: VT) -> VT:
        self.receiver.plain_del_attr(tx, name.realize(tx).as_constant())
        return tx.constant(None)

    def on_getattribute(self, tx: Tracer, name: VT) -> VT:
        return self.receiver.plain_get_attr(tx, name.realize(tx).as_constant(), fallback=False)

    def on_repr(self, tx: Tracer) -> VT:
        return tx.constant(type.__repr__(self.receiver.cls))

    on_str = on_repr

    def on_mro(self, tx: Tracer) -> VT:
        return tx.new_list([tx.wrap(base, None, constant=True) for base in type.mro(self.receiver.cls)])

    def on_subclasses(self, tx: Tracer) -> VT:
        """The classes that extend it now; the traced code itself has defined none of them, else order is unknown."""
        found = type.__subclasses__(self.receiver.cls)
        if tx.is_unreal(self.receiver.cls) or any(map(tx.is_unreal, found)):
            raise self.receiver.refuse("type.__subclasses__ beside classes that the traced code defines")
        place = ConstSource(self.receiver.cls, self.receiver.cls.__name__)
        tx.guard(place, Predicate((place,), SameSubclasses(found)))
        return tx.new_list([tx.wrap(cls, None, constant=True) for cls in found])

    def on_prepare(self, tx: Tracer, /, *args: VT, **kwargs: VT) -> VT:
        return tx.new_dict([])

    def on_instancecheck(self, tx: Tracer, instance: VT) -> VT:
        return tx.constant(issubclass(instance.realize(tx).python_type(), self.receiver.cls))

    def on_subclasscheck(self, tx: Tracer, cls: VT) -> VT:
        other = cls.realize(tx).as_constant()
        return tx.constant(self.receiver.cls in getattr(other, "__mro__", ()))

    def on_dir(self, tx: Tracer) -> VT:
        return tx.new_list([tx.constant(name) for name in type.__dir__(self.receiver.cls)])

    def on_eq(self, tx: Tracer, other: VT) -> VT:
        return tx.constant(True if other.realize(tx) is self.receiver else NotImplemented)


class SameSubclasses:
    """A predicate for guards: these classes extend a class, in this order, and no others do."""

    __qualname__ = "SameSubclasses"

    def __init__(self, classes: Sequence[type]) -> None:
        self.classes = [weakref.ref(cls) for cls in classes]

    def __call__(self, cls: type) -> bool:
        now = type.__subclasses__(cls)
        return len(now) == len(self.classes) and all(known() is found for known, found in zip(self.classes, now))
