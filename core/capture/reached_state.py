"""What the code of a Python function can reach outside, for functions that tracing calls ahead of what it replays."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..bytecode.decode import decode
from ..variables.literal import is_literal

FIXED = (types.ModuleType, type, types.BuiltinFunctionType, types.MethodDescriptorType)
WRITES = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR", "DELETE_ATTR", "STORE_DEREF")
WRITING_METHODS = frozenset(
    "append appendleft extend extendleft insert pop popleft popitem remove discard clear update add setdefault sort "
    "reverse rotate add_ mul_ sub_ div_ copy_ fill_ zero_".split()
)


class Reached(NamedTuple):
    """An object that code names, by the global of a namespace or else by a cell. writes: the code may change it."""

    value: Any
    namespace: dict[str, Any] | None
    name: str
    writes: bool


def reached(fn: Any, seen: set[int] | None = None) -> Iterator[Reached]:
    """What the code of a function names outside of it that can change, and so on for the functions that it names."""
    seen = set() if seen is None else seen
    if not isinstance(fn, types.FunctionType) or id(fn) in seen:
        return
    seen.add(id(fn))
    instructions = decode(fn.__code__).instructions
    writes = _writes(fn)
    found: dict[str, tuple[Any, dict[str, Any] | None, bool]] = {}
    for each in instructions:
        name = str(each.argval)
        if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            found[name] = (fn.__globals__.get(name), fn.__globals__, True)
        elif each.opname == "LOAD_GLOBAL" and name in fn.__globals__:
            found.setdefault(name, (fn.__globals__[name], fn.__globals__, writes))
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            found[name] = (cell.cell_contents, None, writes)
        except ValueError:
            continue
    for name, (value, namespace, written) in found.items():
        if isinstance(value, types.FunctionType):
            yield from reached(value, seen)
        yield Reached(value, namespace, name, written)


def _writes(fn: types.FunctionType) -> bool:
    written = any(each.opname in WRITES for each in decode(fn.__code__).instructions)
    return written or not WRITING_METHODS.isdisjoint(fn.__code__.co_names)


def method_may_write(fn: Any, cls: type, seen: set[int] | None = None) -> bool:
    """Whether a method, or what it calls by a name of the class, changes something that it has not made itself."""
    seen = set() if seen is None else seen
    if not isinstance(fn, types.FunctionType):
        return True
    if id(fn) in seen:
        return False
    seen.add(id(fn))
    named = (inspect.getattr_static(cls, name, None) for name in fn.__code__.co_names)
    called = (getattr(each, "fget", None) or getattr(each, "__func__", each) for each in named)
    return _writes(fn) or any(
        method_may_write(each, cls, seen) for each in called if isinstance(each, types.FunctionType)
    )


def is_out_of_date(tx: Any, fn: Any) -> bool:
    """Whether the function, called now, could miss what traced code has changed, or change what that knows."""
    for each in reached(fn):
        if each.namespace is not None:
            bound, _ = tx.side_effects.global_value(each.namespace, each.name)
            if bound:
                return True
        if is_literal(each.value) or isinstance(each.value, FIXED):
            continue
        known = id(each.value) in tx.trace.known
        if known and (each.writes or not tx.is_untouched(each.value)):
            return True
    return False
