"""Attributes that the program's own classes of tensors define: found past torch's, and bound as Python binds them."""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ..guards.checks import Is
from ..guards.source import ConstSource, TypeAttrSource
from .base import VariableTracker
from .function import MethodVariable

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
MISSING = object()


def own_attribute(cls: type, name: str, foreign: Collection[type]) -> Any:
    """What the class or a base of it defines, those in `foreign` left out; MISSING where none does."""
    for base in cls.__mro__:
        if base not in foreign and name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def is_of_the_program(raw: Any) -> bool:
    """True for Python code in a class of torch that is not torch's: a method that the program added or replaced."""
    if not isinstance(raw, (types.FunctionType, property, staticmethod, classmethod)):
        return False
    function = raw.fget if isinstance(raw, property) else getattr(raw, "__func__", raw)
    return (getattr(function, "__module__", None) or "").partition(".")[0] not in ("torch", "core")


def bound_attribute(tx: Tracer, owner: VT, cls: type, name: str, raw: Any) -> VT | None:
    """Reading `raw`, which a class of `owner` has by this name, from it. None for a descriptor that is no function."""
    source = TypeAttrSource(ConstSource(cls), name)
    if isinstance(raw, property) and raw.fget is not None:
        tx.guard(source, Is(raw))
        return tx.call_function(tx.wrap(raw.fget, None, constant=True), [owner], {})
    if isinstance(raw, staticmethod):
        return tx.wrap(raw.__func__, None, constant=True)
    if isinstance(raw, classmethod):
        return MethodVariable(tx.wrap(raw.__func__, None, constant=True), tx.wrap(cls, None, constant=True))
    if hasattr(raw, "__code__"):
        return MethodVariable(tx.wrap(raw, source), owner)
    return None if hasattr(type(raw), "__get__") else tx.wrap(raw, source)
