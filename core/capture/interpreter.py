"""Interpreter: runs one code object over trackers instead of values.

Enters: a code object, its locals as trackers, the shared Trace. Leaves: the tracker of what it returns (or yields), and
in the Trace the graph, guards and side effects. One Python object an active call; a generator is one that pauses.
Opcode handlers live in `opcodes/`, one file a family, as methods named like the opcode.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from ..bytecode.decode import decode
from ..bytecode.instruction import Instruction
from ..bytecode.resume import entry_length, is_resume_code
from ..errors import Unsupported, UserLine
from ..guards.source import LocalSource
from ..variables.base import NotConstant, ObservedException, VariableTracker
from ..variables.cell import CellVariable
from ..variables.exception import ExceptionVariable
from ..variables.tensor_truth import AskedFurtherIn
from .breaks import BreakHere, FoundBreak, NeedsFrame, Stop, TooDeep, is_missed, outside, rebound
from .opcodes.calls import CallOpcodes
from .opcodes.containers import ContainerOpcodes
from .opcodes.control import ControlOpcodes
from .opcodes.exceptions import ExceptionOpcodes
from .opcodes.functions import FunctionOpcodes
from .opcodes.operators import OperatorOpcodes
from .opcodes.variables import VariableOpcodes
from .policy import code_is_skipped, is_comprehension
from .side_effects import NotGivenBack
from .trace import Trace
from .tracer import TracerServices

VT = VariableTracker

RETURN, YIELD = "return", "yield"


LIBRARIES = tuple(os.path.join(os.path.dirname(module.__file__), "") for module in (torch, os))
PACKAGES = os.path.join("", "site-packages", "")


@functools.cache
def is_library(filename: str) -> bool:
    """True for files of torch and of the standard library."""
    return any(filename.startswith(folder) and PACKAGES not in filename[len(folder) :] for folder in LIBRARIES)


class Interpreter(
    VariableOpcodes,
    OperatorOpcodes,
    ContainerOpcodes,
    CallOpcodes,
    ControlOpcodes,
    ExceptionOpcodes,
    FunctionOpcodes,
    TracerServices,
):
    """One call in progress. `parent` is the interpreter of the caller, None for the root frame."""

    def __init__(
        self,
        trace: Trace,
        code: types.CodeType,
        globals_dict: dict[str, Any],
        globals_source: Any,
        local_values: dict[str, VT],
        cells: tuple[CellVariable, ...],
        parent: Interpreter | None = None,
        function: VT | None = None,
    ) -> None:
        self.trace = trace
        self.code = code
        self.decoded = decode(code)
        self.instructions = self.decoded.instructions
        self.globals_dict = globals_dict
        self.globals_source = globals_source
        self.locals: dict[str, VT] = dict(local_values)
        self.cells: dict[str, CellVariable] = dict(zip(code.co_freevars, cells))
        self.parent = parent
        self.function = function
        self.stack: list[Any] = []
        self.index = 0
        self.current: Instruction = self.instructions[0]
        self.keyword_names: tuple[str, ...] = ()
        self.namespace: Any = None  # where a class body keeps its names
        self.outcome: tuple[str, VT] | None = None
        self.handlers: dict[str, Callable[[Any, Instruction], None]] = _handlers()
        trace.interpreters.append(self)

    # -- where we are ----------------------------------------------------------------------------------------------

    @property
    def line(self) -> UserLine | None:
        """The user's line being traced; code of torch and of the standard library stands for the line that calls it."""
        frame = self
        while frame.parent is not None and is_library(frame.code.co_filename):
            frame = frame.parent
        return frame.current.user_line(frame.code.co_filename, frame.code.co_qualname)

    @property
    def module_name(self) -> str:
        """The name of the module whose code is traced."""
        return str(self.globals_dict.get("__name__") or "")

    @property
    def options(self) -> Any:
        return self.trace.options

    @property
    def builder(self) -> Any:
        return self.trace.builder

    @property
    def side_effects(self) -> Any:
        return self.trace.side_effects

    def new_interpreter(self, *args: Any, **kwargs: Any) -> Interpreter:
        """An interpreter for a call that this one makes."""
        return Interpreter(*args, parent=self, **kwargs)

    def root(self) -> Interpreter:
        """The interpreter of the frame being captured."""
        frame = self
        while frame.parent is not None:
            frame = frame.parent
        return frame

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self) -> VT:
        """Run to the return; the tracker of the returned value."""
        kind, value = self.advance()
        if kind != RETURN:
            raise Unsupported(
                "a generator's code was called as a function", where=self.line, remedy="iterate over the generator"
            )
        return value

    def advance(self) -> tuple[str, VT]:
        """Run to the next return or yield."""
        self.outcome = None
        while self.outcome is None:
            self.step()
        return self.outcome

    def step(self) -> None:
        """Handle one instruction; an exception of the traced program goes to its handler in this code, or out."""
        instruction = self.current = self.instructions[self.index]
        self.index += 1
        handler = self.handlers.get(instruction.opname)
        if handler is None:
            raise Unsupported(
                f"the opcode {instruction.opname} is not traced",
                where=self.line,
                remedy="move this construct out of the compiled function",
            )
        try:
            handler(self, instruction)
        except ObservedException as raised:
            self.unwind(raised)
        except Unsupported as refusal:
            if refusal.where is None:
                refusal.where = self.line
            refusal.met_again |= not refusal.from_around and self._is_captured_when_called()
            if self.parent is not None and is_comprehension(self.code):
                refusal.left = self.code
            raise
        except NotConstant as unknown:
            raise Unsupported(
                f"a value is needed while tracing ({unknown})", where=self.line, remedy="compute it outside"
            ) from None
        except RecursionError:
            raise TooDeep(
                "calls are nested too deep to be traced", where=self.line, remedy="compile a function further down"
            ) from None

    def _is_captured_when_called(self) -> bool:
        """True for a call that is captured as a frame of its own, if the frame that makes it breaks."""
        if self.parent is None or self.code.co_flags & inspect.CO_GENERATOR or is_comprehension(self.code):
            return False
        return code_is_skipped(self.code, self.globals_dict) is None

    def jump(self, target: Instruction | None) -> None:
        """Continue at `target`."""
        assert target is not None
        self.index = self.decoded.index_of(target)

    def release(self) -> None:
        """Let go of the program's objects."""
        self.locals.clear()
        self.cells.clear()
        self.stack.clear()
        self.outcome = self.parent = None

    def finish(self, kind: str, value: VT) -> None:
        """End `advance` with a return or a yield."""
        self.outcome = (kind, value)

    # -- the stack -------------------------------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def pop_many(self, count: int) -> list[Any]:
        """The top `count` values, deepest first."""
        if count == 0:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values


