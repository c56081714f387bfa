"""Graph breaks: end the graph before one instruction, run that instruction in Python, go on in a resume function.

Enters: the root interpreter, stopped before the instruction. Leaves: the Ending of the replacement code. The stack and
the live locals are brought back as real values; what follows is a function of its own, captured when it is called.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import torch

from .. import _C
from ..bytecode import emit
from ..bytecode.decode import decode
from ..bytecode.instruction import ExceptionEntry, Instruction
from ..bytecode.liveness import liveness
from ..bytecode.opcodes import JUMPS, LOOP_EXIT, OPCODE, TABLE, UNCONDITIONAL_JUMPS
from ..bytecode.resume import ResumeCode, build_resume, is_stack_name
from ..bytecode.stack import effect
from ..bytecode.unbound_cells import emptied_cells
from ..errors import Unsupported
from ..guards.source import LocalSource
from ..variables.base import LazyVariable
from ..variables.cell import CellVariable
from .opcodes.host import NULL
from .policy import Verdict, disabled_reason, function_verdict
from .reconstruct import CodeEmitter
from .replacement import Ending

HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class that a program made
CONDITIONS = {"TRUE": True, "FALSE": False}


@dataclass(frozen=True)
class Stop:
    """Where the graph ends: before this step of the root frame. run: Python runs the instruction there, and the rest
    is a function of its own; without it that instruction is the first of the rest."""

    step: int
    run: bool = True


class BreakHere(Exception):
    """The root interpreter reached the step where the graph ends."""

    def __init__(self, run: bool) -> None:
        super().__init__(run)
        self.run = run


class TraceAgain(Exception):
    """Tracing changed the program's state for good, where the program would have: what was traced is out of date."""


class NeedsFrame(Unsupported):
    """The root frame looks at its own variables: only its code as written has them."""


class TooDeep(Unsupported):
    """Too many calls are nested."""

    from_around = True


class FoundBreak(Exception):
    """Capture met something it refuses, at a step of the root frame; capture starts again and ends the graph there."""

    def __init__(self, step: int, refusal: Unsupported | None) -> None:
        super().__init__(step, refusal)
        self.step = step
        self.refusal = refusal


@dataclass(frozen=True)
class ResumePoint:
    """Where the rest of a frame begins: a target and the stack there, True for a value and False for NULL."""

    target: Instruction
    stack: tuple[bool, ...]


class ResumeFunctions:
    """The resume functions of one callable, made once for each code, target and shape of the stack.

    A break in a resume function is a break in the original code: were it cut from the resume function, each iteration
    of a loop would make and capture new code.
    """

    def __init__(self, callback: Any) -> None:
        self._callback = callback
        self._made: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._originals: dict[int, tuple[types.CodeType, ResumeCode]] = {}  # by id of a resume code
        self._stepped: dict[int, str] = {}

    def original(self, code: types.CodeType, instruction: Instruction) -> tuple[types.CodeType, Instruction]:
        """The code that a resume function was cut from, and the instruction there; another code is its own original."""
        known = self._originals.get(id(code))
        if known is None:
            return code, instruction
        origin = known[1].origins.get(instruction.offset)
        return (known[0], origin) if origin is not None else (code, instruction)

    def stepped(self, code: types.CodeType) -> str | None:
        """The argument of a resume function that a loop's head has given it; None where it does not begin a turn."""
        return self._stepped.get(id(code))

    def get(
        self,
        code: types.CodeType,
        point: ResumePoint,
        arguments: tuple[str, ...],
        globals_dict: dict[str, Any],
        unbound: frozenset[str],
    ) -> tuple[Any, Any]:
        """(callable taking the closure and the arguments, its ResumeCode). unbound: cell variables without value."""
        key = (code, id(code), point.target.offset, point.stack, arguments, id(globals_dict), unbound)
        if key not in self._made:
            nulls = [place for place, filled in enumerate(point.stack) if not filled]
            depth, empty = len(point.stack), unbound | emptied_cells(code)
            resume = build_resume(code, point.target, depth=depth, nulls=nulls, arguments=arguments, unbound=empty)
            self._originals[id(resume.code)] = (code, resume)
            decoded = decode(code)
            if decoded.instructions[decoded.index_of(point.target) - 1].opname == "FOR_ITER":
                self._stepped[id(resume.code)] = resume.code.co_varnames[len(resume.stack) - 1]
            self._made[key] = (_C.CompiledCode(resume.code, globals_dict, self._callback), resume)
        return self._made[key]


