"""TypeExpressionVariable: `int | None`, `list[int]`, `typing.Any` and the like. They never change once made."""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from ..guards.checks import Is
from .base import KnownVariable, VariableTracker, find_special
from .function import MethodVariable
from .literal import run

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
BUILTIN_CLASS = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: its objects take no __orig_class__


def is_type_expression(value: Any) -> bool:
    """True for unions, parametrised generics and the special forms of the typing module."""
    if isinstance(value, (types.GenericAlias, types.UnionType)):
        return True
    return type(value).__module__ == "typing" and not isinstance(value, (type, typing.NewType))


def from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real type expression, guarded by identity."""
    tx.guard(source, Is(value))
    return TypeExpressionVariable(value, source)


class TypeExpressionVariable(KnownVariable):
    """A type expression that is no class."""

    kind = "type_expression"

    def as_constant(self) -> Any:
        return self.value

    def get_attr(self, tx: Tracer, name: str) -> VT:
        found = run(tx, getattr, [self.value, name])
        if isinstance(found, types.MethodType) and found.__self__ is self.value:
            return MethodVariable(tx.wrap(found.__func__, None, constant=True), self)
        if isinstance(found, (types.BuiltinMethodType, types.MethodWrapperType)):
            raise self.refuse(f"the method {name!r}")
        if type(found) is tuple:
            return tx.new_tuple([tx.wrap(item, None, constant=True) for item in found])
        return tx.wrap(found, None, constant=True)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """An object of the class behind a parametrised generic."""
        method = find_special(type(self.value), "__call__")
        if isinstance(method, types.FunctionType):
            return tx.call_function(tx.wrap(method, None, constant=True), [self, *args], kwargs)
        if isinstance(self.value, types.GenericAlias) and self.value.__origin__.__flags__ & BUILTIN_CLASS:
            return self.get_attr(tx, "__origin__").call(tx, args, kwargs)
        raise self.refuse("a call")

    def get_item(self, tx: Tracer, key: VT) -> VT:
        """The generic with its parameters given."""
        key = key.look_inside(tx)
        if not key.is_constant():
            raise self.refuse("giving parameters")
        return tx.wrap(run(tx, operator.getitem, [self.value, key.as_constant()]), None, constant=True)

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        return tx.constant(self.value == other.value) if isinstance(other, TypeExpressionVariable) else None

    def hash_key(self, tx: Tracer) -> Hashable:
        return self.value

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_const(self.value)
