"""Guards on the classes that a capture relied on: methods, properties, metaclasses, and names that no class had.

A class is guarded as a whole, by its version, which costs one comparison. A class that programs do change as they run
(a counter, a registry) would miss each time; of such a class only what is no plain value is guarded, and its plain
values where they were read.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator
from typing import Any

import torch

from ..guards.checks import Predicate, TypeUnchanged
from ..guards.guard import Guard
from ..guards.held import Held
from ..guards.source import ConstSource
from ..variables.class_ import ClassVariable
from ..variables.object import IMMUTABLE_TYPE, UserObjectVariable
from . import policy

BEHAVIOUR = (types.FunctionType, types.BuiltinFunctionType, staticmethod, classmethod, property, type)


def class_guards(trace: Any, changing: Collection[str]) -> Iterator[Guard]:
    """Guards of the classes that the trace met. changing: names of classes that were seen to change between calls."""
    written = {id(t.cls) for t in trace.side_effects.changed() if isinstance(t, ClassVariable)}
    for cls in _classes(trace):
        if id(cls) in written or class_name(cls) in changing:
            yield Guard(None, Predicate((ConstSource(cls),), _BehaviourUnchanged(cls)))
        else:
            yield Guard(None, TypeUnchanged(cls))


def class_name(cls: type) -> str:
    """The name under which a changing class is remembered."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _classes(trace: Any) -> list[type]:
    found: dict[int, type] = {}
    for tracker in trace.known.values():
        if isinstance(tracker, (UserObjectVariable, ClassVariable)):
            classes = (tracker.cls, type(tracker.cls))
            if id(tracker.cls) in trace.unreal:  # its bases may be real
                classes = (*tracker.cls.__mro__, *type(tracker.cls).__mro__)
            for cls in classes:
                fixed = cls.__flags__ & IMMUTABLE_TYPE or policy.is_stdlib(cls.__module__ or "")
                if not fixed and id(cls) not in trace.unreal:
                    found[id(cls)] = cls
        elif _is_own_tensor_class(getattr(tracker, "cls", None)):
            found[id(tracker.cls)] = tracker.cls  # what it does not define is torch's
    return list(found.values())


def _is_own_tensor_class(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, torch.Tensor) and not policy.is_trusted(cls.__module__)


class _BehaviourUnchanged:
    """The class has the same names as before, and the same functions and descriptors behind them."""

    def __init__(self, cls: type) -> None:
        names, values = _behaviour(cls)
        self.names = names
        self.values = [Held(value) for value in values]

    def __call__(self, cls: type) -> bool:
        names, values = _behaviour(cls)
        return names == self.names and all(held.get() is value for held, value in zip(self.values, values))


def _behaviour(cls: type) -> tuple[list[str], list[Any]]:
    names: list[str] = []
    values: list[Any] = []
    for base in cls.__mro__:
        if not base.__flags__ & IMMUTABLE_TYPE:
            names += base.__dict__
            values += [base, *(v for v in base.__dict__.values() if _is_behaviour(v))]
    return names, values


def _is_behaviour(value: Any) -> bool:
    return isinstance(value, BEHAVIOUR) or hasattr(type(value), "__get__")
