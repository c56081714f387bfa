"""Held: an object kept by identity, weakly where its type allows it.

Sources and checks are values (frozen, hashable, equal by content) and yet some of them name one particular object.
A compiled entry must not keep a user's model alive, so the object is held through a weak reference; objects that
can't be weakly referenced (ints, tuples, None, ...) are held strongly. Bound methods are held strongly as well: each
attribute access makes a new one, so a weak reference to it would be dead at once.
"""

from __future__ import annotations

import types
import weakref
from typing import Any

_SHORT_LIVED = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)


class Held:
    """One object by identity. `weak` tells whether it may die; `get()` returns it, or None once it has died."""

    __slots__ = ("_identity", "_kind", "_ref", "_strong", "weak")

    def __init__(self, obj: Any) -> None:
        self._identity = id(obj)
        self._kind = type(obj).__name__
        self._strong: Any = None
        self._ref: weakref.ref[Any] | None = None
        self.weak = not isinstance(obj, _SHORT_LIVED)
        if self.weak:
            try:
                self._ref = weakref.ref(obj)
            except TypeError:
                self.weak = False
        if not self.weak:
            self._strong = obj

    @property
    def alive(self) -> bool:
        """False once a weakly held object has died."""
        return self._ref is None or self._ref() is not None

    def get(self) -> Any:
        """The object, or None when it has died."""
        return self._strong if self._ref is None else self._ref()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Held):
            return NotImplemented
        if self is other:
            return True
        # An id is reused after death, so equal ids count only while both objects live.
        return self._identity == other._identity and self.alive and other.alive and self.get() is other.get()

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"<{self._kind} object{'' if self.alive else ', gone'}>"
