"""GeneratorVariable: a generator of the traced code, as an interpreter that pauses at each yield."""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Sequence
from typing import Any

from ..errors import Unsupported
from ..variables.base import BuiltinMethodVariable, ObservedException, VariableTracker
from ..variables.exception import ExceptionVariable
from .side_effects import NotGivenBack
from .tracebacks import passed

VT = VariableTracker


class GeneratorVariable(VariableTracker):
    """A generator. Its body runs only as far as someone asks, as in Python."""

    kind = "generator"
    mutable = True

    def __init__(self, interpreter: Any) -> None:
        super().__init__(None)
        self.interpreter = interpreter
        self.started = False
        self.finished = False
        self.running = False
        self.handled: list[VT] = []  # exceptions that it handles while it waits
        self.started_at = interpreter.trace.step
        interpreter.trace.generators.append(self)

    def python_type(self) -> type:
        return types.GeneratorType

    def truth(self, tx: Any) -> bool:
        return True

    def iterate(self, tx: Any) -> VT:
        return self

    def next_item(self, tx: Any) -> VT | None:
        kind, value = self.send(tx, tx.constant(None))
        return value if kind == "yield" else None

    def send(self, tx: Any, value: VT) -> tuple[str, VT]:
        """("yield", item) or ("return", value). A finished generator returns None."""
        if self.finished:
            return "return", tx.constant(None)
        if self.started:
            self.interpreter.push(value)
        else:
            self.started_at = tx.trace.step
        self.started = True
        return self._advance(tx)

    def _advance(self, tx: Any) -> tuple[str, VT]:
        if self.running:
            tx.raise_exception(ValueError, "generator already executing")
        trace = tx.trace
        handled, trace.exceptions = trace.exceptions, [*trace.exceptions, *self.handled]
        self.running = True
        self.interpreter.parent = tx
        trace.depth += 1
        try:
            kind, result = self.interpreter.advance()
        except ObservedException as raised:
            self.finished = True
            raise ObservedException(tx.stop_iteration_error(raised.value)) from None
        finally:
            self.running = False
            self.handled = trace.exceptions[len(handled) :]
            trace.exceptions = handled
            trace.depth -= 1
        self.finished = kind == "return"
        return kind, result

    def throw(self, tx: Any, exception: VT) -> tuple[str, VT]:
        """Raise inside the generator, at the yield where it waits."""
        if self.finished or not self.started:
            if not self.finished:
                passed(self.interpreter, exception)
                exception = tx.stop_iteration_error(exception)
            self.finished = True
            raise ObservedException(exception)
        if self.running:
            tx.raise_exception(ValueError, "generator already executing")
        receiver = self._receiver()
        if receiver is not None:
            going_on = self._throw_further_in(tx, receiver, exception)
            if not isinstance(going_on, VariableTracker):
                return going_on
            exception = going_on
        handled = self.handled or tx.trace.exceptions
        if handled and isinstance(exception, ExceptionVariable):
            exception.chain(handled[-1])
        try:
            self.interpreter.unwind(ObservedException(exception))
        except ObservedException as raised:
            self.finished = True
            raise ObservedException(tx.stop_iteration_error(raised.value)) from None
        return self._advance(tx)

    def _receiver(self) -> VT | None:
        """What `yield from` waits for; None where the generator waits at a yield of its own."""
        resume = self.interpreter.instructions[self.interpreter.index]
        waits = resume.opname == "RESUME" and resume.arg & WAITING == AFTER_YIELD_FROM
        return self.interpreter.stack[-1].realize(self.interpreter) if waits else None  # type: ignore[no-any-return]

    def _throw_further_in(self, tx: Any, receiver: VT, exception: VT) -> tuple[str, VT] | VT:
        """Throw into what `yield from` waits for: the next yield or return, or what is to be raised here."""
        leaving = issubclass(exception.python_type(), GeneratorExit)
        method = tx.special_method(receiver, "close" if leaving else "throw")
        if method is None:
            return exception
        self.running = True
        try:
            value = method.call(tx, [] if leaving else [exception], {})
        except ObservedException as raised:
            if leaving or not issubclass(raised.value.python_type(), StopIteration):
                return raised.value
            value = raised.value.get_attr(tx, "value")
        else:
            return exception if leaving else ("yield", value)
        finally:
            self.running = False
        interpreter = self.interpreter
        send = interpreter.instructions[interpreter.index + 1].target
        if interpreter.send_keeps_receiver:
            interpreter.push(value)
        else:
            interpreter.stack[-1] = value
        interpreter.jump(send.target)
        return self._advance(tx)

    def close(self, tx: Any) -> VT:
        """generator.close()."""
        if self.started and not self.finished:
            try:
                kind, _ = self.throw(tx, ExceptionVariable(GeneratorExit, []))
            except ObservedException as raised:
                if not issubclass(raised.value.python_type(), (GeneratorExit, StopIteration)):
                    raise
            else:
                if kind == "yield":
                    tx.raise_exception(RuntimeError, "generator ignored GeneratorExit")
        self.finished = True
        return tx.constant(None)

    def get_attr(self, tx: Any, name: str) -> VT:
        if name in METHODS:
            return BuiltinMethodVariable(self, name)
        if name in ("gi_running", "gi_suspended"):
            return tx.constant(self.running if name == "gi_running" else self._waits())
        if name == "gi_code":
            return tx.constant(self.interpreter.code)
        if name == "gi_yieldfrom":
            return (self._receiver() if self._waits() else None) or tx.constant(None)
        if name in ("gi_frame", "__name__", "__qualname__"):
            raise self.refuse(f"reading attribute {name!r}")
        inherited = self.inherited(tx, name)
        if inherited is None:
            tx.raise_exception(AttributeError, f"'generator' object has no attribute '{name}'")
        return inherited

    def _waits(self) -> bool:
        return self.started and not self.finished and not self.running

    def lookup_special(self, tx: Any, name: str) -> VT | None:
        return BuiltinMethodVariable(self, name) if name in METHODS else None

    def call_method(self, tx: Any, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name == "__iter__":
            return self
        if name == "close":
            return self.close(tx)
        if name in ("send", "__next__"):
            kind, value = self.send(tx, args[0] if args else tx.constant(None))
        elif name == "throw":
            kind, value = self.throw(tx, tx.as_exception(args[1] if len(args) > 1 else args[0]))
        else:
            raise self.refuse(f"calling {name}")
        if kind == "yield":
            return value
        none = value.is_constant() and value.as_constant() is None
        tx.raise_exception(StopIteration, *([] if none else [value]))

    def left_waiting(self) -> bool:
        """True while it waits inside a try or with. Python leaves those at the moment when nobody holds the generator
        any more, which tracing can't tell."""
        if not self.started or self.finished:
            return False
        return not _lets_exit_pass(self.interpreter, self.interpreter.current)

    def not_given_back(self) -> NotGivenBack:
        """The refusal to make a real generator of it."""
        return NotGivenBack(
            "a generator that the traced code has started can't be given back to Python",
            self.started_at,
            remedy="return its items in a list, or keep the loop over it inside the compiled function",
        )

    def reconstruct(self, emit: Any) -> None:
        if self.started or self.finished:
            raise self.not_given_back()
        positional, keywords = _arguments(self.interpreter)
        emit.load(self.interpreter.function)
        for value in (*positional, *keywords.values()):
            emit.load(value)
        emit.call_keywords(tuple(keywords), len(positional) + len(keywords))


def _arguments(interpreter: Any) -> tuple[list[VT], dict[str, VT]]:
    """What a generator function was called with: until the generator starts, its variables are its arguments."""
    code, values = interpreter.code, interpreter.locals
    names = code.co_varnames
    first_keyword = code.co_argcount
    behind = first_keyword + code.co_kwonlyargcount
    positional = [values[name] for name in names[:first_keyword]]
    keywords = {name: values[name] for name in names[first_keyword:behind]}
    if code.co_flags & inspect.CO_VARARGS:
        positional += values[names[behind]].items
        behind += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        for key, value in values[names[behind]].pairs(interpreter):
            keywords[key.as_constant()] = value
    return positional, keywords


def _lets_exit_pass(interpreter: Any, at: Any) -> bool:
    """True when GeneratorExit, raised here, runs no code of the user's: each `except` around names other exceptions."""
    decoded, code = interpreter.decoded, interpreter.instructions
    entry = decoded.handler_of(at)
    if entry is None or entry.target.opname.startswith("CALL_INTRINSIC"):  # that one every body has
        return True
    place = decoded.index_of(entry.target)
    if code[place].opname == "COPY":  # what ends an except
        return _lets_exit_pass(interpreter, code[place + 2]) if code[place + 2].opname == "RERAISE" else False
    if code[place].opname != "PUSH_EXC_INFO":
        return False
    place += 1
    while code[place].opname == "LOAD_GLOBAL" and code[place + 1].opname == "CHECK_EXC_MATCH":
        name = code[place].argval
        caught = interpreter.globals_dict.get(name, getattr(builtins, str(name), None))
        jump = code[place + 2]
        if not isinstance(caught, type) or issubclass(GeneratorExit, caught) or jump.target is None:
            return False
        place = decoded.index_of(jump.target)
    return code[place].opname == "RERAISE" and _lets_exit_pass(interpreter, code[place])


def refuse_waiting(generators: list[GeneratorVariable]) -> None:
    """A frame that ends while generators wait inside a try or with runs as written; their moment is Python's."""
    if any(generator.left_waiting() for generator in generators):
        raise Unsupported(
            "a generator is left waiting inside a try or with, which is left when the generator goes",
            remedy="use up the generator, or close it",
        )


WAITING, AFTER_YIELD_FROM = 3, 2
"""The bits of RESUME's argument that say what was waited for, and what they are for `yield from`."""
METHODS = frozenset(("send", "throw", "close", "__next__", "__iter__"))
