"""What the code of a tensor class does besides computing: it runs once, on fakes, and a graph would never repeat it.

Enters: a class with a __torch_dispatch__. Leaves: words for the first thing that its code writes to from outside, or
None. The bytecode is read, it is not run; functions of the same module that it calls are read too.
"""

from __future__ import annotations

import dis
import logging
import types
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from typing import Any

_ENTRIES = (
    *("__torch_dispatch__", "__torch_function__", "__tensor_flatten__", "__tensor_unflatten__"),
    *("__new__", "__init__"),
)
_OUTPUTS = (print, input, open)
_KEEPERS = (list, dict, set, deque, Counter, defaultdict)
_CHANGES = frozenset(
    "append appendleft add update extend insert pop popleft popitem clear remove discard setdefault subtract sort "
    "reverse".split()
)
_READS = ("LOAD_ATTR", "LOAD_METHOD")
_LIBRARIES = ("torch", "builtins", "numpy", "typing", "functools", "collections")


_found: weakref.WeakKeyDictionary[type, str | None] = weakref.WeakKeyDictionary()


def effect_of(cls: type) -> str | None:
    """Words such as "__torch_dispatch__ writes to CALLS", None where the class's code only computes."""
    if cls not in _found:
        _found[cls] = _effect_of(cls)
    return _found[cls]


def _effect_of(cls: type) -> str | None:
    for name in _ENTRIES:
        raw = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
        function = getattr(raw, "__func__", raw)
        if isinstance(function, types.FunctionType) and not _is_of_a_library(function):
            effect = _effect(function, cls, set())
            if effect is not None:
                return f"{name} {effect}"
    return None


def _is_of_a_library(function: types.FunctionType) -> bool:
    return (function.__module__ or "").partition(".")[0] in _LIBRARIES


def _effect(function: types.FunctionType, cls: type, seen: set[Any]) -> str | None:
    if function.__code__ in seen:
        return None
    names = _Names(function, cls)
    for code in _codes(function.__code__):
        seen.add(code)
        own = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        effect = _Reader(code, names, own if code is function.__code__ else frozenset()).effect()
        if effect is not None:
            return effect
    for callee in names.called:
        effect = _effect(callee, cls, seen)
        if effect is not None:
            return effect
    return None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


class _Names:
    """What the names of a function stand for now, and the functions of its own module that it mentions."""

    def __init__(self, function: types.FunctionType, cls: type) -> None:
        self.function = function
        self.cls = cls
        self.called: list[types.FunctionType] = []
        cells = zip(function.__code__.co_freevars, function.__closure__ or ())
        self.closure = {name: cell.cell_contents for name, cell in cells if _is_set(cell)}

    def value(self, opname: str, name: str) -> Any:
        if opname == "LOAD_GLOBAL":
            builtins = self.function.__builtins__  # type: ignore[attr-defined]
            found = self.function.__globals__.get(name, builtins.get(name) if isinstance(builtins, dict) else None)
        else:
            found = self.closure.get(name)
        self._mention(found)
        return found

    def attribute(self, owner: Any, name: str) -> Any:
        if not isinstance(owner, (type, types.ModuleType)):
            return None
        found = getattr(owner, name, None)
        self._mention(getattr(found, "__func__", found))
        return found

    def _mention(self, found: Any) -> None:
        if isinstance(found, types.FunctionType) and not _is_of_a_library(found):
            self.called.append(found)


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


class _Reader:
    """One code object, read in order. What stands last on the stack is followed through attributes only."""

    def __init__(self, code: types.CodeType, names: _Names, own: frozenset[str]) -> None:
        self.code = code
        self.names = names
        self.own = own

    def effect(self) -> str | None:
        text = ""  # how the newest value is spelled, where it comes from outside the function
        value: Any = None
        for instruction in dis.get_instructions(self.code):
            opname, name = instruction.opname, instruction.argval
            if opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                return f"assigns the global {name}"
            if opname == "STORE_DEREF" and name in self.code.co_freevars and name in self.names.closure:
                return f"assigns {name} of an enclosing function"
            if opname in ("STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR") and text:
                return f"writes to {text}"
            if opname in ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF"):
                text, value = name, self.names.value(opname, name)
                if any(value is output for output in _OUTPUTS):
                    return f"calls {name}()"
            elif opname.startswith("LOAD_FAST"):
                text, value = self._argument(name)
            elif opname in _READS:
                if text and self._changes(value, name):
                    return f"calls {text}.{name}()"
                value = self.names.attribute(value, name)
                text = f"{text}.{name}" if text else ""
            elif opname in ("BINARY_SUBSCR", "LOAD_CONST", "COPY", "SWAP", "PUSH_NULL", "CACHE", "RESUME", "PRECALL"):
                continue
            elif opname.startswith("BINARY_OP"):
                continue
            else:
                text, value = "", None
        return None

    def _argument(self, name: Any) -> tuple[str, Any]:
        if name == "cls" and name in self.own:
            return name, self.names.cls
        return "", None

    def _changes(self, value: Any, method: str) -> bool:
        if isinstance(value, logging.Logger):
            return method in ("debug", "info", "warning", "error", "exception", "critical", "log")
        return isinstance(value, _KEEPERS) and method in _CHANGES
