"""Dicts and sets of weak references that exist outside the traced code: what is read of them is guarded.

Their methods are asked for real while tracing, and again by a guard. Nothing here keeps a key or a value alive. What
would change one is left to Python, for when an entry goes depends on when its object does.
"""

from __future__ import annotations

import weakref
from typing import Any

from ..errors import Unsupported
from ..guards.checks import Is
from ..guards.held import Held
from ..guards.source import CallSource
from ..variables.base import VariableTracker
from ..variables.literal import is_literal
from .special_calls import callable_object, function

VT = VariableTracker
CLASSES: tuple[Any, ...] = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
REMEDY = "do it outside the compiled function"


class Gone:
    """What stands for an entry that is not there."""


GONE = Gone()


class Asked:
    """A method of the container, asked with one argument that is held weakly."""

    def __init__(self, name: str, argument: Any = None, default: Any = GONE) -> None:
        self.__name__ = name
        self._argument = Held(argument)
        self._default = default

    def __call__(self, container: Any) -> Any:
        if not self._argument.alive:
            return GONE
        argument = self._argument.get()
        if self.__name__ == "__contains__":
            return argument in container
        if self.__name__ == "__len__":
            return len(container)
        if self.__name__ == "get":
            return container.get(argument, self._default)
        return tuple(getattr(container, self.__name__)() if self.__name__ != "__iter__" else container)


def _asked(tx: Any, container: VT, name: str, argument: VT | None = None) -> Any:
    """(what the method gives, its source)."""
    real: Any = container.value  # type: ignore[attr-defined]
    given = None
    if argument is not None:
        argument = argument.realize(tx)
        given = argument.as_constant() if argument.is_constant() else _real(argument)
        if not argument.is_constant() and argument.source is not None:
            tx.guard(argument.source, Is(given))
    question = Asked(name, given)
    return question(real), CallSource(container.source, question)


def _real(tracker: VT) -> Any:
    found = getattr(tracker, "real", None) if tracker.kind == "tensor" else getattr(tracker, "value", None)
    if found is None or tracker.source is None and not getattr(tracker, "held", False):
        raise Unsupported(f"looking up {tracker.describe()} among weak references is not traced", remedy=REMEDY)
    return found


def _handler(cls: Any, name: str) -> Any:
    def handler(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        container, *rest = args
        if tx.globals_dict.get("__name__") == "functools":
            return _of_a_cache(tx, name)
        outside = getattr(container, "value", None) is not None and container.source is not None
        if kwargs or not outside or type(container.value) is not cls or name not in READS:  # type: ignore[attr-defined]
            raise Unsupported(f"{cls.__name__}.{name}() is not traced", remedy=REMEDY)
        if name in ("__getitem__", "get"):
            found, source = _asked(tx, container, "get", rest[0])
            tracker = tx.wrap(found, source)
            if found is not GONE:
                return tracker  # type: ignore[no-any-return]
            if name == "__getitem__":
                tx.raise_exception(KeyError, rest[0])
            return rest[1] if len(rest) > 1 else tx.constant(None)
        found, source = _asked(tx, container, name, *rest)
        tracker = tx.wrap(found, source)
        if is_literal(found):
            return tracker  # type: ignore[no-any-return]
        return tracker.realize(tx).iterate(tx)  # type: ignore[no-any-return]

    return handler


def _of_a_cache(tx: Any, name: str) -> VT:
    """Nothing is in the cache of functools.singledispatch, so that no guard looks at what is; nor comes into it."""
    if name == "__setitem__":
        return tx.constant(None)  # type: ignore[no-any-return]
    tx.raise_exception(KeyError)


READS = ("__getitem__", "get", "__contains__", "__len__", "__iter__", "keys", "values", "items")
for _cls in CLASSES:
    for _name in (*READS, "__setitem__", "__delitem__", "setdefault", "pop", "add", "discard", "update", "clear"):
        if _name in _cls.__dict__:
            function(_cls.__dict__[_name])(_handler(_cls, _name))


@callable_object(weakref.WeakKeyDictionary)
def make_weak_dict(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The cache of functools.singledispatch: its keys are classes, and what it lost is found again."""
    if tx.globals_dict.get("__name__") != "functools" or args or kwargs:
        raise Unsupported("making a weak dict is not traced", remedy="make it outside the compiled function")
    return tx.new_dict([])  # type: ignore[no-any-return]