class RootInterpreter(Interpreter):
    """The interpreter of the captured frame itself. It counts steps, so that capture can stop at one again."""

    def __init__(self, *args: Any, stop: Stop | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stop = stop
        self.steps = 0
        self._prologue = entry_length(self.code)
        self._is_rest = is_resume_code(self.code)
        self._statements: list[int] = []  # steps at which a line begins and capture could stop
        self._raised: dict[int, tuple[VT, int]] = {}  # exceptions that this frame handles, by id: where they came up

    def step(self) -> None:
        self.trace.step = self.steps
        if self.stop is not None and self.steps == self.stop.step:
            raise BreakHere(self.stop.run)
        self._note_statement()
        try:
            self._refuse_rebinding()
            super().step()
        except NeedsFrame:
            raise
        except Unsupported as refusal:
            if self.index <= self._prologue:  # a value that is handed on can't be looked at: nothing begins before it
                raise
            stop = self._last_step_before(self.trace.exceptions)
            if isinstance(refusal, AskedFurtherIn) and refusal.read_at < stop:
                stop, refusal.met_again = refusal.read_at, False  # the call that asks gets a bool
            raise FoundBreak(stop, refusal) from refusal
        except ObservedException as raised:
            raise FoundBreak(self._last_step_before([*self.trace.exceptions, raised.value]), None) from raised
        self.steps += 1

    def _note_statement(self) -> None:
        following = self.instructions[self.index]
        begins = following.line is not None and following.line != self.current.line
        inside_call = following.opname in ("PRECALL", "CALL", "CALL_KW", "END_FOR")
        if begins and not inside_call and self.index > self._prologue and not self.trace.exceptions:
            self._statements.append(self.steps)

    def handles_outside(self) -> bool:
        """True when the frame began while an exception was being handled, by the caller or before a graph break."""
        return sys.exc_info()[1] is not None

    def earlier_stop(self, refusal: Unsupported, attempt: int) -> Stop | None:
        """Where to stop instead of here, so that Python itself makes what can't be given back; None: nowhere."""
        if isinstance(refusal, NotGivenBack) and refusal.made_at < self.steps:
            return Stop(refusal.made_at)
        earlier = [step for step in self._statements if step < self.steps]
        return Stop(earlier[max(-len(earlier), -(2**attempt))], run=False) if earlier else None

    def release(self) -> None:
        super().release()
        self._raised.clear()

    def unwind(self, raised: ObservedException) -> None:
        if raised.value.source is None:
            self._raised.setdefault(id(raised.value), (raised.value, self.steps))
        entry = self.decoded.handler_of(self.current)
        if entry is not None:
            self._refuse_farewells(self.stack[entry.depth :])
        try:
            super().unwind(raised)
        finally:
            del raised

    # -- objects that run code when they go --------------------------------------------------------------------------

    def pop_top(self) -> None:
        self._refuse_farewells(self.stack[-1:])
        super().pop_top()

    def _refuse_farewells(self, dropped: list[Any]) -> None:
        """A resume function alone holds what was on the stack: where that goes, Python runs the instruction."""
        for value in dropped:
            if self._is_last_of(value, [*self.stack[: len(self.stack) - len(dropped)], *self.locals.values()]):
                raise self.unsupported(
                    "an object that runs code when it goes is dropped", "use it up, or keep it to the function's end"
                )

    def _refuse_rebinding(self) -> None:
        for name in rebound(self.instructions[self.index]) if self._is_rest else ():
            value, others = self.locals.get(name), [held for other, held in self.locals.items() if other != name]
            if name[0] != "." and value is not None and self._is_last_of(value, [*self.stack, *others]):
                raise self.unsupported(
                    f"{name} loses an object that runs code when it goes", "keep it to the function's end"
                )

    def _is_last_of(self, value: Any, others: list[Any]) -> bool:
        if not self._is_rest or not isinstance(value, VariableTracker):
            return False
        value = outside(value)
        owned = isinstance(value.source, LocalSource) and is_missed(value)
        return owned and not any(outside(other) is value for other in others)

    def _last_step_before(self, exceptions: list[VT]) -> int:
        """The present step, or the one that raised first of these, or of those that they came of: an exception that
        Python raises for real leads to frames with their variables, and `with` can't do without a real one."""
        steps, seen = [self.steps], set()
        links = list(exceptions)
        while links:
            link = links.pop()
            if id(link) not in seen and isinstance(link, ExceptionVariable):
                seen.add(id(link))
                steps.append(self._raised.get(id(link), (link, self.steps))[1])
                links += [further for further in (link.context, link.cause) if further is not None]
        return min(steps)


_table: dict[str, Callable[[Any, Instruction], None]] = {}


def _handlers() -> dict[str, Callable[[Any, Instruction], None]]:
    if not _table:
        for name in dir(Interpreter):
            if name.isupper() and callable(getattr(Interpreter, name)):
                _table[name] = getattr(Interpreter, name)
    return _table
