"""What the code of a tensor class reads and writes from outside: it runs once, on fakes, and a graph never repeats it.

Enters: a class with a __torch_dispatch__. Leaves: words for the first thing that its code writes to, or None; and what
it reads, to be guarded. The bytecode is read, it is not run; functions that it mentions are read too, torch's left out.
"""

from __future__ import annotations

import dis
import logging
import types
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
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
_LOGGING = ("debug", "info", "warning", "error", "exception", "critical", "log")
_READS = ("LOAD_ATTR", "LOAD_METHOD")
_OUTSIDE = ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF")
_NO_RESULT = frozenset(
    "POP_TOP STORE_ATTR STORE_SUBSCR DELETE_ATTR DELETE_SUBSCR CACHE RESUME PRECALL NOP COPY_FREE_VARS MAKE_CELL "
    "POP_JUMP_FORWARD_IF_FALSE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE RETURN_GENERATOR".split()
)
_LIBRARIES = ("torch", "builtins", "numpy", "typing", "functools", "collections", "operator", "math", "itertools")


@dataclass(frozen=True, eq=False)
class Read:
    """A value from outside that the code reads. kind: "item" of the dict `owner`, "cell" of a closure, "type" for an
    attribute of the class `owner`, "instance" for one in the __dict__ of `owner`."""

    kind: str
    owner: Any
    name: str
    value: Any


@dataclass
class CodeFacts:
    """effect: words such as "__torch_dispatch__ writes to CALLS", None where the code only computes."""

    effect: str | None = None
    reads: dict[tuple[int, str], Read] = field(default_factory=dict)


def code_facts(cls: type) -> CodeFacts:
    """What the code of a class does, as its names stand now."""
    facts = CodeFacts()
    seen: set[types.CodeType] = set()
    for name in _ENTRIES:
        raw = next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), None)
        function = getattr(raw, "__func__", raw)
        if isinstance(function, types.FunctionType) and not _is_of_a_library(function):
            effect = _read_function(function, cls, seen, facts)
            if effect is not None and facts.effect is None:
                facts.effect = f"{name} {effect}"
    return facts


def _is_of_a_library(value: Any) -> bool:
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES


def _read_function(function: types.FunctionType, cls: type, seen: set[Any], facts: CodeFacts) -> str | None:
    if function.__code__ in seen:
        return None
    names = _Names(function, cls, facts)
    found = None
    for code in _codes(function.__code__):
        seen.add(code)
        own = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
        found = found or _Reader(code, names, own if code is function.__code__ else frozenset()).effect()
    for callee in names.called:
        found = found or _read_function(callee, cls, seen, facts)
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


class _Names:
    """What the names of a function stand for now; the functions that it mentions, and what it reads."""

    def __init__(self, function: types.FunctionType, cls: type, facts: CodeFacts) -> None:
        self.function = function
        self.cls = cls
        self.facts = facts
        self.called: list[types.FunctionType] = []
        self.cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))

    def value(self, opname: str, name: str) -> Any:
        if opname != "LOAD_GLOBAL":
            cell = self.cells.get(name)
            return self._read("cell", cell, name, cell.cell_contents) if cell is not None and _is_set(cell) else None
        namespace = self.function.__globals__
        if name in namespace:
            return self._read("item", namespace, name, namespace[name])
        builtins = self.function.__builtins__  # type: ignore[attr-defined]
        return builtins.get(name) if isinstance(builtins, dict) else None

    def attribute(self, owner: Any, name: str) -> Any:
        if owner is None or _is_of_a_library(owner):
            return None
        if isinstance(owner, type):
            holder = next((base for base in owner.__mro__ if name in base.__dict__), None)
            if holder is None or _is_of_a_library(holder):
                return None
            raw = holder.__dict__[name]
            self._read("type", owner, name, raw)
            return getattr(raw, "__func__", raw)
        kept = getattr(owner, "__dict__", None)
        if type(kept) is not dict or name not in kept:
            return None
        return self._read("item" if isinstance(owner, types.ModuleType) else "instance", owner, name, kept[name])

    def _read(self, kind: str, owner: Any, name: str, value: Any) -> Any:
        function = getattr(value, "__func__", value)
        if isinstance(value, types.ModuleType) or _is_of_a_library(value) and callable(value):
            return value
        if isinstance(function, types.FunctionType):
            self.called.append(function)
        place = vars(owner) if isinstance(owner, types.ModuleType) else owner
        self.facts.reads[id(place), name] = Read(kind, place, name, value)
        return value


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


