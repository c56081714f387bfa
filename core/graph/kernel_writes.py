"""Which arguments a kernel written in Triton may write to, read from its source.

Enters: the Python function under a kernel. Leaves: names of its parameters, more of them where the source leaves
doubt. A pointer is followed through arithmetic, variables, loops, tuples and functions that the kernel calls; what is
loaded from memory is no pointer. All arguments of a call that is not known count as written.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

LANGUAGE = "triton.language"
_WRITING = ("store", "atomic", "asm", "extern", "async", "copy", "scatter")
"""Parts of the names of functions and methods of the language that may write through what they are given."""

Names = frozenset[str]
NOTHING: Names = frozenset()


class UnknownWrites(Exception):
    """Nothing can be said of what the kernel writes to."""


class _Effects:
    """What is known of one function: the parameters it writes through and those that its result may point into."""

    def __init__(self, parameters: tuple[str, ...], written: Names, returned: Names) -> None:
        self.parameters = parameters
        self.written = written
        self.returned = returned


_known: weakref.WeakKeyDictionary[Any, _Effects] = weakref.WeakKeyDictionary()


def written_parameters(function: types.FunctionType) -> Names:
    """Names of the parameters that a kernel's function may write through. Raises UnknownWrites."""
    return _effects(function, ()).written


def _effects(function: types.FunctionType, callers: tuple[Any, ...]) -> _Effects:
    known = _known.get(function)
    if known is not None:
        return known
    if function in callers:
        raise UnknownWrites("a function of the kernel calls itself")
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        raise UnknownWrites("its source is not at hand") from error
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise UnknownWrites("its source is no function")
    found = _Reader(function, definition, (*callers, function)).read()
    _known[function] = found
    return found


class _Reader:
    """One function, read until nothing new is found: loops carry pointers from one turn to the next."""

    def __init__(self, function: types.FunctionType, definition: ast.FunctionDef, callers: tuple[Any, ...]) -> None:
        self.definition = definition
        self.callers = callers
        arguments = definition.args
        if arguments.kwarg is not None:
            raise UnknownWrites("it takes any keyword")
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [arguments.vararg] if arguments.vararg is not None else []
        self.parameters = tuple(argument.arg for argument in every)
        self.points: dict[str, Names] = {name: frozenset((name,)) for name in self.parameters}
        self.written: set[str] = set()
        self.returned: set[str] = set()
        self.names = {**vars(builtins), **function.__globals__, **_closure(function)}

    def read(self) -> _Effects:
        before = None
        while before != (before := self._state()):
            for statement in self.definition.body:
                self._statement(statement)
        return _Effects(self.parameters, frozenset(self.written), frozenset(self.returned))

    def _state(self) -> Any:
        return dict(self.points), set(self.written), set(self.returned)

    # -- statements ------------------------------------------------------------------------------------------------

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            raise UnknownWrites("it defines a function of its own")
        if isinstance(node, ast.Assign):
            value = self._value(node.value)
            for target in node.targets:
                self._bind(target, value)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            self._bind(node.target, self._value(node.value) if node.value is not None else NOTHING)
        elif isinstance(node, ast.For):
            self._bind(node.target, self._value(node.iter))
        elif isinstance(node, ast.With):
            for item in node.items:
                value = self._value(item.context_expr)
                if item.optional_vars is not None:
                    self._bind(item.optional_vars, value)
        elif isinstance(node, ast.Return):
            self.returned |= self._value(node.value) if node.value is not None else NOTHING
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._value(child)
        for child in _statements(node):
            self._statement(child)

    def _bind(self, target: ast.expr, value: Names) -> None:
        for node in ast.walk(target):  # an attribute or item of a variable: the variable holds it
            if isinstance(node, ast.Name):
                self.points[node.id] = self.points.get(node.id, NOTHING) | value

    # -- expressions -----------------------------------------------------------------------------------------------

    def _value(self, node: ast.AST) -> Names:
        """The parameters that the value of an expression may point into."""
        if isinstance(node, ast.Name):
            return self.points.get(node.id, NOTHING)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.NamedExpr):
            value = self._value(node.value)
            self._bind(node.target, value)
            return value
        if isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            for generator in getattr(node, "generators", ()):
                self._bind(generator.target, self._value(generator.iter))
        return _union(self._value(child) for child in ast.iter_child_nodes(node))

    def _call(self, node: ast.Call) -> Names:
        given = [self._value(argument) for argument in node.args]
        keywords = {keyword.arg: self._value(keyword.value) for keyword in node.keywords}
        every = _union((*given, *keywords.values()))
        known, called = self._resolve(node.func)
        if not known:
            if not isinstance(node.func, ast.Attribute):
                return self._unknown(every | self._value(node.func))
            return self._language(node.func.attr, every | self._value(node.func.value))
        function = _python_function(called)
        if _module_of(called, function).startswith(LANGUAGE):
            return self._language(_name_of(called, function), every)
        if getattr(builtins, getattr(called, "__name__", ""), None) is called:
            return every
        if function is None or any(isinstance(argument, ast.Starred) for argument in node.args) or None in keywords:
            return self._unknown(every)
        return self._into(_effects(function, self.callers), given, keywords, every)

    def _language(self, name: str, every: Names) -> Names:
        if name == "pointer_type":
            raise UnknownWrites("it makes pointers of numbers")
        if any(part in name for part in _WRITING):
            self.written |= every
            return every
        return NOTHING if "load" in name or name == "gather" else every

    def _unknown(self, every: Names) -> Names:
        self.written |= every
        return every

    def _into(self, callee: _Effects, given: list[Names], keywords: dict[Any, Names], every: Names) -> Names:
        places = {**dict(zip(callee.parameters, given)), **keywords}
        if len(given) > len(callee.parameters) or not places.keys() <= set(callee.parameters):
            return self._unknown(every)
        self.written |= _union(places.get(name, NOTHING) for name in callee.written)
        return _union(places.get(name, NOTHING) for name in callee.returned)

    def _resolve(self, node: ast.expr) -> tuple[bool, Any]:
        """(True, the object) that a dotted name of the surrounding module stands for."""
        if isinstance(node, ast.Name):
            known = node.id not in self.points and node.id in self.names
            return known, self.names.get(node.id) if known else None
        if isinstance(node, ast.Attribute):
            known, owner = self._resolve(node.value)
            if known and hasattr(owner, node.attr):
                return True, getattr(owner, node.attr)
        return False, None


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    for field in ("body", "orelse", "finalbody", "handlers"):
        for child in getattr(node, field, ()):
            if isinstance(child, ast.stmt):
                yield child
            else:
                yield from _statements(child)


def _union(sets: Iterable[Names]) -> Names:
    return frozenset().union(*sets)


def _closure(function: types.FunctionType) -> dict[str, Any]:
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not bound yet
            continue
    return found


def _python_function(called: Any) -> types.FunctionType | None:
    """The function under what triton.jit and its kin make of one."""
    for _ in range(8):
        if isinstance(called, types.FunctionType):
            return called
        called = getattr(called, "fn", None)
    return None


def _module_of(called: Any, function: types.FunctionType | None) -> str:
    return getattr(function if function is not None else called, "__module__", None) or ""


def _name_of(called: Any, function: types.FunctionType | None) -> str:
    return getattr(function if function is not None else called, "__name__", type(called).__name__)