def outside(tracker: Any) -> Any:
    """The tracker itself, past a lazy one."""
    return getattr(tracker, "realized", None) or tracker


def is_missed(tracker: Any) -> bool:
    """True for an object that runs code when it goes: a generator, an object with a finaliser.

    A generator that the traced code has begun is none: it can't come back, and it is refused where its end matters.
    """
    tracker = outside(tracker)
    cls = type(tracker.value) if isinstance(tracker, LazyVariable) else tracker.python_type()
    return hasattr(cls, "__del__") and not getattr(tracker, "started", False)


def watchable(tracker: Any) -> bool:
    """Whether weak references to an object of the program's own classes can be made; tensors may go early."""
    cls = type(tracker.value) if isinstance(tracker, LazyVariable) else tracker.python_type()
    return bool(cls.__flags__ & HEAP_TYPE and cls.__weakrefoffset__) and not issubclass(cls, (torch.Tensor, type))


def rebound(instruction: Any) -> tuple[str, ...]:
    """The local variables that lose what they held to an instruction."""
    name = instruction.opname
    if name in ("STORE_FAST", "DELETE_FAST"):
        return (str(instruction.argval),)
    if name in ("STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"):
        return tuple(instruction.argval[: 2 if name.endswith("STORE_FAST") else 1])
    return ()


