"""Decorating functions while tracing: functools.wraps, and torch's context managers used as decorators.

The wrapper is a function that the traced code made; what wraps() copies onto it becomes attributes of its tracker, and
the code that torch's decorators put around a function is traced as it stands.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from ..guards.checks import DictKeys
from ..guards.source import InstanceDictSource
from ..variables.base import ObservedException, VariableTracker
from ..variables.function import NestedFunctionVariable, UserFunctionVariable
from ..variables.partial import PartialVariable
from .special_calls import function

VT = VariableTracker


@function(functools.update_wrapper)
def update_wrapper(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """functools.update_wrapper of a function that the traced code made; of anything else it is traced as it stands."""
    wrapper = args[0] if args else kwargs["wrapper"]
    wrapped = args[1] if len(args) > 1 else kwargs["wrapped"]
    wrapped = wrapped.realize(tx)
    attributes = _attributes(tx, wrapped)
    if not isinstance(wrapper, NestedFunctionVariable) or attributes is None:
        return tx.trace_into(tx.wrap(functools.update_wrapper, None, constant=True), args, kwargs)
    assigned = _names(tx, args[2:3], kwargs.get("assigned"), functools.WRAPPER_ASSIGNMENTS)
    updated = _names(tx, args[3:4], kwargs.get("updated"), functools.WRAPPER_UPDATES)
    for name in assigned:
        try:
            value = wrapped.get_attr(tx, name)
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), AttributeError):
                raise
            continue
        wrapper.set_attr(tx, name, value)
    if "__dict__" in updated:
        for name, value in attributes:
            wrapper.set_attr(tx, name, value)
    wrapper.set_attr(tx, "__wrapped__", wrapped)
    return wrapper


def _names(tx: Any, positional: list[VT], keyword: VT | None, default: tuple[str, ...]) -> tuple[str, ...]:
    given = positional[0] if positional else keyword
    return tuple(given.look_inside(tx).as_constant()) if given is not None else default


def _attributes(tx: Any, wrapped: VT) -> list[tuple[str, VT]] | None:
    """What stands in the function's `__dict__`; None for objects whose dict only tracing can tell."""
    if isinstance(wrapped, NestedFunctionVariable):
        return list(wrapped.own_attributes())
    if isinstance(wrapped, UserFunctionVariable):
        return list(_function_attributes(tx, wrapped))
    if isinstance(wrapped, PartialVariable):
        return list(wrapped.written.items()) if wrapped.value is None else None
    return [] if wrapped.kind in ("builtin", "torch_function") else None


def _function_attributes(tx: Any, wrapped: UserFunctionVariable) -> Iterator[tuple[str, VT]]:
    names = tuple(wrapped.fn.__dict__)
    if wrapped.source is not None:
        tx.guard(InstanceDictSource(wrapped.source), DictKeys(names))
    for name in (*names, *(name for name in wrapped.written if name not in names)):
        yield name, wrapped.get_attr(tx, name)