@dataclass(frozen=True)
class _Item:
    """What stands on the stack. text: how it is spelled where it comes from outside of the function, else empty."""

    text: str = ""
    value: Any = None


_UNKNOWN = _Item()


class _Reader:
    """One code object, read in order, with the stack as far as it is known: what is loaded and where it is stored."""

    def __init__(self, code: types.CodeType, names: _Names, own: frozenset[str]) -> None:
        self.code = code
        self.names = names
        self.stack: list[_Item] = []
        self.locals = {"cls": _Item("cls", names.cls)} if "cls" in own else {}

    def effect(self) -> str | None:
        found = None
        for instruction in dis.get_instructions(self.code):
            found = self._effect(instruction) or found
            self._move(instruction)
        return found

    def _top(self, depth: int = 1) -> _Item:
        return self.stack[-depth] if len(self.stack) >= depth else _UNKNOWN

    def _effect(self, instruction: dis.Instruction) -> str | None:
        opname, name = instruction.opname, instruction.argval
        if opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            return f"assigns the global {name}"
        if opname == "STORE_DEREF" and name in self.code.co_freevars and name in self.names.cells:
            return f"assigns {name} of an enclosing function"
        target = {"STORE_ATTR": 1, "DELETE_ATTR": 1, "STORE_SUBSCR": 2, "DELETE_SUBSCR": 2}.get(opname)
        if target is not None and self._top(target).text:
            return f"writes to {self._top(target).text}"
        if opname in _READS and self._top().text:
            text, value = f"{self._top().text}.{name}", self._top().value
            logs = isinstance(value, logging.Logger) and name in _LOGGING
            if logs or isinstance(value, _KEEPERS) and name in _CHANGES:
                return f"calls {text}()"
        return (
            None if opname not in _OUTSIDE or self._outside(opname, name).value not in _OUTPUTS else f"calls {name}()"
        )

    def _outside(self, opname: str, name: str) -> _Item:
        return _Item(name, self.names.value(opname, name))

    def _move(self, instruction: dis.Instruction) -> None:
        opname, name = instruction.opname, instruction.argval
        height = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if opname in _OUTSIDE:
            self.stack += [_UNKNOWN] * (height - 1) + [self._outside(opname, name)]
        elif opname.startswith("LOAD_FAST"):
            self.stack += [self.locals.get(each, _UNKNOWN) for each in (name if isinstance(name, tuple) else (name,))]
        elif opname == "STORE_FAST":
            self.locals[name] = self._top()
            self._shift(-1)
        elif opname in _READS:
            owner = self._top()
            found = _Item(f"{owner.text}.{name}", self.names.attribute(owner.value, name)) if owner.text else _UNKNOWN
            self._shift(-1)
            self.stack += [_UNKNOWN] * height + [found]
        elif opname == "BINARY_SUBSCR":
            text = self._top(2).text
            self._shift(-2)
            self.stack.append(_Item(f"{text}[...]") if text else _UNKNOWN)
        elif opname == "COPY":
            self.stack.append(self._top(instruction.arg or 1))
        elif opname == "SWAP" and len(self.stack) >= (instruction.arg or 1):
            at = -(instruction.arg or 1)
            self.stack[-1], self.stack[at] = self.stack[at], self.stack[-1]
        else:
            self._shift(height)
            if self.stack and opname not in _NO_RESULT:
                self.stack[-1] = _UNKNOWN

    def _shift(self, height: int) -> None:
        if height >= 0:
            self.stack += [_UNKNOWN] * height
        else:
            del self.stack[height:]
