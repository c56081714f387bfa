"""What the traced code may ask about frames: sys._getframe, globals(), sys.exc_info."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Sequence
from typing import Any

from ..errors import Unsupported
from ..guards.checks import Predicate
from ..guards.source import ConstSource, DictItemSource, GlobalSource
from ..variables.base import BuiltinMethodVariable, VariableTracker
from .special_calls import callable_object

VT = VariableTracker
REMEDY = "ask outside the compiled function"


@callable_object(sys._getframe)
def getframe(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The frame of a traced call, by its distance."""
    frame = tx
    for _ in range(args[0].as_constant() if args else 0):
        frame = frame.parent
        if frame is None:
            raise Unsupported("sys._getframe() of a caller of the compiled function is not traced", remedy=REMEDY)
    return FrameVariable(frame)


@callable_object(builtins.globals)
def get_globals(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The globals of the code being traced."""
    return NamespaceVariable(tx)


@callable_object(sys.exc_info)
def exc_info(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The exception being handled: its class, itself, its traceback."""
    handled = tx.trace.exceptions
    none = tx.constant(None)
    if not handled:
        if tx.root().handles_outside():
            raise Unsupported("sys.exc_info() of a caller's exception is not traced", remedy=REMEDY)
        tx.guard(ConstSource(sys), Predicate((ConstSource(sys),), _nothing_is_handled))
        return tx.new_tuple([none, none, none])
    error = handled[-1]
    return tx.new_tuple([tx.wrap(error.python_type(), None, constant=True), error, error.get_attr(tx, "__traceback__")])


if hasattr(sys, "exception"):

    @callable_object(sys.exception)
    def exception(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        """The exception being handled."""
        return exc_info(tx, [], {}).get_item(tx, tx.constant(1))


def _watches(name: str) -> None:
    fn = getattr(sys, name)

    @callable_object(fn)
    def watcher(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        """What follows the program step by step: nothing, which a guard asks again."""
        if fn() is not None:
            raise Unsupported(f"sys.{name}() while something follows the program is not traced", remedy=REMEDY)
        tx.guard(ConstSource(fn), Predicate((ConstSource(fn),), _gives_nothing))
        return tx.constant(None)


for _name in ("gettrace", "getprofile"):
    _watches(_name)


def _gives_nothing(fn: Any) -> bool:
    return fn() is None


def _nothing_is_handled(module: Any) -> bool:
    return module.exc_info()[1] is None


class FrameVariable(VariableTracker):
    """A frame of the traced code, as long as only its code and globals are asked for."""

    kind = "frame"

    def __init__(self, interpreter: Any) -> None:
        super().__init__(None)
        self.interpreter = interpreter

    def python_type(self) -> type:
        return types.FrameType

    def truth(self, tx: Any) -> bool:
        return True

    def get_attr(self, tx: Any, name: str) -> VT:
        frame = self.interpreter
        if name == "f_code":
            return tx.constant(frame.code)
        if name == "f_globals":
            return NamespaceVariable(frame)
        if name == "f_back" and frame.parent is not None:
            return FrameVariable(frame.parent)
        raise Unsupported(f"reading {name} of a frame is not traced", remedy=REMEDY)


class NamespaceVariable(VariableTracker):
    """The globals that a frame runs in."""

    kind = "globals"

    def __init__(self, interpreter: Any) -> None:
        super().__init__(None)
        self.interpreter = interpreter

    def python_type(self) -> type:
        return dict

    def truth(self, tx: Any) -> bool:
        return True

    def _find(self, tx: Any, key: VT) -> VT | None:
        frame = self.interpreter
        name = key.realize(tx).as_constant()
        written, value = frame.side_effects.global_value(frame.globals_dict, name)
        if written:
            return value.realize(tx) if value is not None else None
        if name not in frame.globals_dict:
            raise Unsupported(f"looking for {name!r}, which is no global, is not traced", remedy=REMEDY)
        source = GlobalSource(name) if frame.globals_source is None else DictItemSource(frame.globals_source, name)
        return tx.wrap(frame.globals_dict[name], source)

    def get_item(self, tx: Any, key: VT) -> VT:
        found = self._find(tx, key)
        if found is None:
            tx.raise_exception(KeyError, key)
        return found

    def set_item(self, tx: Any, key: VT, value: VT) -> None:
        frame = self.interpreter
        frame.side_effects.store_global(frame.globals_dict, frame.globals_source, key.as_constant(), value)

    def contains(self, tx: Any, item: VT) -> bool:
        return self._find(tx, item) is not None

    def get_attr(self, tx: Any, name: str) -> VT:
        return BuiltinMethodVariable(self, name)

    def call_method(self, tx: Any, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name == "get" and not kwargs:
            found = self._find(tx, args[0])
            return found if found is not None else (args[1] if len(args) > 1 else tx.constant(None))
        if name == "__getitem__":
            return self.get_item(tx, args[0])
        raise self.refuse(f"{name}() of the globals", remedy="read and bind globals by name")

    def reconstruct(self, emit: Any) -> None:
        raise self.refuse("giving the globals back", remedy=REMEDY)