class BreakWriter:
    """Writes the ending of a broken frame. `tx` is the root interpreter, stopped before the instruction."""

    def __init__(self, tx: Any, resumes: ResumeFunctions, run: bool = True) -> None:
        self.tx = tx
        self.run = run
        self.resumes = resumes
        self.code, self.instruction = resumes.original(tx.code, tx.instructions[tx.index])
        self.decoded = decode(self.code)
        self.stack: list[Any] = list(tx.stack)
        self.keyword_names: tuple[str, ...] = tx.keyword_names
        if any(name in tx.locals for name in rebound(self.instruction)):
            self.run = False  # what the variable loses goes between the two functions, which is the moment for it
        self.outer: str | None = None  # the temporary with what was handled outside, while the code is in a handler

    def ending(self) -> Ending:
        """The ending, for replacement.build."""
        return Ending(self.write, self.instruction.position)

    def write(self, emitter: CodeEmitter) -> list[ExceptionEntry]:
        self._read_locals(emitter)
        self._enter_handler(emitter)
        for value in self.stack:
            if value is NULL:
                emitter.add(emit.push_null())
            else:
                emitter.load(value)
        self._let_go(emitter)
        emitter.settle_modes(self.tx.trace.builder, self.tx.trace.function_modes)
        cells = self._cells(emitter)
        self._unbind(emitter)
        start = len(emitter.out)
        name = self.instruction.opname
        if not self.run:
            begin = self._next() if name == "DELETE_FAST" else self.instruction
            self._resume(emitter, cells, ResumePoint(begin, self._shape(self.stack)))
            return []
        if name.rpartition("_")[2] in CONDITIONS and name.startswith("POP_JUMP"):
            protected = self._branch(emitter, cells)
        elif name in ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"):
            protected = self._run_instruction(emitter)
        elif name in JUMPS:
            protected = self._jump(emitter, cells)
        elif name == "GET_ITER" and self._begins_loop():
            protected = self._run_instruction(emitter)  # what Python had to begin, Python takes the first step of
            protected += self._loop(emitter, cells, self._next())
        elif name in ("CALL", "PRECALL") and self._makes_iterable():
            protected = self._run_instruction(emitter)
            emitter.add([Instruction("GET_ITER", None, None)])
            self.stack[-self.instruction.arg - 2 :] = [self._called()]  # for what the call gives
            protected += 1 + self._loop(emitter, cells, self._behind(self._next()))
        else:
            protected = self._run_instruction(emitter)
            self._resume(emitter, cells, self._after())
        return self._handlers(emitter, cells, emitter.out[start : start + protected])

    def _unbind(self, emitter: CodeEmitter) -> None:
        """A variable that the traced code has deleted may still be bound in the frame whose instruction asks for it."""
        if not self.run or not self.instruction.opname.startswith(("LOAD_FAST", "DELETE_FAST", "STORE_FAST_LOAD_FAST")):
            return
        named = self.instruction.argval
        for name in (named,) if isinstance(named, str) else named:
            if name not in self.tx.locals:
                emitter.load_const(None)  # what is not bound can't be deleted
                emitter.add([*emit.store_fast(name), *emit.delete_fast(name)])

    def _let_go(self, emitter: CodeEmitter) -> None:
        """Leave what has a moment to go at to the stack alone: where the instruction raises, that gives it up."""
        named = [outside(value) for value in self.tx.locals.values()]
        for value in dict.fromkeys(outside(value) for value in self.stack if value is not NULL):
            source = value.source
            held = isinstance(source, LocalSource) and is_stack_name(source.local)
            if held and is_missed(value) and not any(value is other for other in named):
                emitter.add(emit.delete_fast(source.local))

    # -- handlers --------------------------------------------------------------------------------------------------

    def _enter_handler(self, emitter: CodeEmitter) -> None:
        """An instruction that runs in a handler sees the exception being handled, and what it raises gets that as
        its `__context__`."""
        handled = self.tx.trace.exceptions
        if not self.run or not handled or self.instruction.opname in ("RETURN_VALUE", "RETURN_CONST"):
            return
        emitter.load(handled[-1])
        emitter.add([Instruction("PUSH_EXC_INFO", None, None)])
        emitter.pop_top()
        self.outer = emitter.temporary()
        emitter.add(emit.store_fast(self.outer))

    def _leave_handler(self, emitter: CodeEmitter) -> None:
        """Before the resume function, which enters the handler itself."""
        if self.outer is not None:
            emitter.add([*emit.load_fast_bound(self.outer), Instruction("POP_EXCEPT", None, None)])

    # -- running the instruction -----------------------------------------------------------------------------------

    def _run_instruction(self, emitter: CodeEmitter) -> int:
        """Emit the instruction itself; how many instructions that took."""
        before = len(emitter.out)
        instruction = self.instruction
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and self._is_method_form():
            emitter.load_attr(instruction.argval)
            emitter.add(emit.push_null())
            if TABLE.null_before_callable:
                emitter.swap(2)
        elif instruction.opname in ("CALL", "PRECALL"):
            if self.keyword_names:
                emitter.add([Instruction("KW_NAMES", None, self.keyword_names)])
            if TABLE.has_precall:
                emitter.add([Instruction("PRECALL", instruction.arg, instruction.arg)])
            emitter.add([Instruction("CALL", instruction.arg, instruction.arg)])
        elif instruction.opname in ("LOAD_DEREF", "DELETE_DEREF") and instruction.argval in self.code.co_cellvars:
            self._read_cell(emitter, str(instruction.argval))
        else:
            emitter.add([instruction.detached()])
        return len(emitter.out) - before

    def _read_cell(self, emitter: CodeEmitter, name: str) -> None:
        """A variable that the original keeps in a cell of its own is none of the replacement code's."""
        cell = self.tx.cells[name]
        if cell.contents is not None:
            emitter.load(cell)
            emitter.load_attr("cell_contents")
            return
        text = f"cannot access local variable '{name}' where it is not associated with a value"
        emitter.push_null()
        emitter.load_const(UnboundLocalError)
        emitter.load_const(text)
        emitter.call(1)
        emitter.add(emit.raise_varargs())

    def _is_method_form(self) -> bool:
        return self.instruction.opname == "LOAD_METHOD" or bool(self.instruction.flags & 1)

    def _branch(self, emitter: CodeEmitter, cells: str | None) -> int:
        taken = emit.nop()
        jump = emit.pop_jump_if_true if self.instruction.opname.endswith("TRUE") else emit.pop_jump_if_false
        emitter.add(instructions := jump(taken[0]))
        rest = self._shape(self.stack[:-1])
        self._resume(emitter, cells, ResumePoint(self._next(), rest))
        emitter.add(taken)
        self._resume(emitter, cells, ResumePoint(self._target(self.instruction), rest))
        return len(instructions)

    def _jump(self, emitter: CodeEmitter, cells: str | None) -> int:
        instruction = self.instruction
        if instruction.opname.startswith("JUMP_IF"):
            return self._jump_or_pop(emitter, cells)
        if instruction.opname != "FOR_ITER":
            raise Unsupported(
                f"a graph break at {instruction.opname} can't be resumed",
                remedy="move the expression into a statement of its own",
            )
        return self._loop(emitter, cells, instruction)

    def _jump_or_pop(self, emitter: CodeEmitter, cells: str | None) -> int:
        """`and`, `or` in a value: jump and keep the value, or drop it and go on."""
        taken = emit.nop()[0]
        emitter.add([Instruction(self.instruction.opname, None, None, target=taken)])
        self._resume(emitter, cells, ResumePoint(self._next(), self._shape(self.stack[:-1])))
        emitter.add([taken])
        self._resume(emitter, cells, ResumePoint(self._target(self.instruction), self._shape(self.stack)))
        return 1

    def _begins_loop(self, at: Instruction | None = None) -> bool:
        """Whether the iterator that GET_ITER makes goes straight into a loop, in the reach of the same handler."""
        following, entry = self._behind(at or self.instruction), self.decoded.handler_of(self.instruction)
        return following.opname == "FOR_ITER" and self.decoded.handler_of(following) is entry

    def _called(self) -> Any:
        return next(outside(value) for value in self.stack[-self.instruction.arg - 2 :] if value is not NULL)

    def _makes_iterable(self) -> bool:
        """Whether a loop begins at once over what a library makes: no step of such an iterator is traced, nor its
        beginning."""
        following = self._next()
        if following.opname != "GET_ITER" or not self._begins_loop(following):
            return False
        called = self._called()
        made = getattr(called.as_python_object(), "__iter__", None) if called.kind == "class" else None
        function = made if called.kind == "class" else getattr(called, "fn", None)
        if not isinstance(function, types.FunctionType) or disabled_reason(function) is not None:
            return False
        return function_verdict(function) is Verdict.SKIP

    def _loop(self, emitter: CodeEmitter, cells: str | None, head: Instruction) -> int:
        """FOR_ITER, which is `head`: fall through with one more value, or go to the target without the iterator."""
        exhausted = emit.nop()[0]
        loop = Instruction("FOR_ITER", None, None, target=exhausted)
        emitter.add([loop])
        self._resume(emitter, cells, ResumePoint(self._behind(head), (*self._shape(self.stack), True)))
        for _ in range(LOOP_EXIT):  # what FOR_ITER expects at its target and steps over
            emitter.add([Instruction("END_FOR" if _ == 0 else "POP_TOP", None, None)])
        emitter.add([exhausted])
        if LOOP_EXIT:
            loop.target = emitter.out[-1 - LOOP_EXIT]
        self._resume(emitter, cells, ResumePoint(self._target(head, LOOP_EXIT), self._shape(self.stack[:-1])))
        return 1

    # -- resuming --------------------------------------------------------------------------------------------------

    def _next(self) -> Instruction:
        return self._behind(self.instruction)

    def _behind(self, instruction: Instruction) -> Instruction:
        following = self.decoded.next_of(instruction)
        assert following is not None
        if instruction.opname == "PRECALL":
            following = self.decoded.next_of(following)
            assert following is not None
        return self._settled(following)

    def _target(self, instruction: Instruction, behind: int = 0) -> Instruction:
        assert instruction.target is not None
        return self._settled(self.decoded.instructions[self.decoded.index_of(instruction.target) + behind])

    def _settled(self, target: Instruction) -> Instruction:
        """Where control really goes on: ways that meet behind a jump share one resume function."""
        for _ in self.decoded.instructions:
            if target.opname not in UNCONDITIONAL_JUMPS or target.target is None:
                break
            target = target.target
        return target

    def _after(self) -> ResumePoint:
        """The point behind an instruction that goes on to the next one."""
        instruction = self.instruction
        shape = list(self._shape(self.stack))
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and self._is_method_form():
            shape[-1:] = (False, True) if TABLE.null_before_callable else (True, False)
        else:
            change = self._stack_change()
            if change < 0:
                del shape[change:]
                popped = -change
            else:
                shape.extend([True] * change)
                popped = 0
            self._refill(shape, popped)
        return ResumePoint(self._next(), tuple(shape))

    def _stack_change(self) -> int:
        instruction = self.instruction
        if instruction.opname in ("CALL", "PRECALL"):
            return -instruction.arg - 1  # callable and NULL or self beside it, arguments; one result
        return effect(OPCODE[instruction.opname], instruction.arg or 0, False)

    def _refill(self, shape: list[bool], popped: int) -> None:
        """A result may take the place of a NULL that the instruction consumed."""
        if self.instruction.opname in ("CALL", "PRECALL", "CALL_KW", "CALL_FUNCTION_EX") and shape:
            shape[-1] = True

    def _shape(self, stack: list[Any]) -> tuple[bool, ...]:
        return tuple(value is not NULL for value in stack)

    def _resume(self, emitter: CodeEmitter, cells: str | None, point: ResumePoint, raised: bool = False) -> None:
        """Take the stack that `point` describes off; return a call of the resume function, for the caller to make.

        raised: there is an exception on it, whose traceback has this frame, which so must not keep it."""
        before = dict(emitter.temporaries)
        self._leave_handler(emitter)
        arguments = self._arguments(point.target)
        found = ((name, self.tx.cells.get(name)) for name in self.code.co_cellvars)
        unbound = frozenset(name for name, cell in found if cell is None or cell.contents is None)
        function, resume = self.resumes.get(self.code, point, arguments, self.tx.trace.frame.globals, unbound)
        names: dict[int, str] = {}
        for place in reversed(range(len(point.stack))):
            if not point.stack[place]:
                emitter.add(emit.pop_null(emitter.temporary()))
                continue
            names[place] = emitter.temporary()
            emitter.add(emit.store_fast(names[place]))
        emitter.load_const(function.later)
        if cells is not None:
            emitter.add(emit.load_fast_bound(cells))
        else:
            emitter.load_const(None)
        handled = dict(zip(resume.handled, self.tx.trace.exceptions))
        for place in resume.stack:
            if place in handled:
                emitter.load(handled[place])
            else:
                emitter.add(emit.load_fast_bound(names[place]))
                if raised:
                    emitter.add(emit.delete_fast(names[place]))
        for name in resume.locals:
            emitter.load(self.tx.locals[name])
        emitter.call(1 + len(resume.stack) + len(resume.locals))
        emitter.add(emit.return_value())
        emitter.temporaries = before  # what this way out kept, another way out has not got

    def _arguments(self, target: Instruction) -> tuple[str, ...]:
        live = liveness(self.code).locals_at(target)
        gone = {*live, *rebound(target), *rebound(self.instruction)}
        held = (name for name in self.code.co_varnames if name in self.tx.locals and name not in gone)
        kept = [name for name in held if self._is_kept(name)]  # their moment is the frame's end
        if target is self.instruction and not self.run:  # what it stores to goes now, also where vars() may ask for it
            live = tuple(name for name in live if name not in rebound(target))
        return tuple(sorted([*(name for name in live if name in self.tx.locals), *kept]))

    def _is_kept(self, name: str) -> bool:
        """Whether a variable that is not read any more holds an object whose end can be seen: by its finaliser, or by a
        weak reference to it, which the instruction that ends the graph may make."""
        tracker = outside(self.tx.locals[name])
        if is_missed(tracker):
            return True
        if tracker.kind not in ("user_object", "lazy") or not watchable(tracker):
            return False
        return any(outside(item) is tracker for item in self.stack if item is not NULL) or self._was_kept(name)

    def _was_kept(self, name: str) -> bool:
        """Whether the frame is a resume function that has the variable for no other reason."""
        code = self.tx.code
        own = code.co_varnames[: code.co_argcount]
        return code is not self.code and name in own and name not in liveness(code).locals_at(self.tx.instructions[0])

    def _read_locals(self, emitter: CodeEmitter) -> None:
        """Have every local of the resume functions in hand: what runs in between may change where it is reached."""
        if not self.run:
            return
        following = self.decoded.next_of(self.instruction)
        targets = [self.instruction.target, following]
        if self.instruction.opname == "GET_ITER" and following is not None:
            targets.append(following.target)  # of the loop that begins
        elif self.instruction.opname in ("CALL", "PRECALL") and self._makes_iterable():
            targets.append(self._behind(self._next()).target)
        entry = self.decoded.handler_of(self.instruction)
        targets.append(entry.target if entry is not None else None)
        for target in targets:
            for name in self._arguments(target) if target is not None else ():
                emitter.preload(self.tx.locals[name])

    def _cells(self, emitter: CodeEmitter) -> str | None:
        """The tuple of the cells that resume functions take, in a temporary; None when the code has none."""
        names = self.code.co_cellvars + self.code.co_freevars
        if not names:
            return None
        for name in names:
            cell = self.tx.cells.get(name)
            emitter.load(cell if cell is not None else CellVariable(name, None))
        emitter.build_tuple(len(names))
        temporary = emitter.temporary()
        emitter.add(emit.store_fast(temporary))
        return temporary

    # -- exceptions ------------------------------------------------------------------------------------------------

    def _handlers(self, emitter: CodeEmitter, cells: str | None, protected: list[Instruction]) -> list[ExceptionEntry]:
        """When the instruction stands in a try or with, what it raises goes on at the original's handler."""
        entry = self.decoded.handler_of(self.instruction)
        if entry is None or not protected:
            return []
        handler = emit.nop()[0]
        emitter.add([handler])
        shape = [*self._shape(self.stack[: entry.depth]), *([True] if entry.lasti else []), True]
        self._resume(emitter, cells, ResumePoint(entry.target, tuple(shape)), raised=True)
        return [ExceptionEntry(protected[0], protected[-1], handler, entry.depth, entry.lasti)]
