"""Which attribute reads of generated code must go past the program's own lookup.

A guard reads an attribute from the instance dict, the class or a slot directly. Generated code reads it with a plain
attribute access, which finds the same and is fast, save where a class answers for itself: by `__getattribute__`, by a
descriptor that stands before the instance dict, or, for what a class holds, by a descriptor that would be bound.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from ..guards.source import FrameValues, InstanceAttrSource, SlotAttrSource, SourceMissing, TypeAttrSource
from ..variables.object import MISSING, find_on_type, is_data_descriptor

NOTHING = FrameValues((), {}, {})  # these sources read their base alone


def raw_reader(source: Any, frame: Any) -> Callable[[Any], Any] | None:
    """A function of the base's value that reads the attribute; None where plain access finds the same."""
    values = FrameValues(frame.args, frame.globals, frame.builtins, frame.closure)
    try:
        base = source.base.resolve(values)
        plain = _is_plain(source, base)
    except SourceMissing:
        return None
    if plain:
        return None
    return functools.partial(type(source).read, source_of(source), NOTHING)


def source_of(source: Any) -> Any:
    """The last step alone, so that the code made does not hold on to the whole path."""
    return type(source)(None, source.attr)


def _is_plain(source: Any, base: Any) -> bool:
    if isinstance(source, TypeAttrSource):
        found, _ = find_on_type(base, source.attr) if isinstance(base, type) else (MISSING, None)
        return isinstance(found, types.FunctionType) or not hasattr(type(found), "__get__")
    getter, _ = find_on_type(type(base), "__getattribute__")
    if isinstance(getter, types.FunctionType):
        return False
    if isinstance(source, (InstanceAttrSource, SlotAttrSource)):
        found, _ = find_on_type(type(base), source.attr)
        return found is MISSING or isinstance(found, types.MemberDescriptorType) or not is_data_descriptor(found)
    return True
