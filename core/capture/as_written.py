"""The way out of a graph that raises: the frame runs again as it was written, from its start.

Eager raises at the program's own line, inside its `try`, with the side effects before it done and those after it not. A
graph raises before any effect of its frame is written back, so the frame can begin anew on what it was called with,
wherever the graph itself has left nothing behind (graph/repeatable.py). The warm path pays nothing: an entry of the
exception table leads here, and the caller of the replacement code makes the call that it returns, so that a traceback
shows what eager's shows. Where something was left behind the exception goes on, with the line of its operation.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from .. import _C
from ..bytecode import emit
from ..bytecode.instruction import ExceptionEntry, Instruction
from ..errors import CoreError, UserLine
from ..events import FellBack
from ..events import emit as emit_event
from ..graph.captured import CapturedGraph
from ..graph.repeatable import Footprint
from ..options import strict
from ..torch_compat import peer, tracing
from ..torch_compat.tensor_hooks import ends_recomputation
from .first_calls import Draw, Seed, Seeded, TorchState, keep_states, put_back
from .reconstruct import CodeEmitter

PATIENCE = 16
"""From so many failures on, a graph that fails on more than half of its calls is not asked any more."""
PLAIN = 0x01 | 0x02  # CO_OPTIMIZED, CO_NEWLOCALS: a function's code
OF_ARGUMENTS = 0x04 | 0x08  # CO_VARARGS, CO_VARKEYWORDS


class GivenUp(Exception):
    """Raised in place of a graph that failed on most calls."""


def give_up(*inputs: Any) -> Any:
    """Stands for a graph that is not asked any more."""
    raise GivenUp


def argument_names(code: types.CodeType) -> tuple[str, ...]:
    """The names of the argument slots, in order."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[:count]


class AsWritten:
    """A frame's own code, to be run from its start on what the frame was called with; and when that is right.

    The caller of a `choose` that gives a function calls it with the closure and the argument slots.
    """

    def __init__(self, code: types.CodeType, globals_dict: dict[str, Any], grad_mode: bool) -> None:
        self.code = code
        self.globals = globals_dict
        self.grad_mode = grad_mode
        self.left = Footprint(frozenset())
        self.in_order = False
        self.restores = False
        self.undoes = False
        self.draws = False
        self.checks = False
        self.graph: Any = None
        self.entry: Callable[[], Any] = lambda: None
        self.failures = 0
        self._function: Any = None

    def covers(self, left: Footprint, compiled: Any, bound: Any) -> None:
        """Take the graph whose failures lead here. compiled: what runs it; bound: what the code calls."""
        self.left = left
        self.in_order = not getattr(compiled, "writes_last", False)
        self.graph = bound

    def choose(self, failure: BaseException | None) -> Any:
        """What to call in place of raising what the graph raised; None to raise it. No failure: a check on a tensor
        that tracing took for granted says otherwise."""
        name = self.code.co_qualname
        if failure is None:
            emit_event(FellBack("assumption", f"{name}: a check on a tensor failed", self._start()))
        elif isinstance(failure, GivenUp):
            return self._later()
        elif not isinstance(failure, Exception) or isinstance(failure, CoreError) or ends_recomputation(failure):
            return None
        else:
            module, node = tracing.node_that_raised(failure)
            line = node.meta.get("user_line") if node is not None else None
            written = vars(failure).pop("after_writes", False)  # a word of ours, none of the program's
            why = self._stays(written, module, node)
            if why:
                _show(failure, line)
                return None
            what = f"{name}: the graph raised {type(failure).__name__}, and the function ran again as written"
            emit_event(FellBack("run again", what, line or self._start()))
            self._count(name)
        if torch.is_grad_enabled() != self.grad_mode:
            torch.set_grad_enabled(self.grad_mode)  # a graph that failed may have been inside no_grad
        if failure is not None and strict() and not isinstance(failure, torch.OutOfMemoryError):
            return functools.partial(self._watched, failure)
        return self._later()

    def _start(self) -> UserLine:
        return UserLine(self.code.co_filename, self.code.co_firstlineno, self.code.co_qualname)

    def _stays(self, written: bool, module: Any, node: Any) -> str:
        """Why the graph's run can't be taken for not done; empty where it can. written: it was at its writes."""
        left = self.left
        if left.lasting is None or not (self.code.co_flags & PLAIN == PLAIN):
            return left.why or "the frame is no function's"
        if (left.draws or self.draws) and not self.restores:
            return "draws random numbers"
        if written:
            return left.why
        names = left.lasting | left.writing if self.in_order and not self.undoes else left.lasting
        if not names:
            return ""
        if node is None or not self.in_order:
            return left.why
        for each in module.graph.nodes:
            if each.name in names:
                return left.why
            if each is node:
                return ""
        return left.why

    def _count(self, name: str) -> None:
        """Stop asking a graph that fails on most calls: each such call pays for it twice."""
        self.failures += 1
        entry = self.entry()
        if self.failures >= PATIENCE and entry is not None and 2 * self.failures > entry.hits:
            self.graph.fn = give_up
            count = f"{self.failures} of {entry.hits + 1} calls"
            what = f"{name}: its graph raised on {count}, and the function runs as written from now on"
            emit_event(FellBack("run again", what, self._start()))

    def _later(self) -> Any:
        if self._function is None:
            code = self.code
            count = len(argument_names(code))
            flags = code.co_flags & ~OF_ARGUMENTS  # each slot is given as it was
            code = code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags)
            _C.skip_code(code)
            peer.keep_peer_out(code)
            self._function = _C.CompiledCode(code, self.globals, give_up)
            self._function.skipped = True
        return self._function.later

    def _watched(self, failure: Exception, closure: Any, *slots: Any) -> Any:
        """Run now; a program that neither raises nor catches what the graph raised shows a fault of the graph's."""
        self._later()
        watch = _Watch(failure)
        try:
            with watch:
                result = self._function(closure, *slots)
        except Exception as error:
            if not watch.seen and not self.checks:
                raise failure from error
            raise
        if not watch.seen:
            raise failure
        return result


class _Watch:
    """Looks out for exceptions like one, raised in frames that begin while it is entered."""

    def __init__(self, like: Exception) -> None:
        self._like = type(like)
        self.seen = False

    def __enter__(self) -> None:
        self._outer = sys.gettrace()
        sys.settrace(self._call)

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self._outer)

    def _call(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines = False
        if event == "exception":
            kind = argument[0]
            self.seen = self.seen or issubclass(kind, self._like) or issubclass(self._like, kind)
        return self._call


def _show(failure: Exception, line: UserLine | None) -> None:
    """Let the traceback name the operation's line; it begins at the replacement code, where the graph is called."""
    step = failure.__traceback__
    if line is None or step is None:
        return
    frame = step.tb_frame
    code = frame.f_code
    if code.co_filename == line.filename and line.function in (code.co_name, code.co_qualname):
        shown = types.TracebackType(step.tb_next, frame, step.tb_lasti, line.line)
    else:
        inner = types.TracebackType(step.tb_next, _frame_of(line), 0, line.line)
        shown = types.TracebackType(inner, frame, step.tb_lasti, step.tb_lineno)
    failure.__traceback__ = shown


def _frame_of(line: UserLine) -> types.FrameType:
    """A frame that shows as the one of a call which was inlined."""
    code = _own_frame.__code__.replace(
        co_filename=line.filename, co_name=line.function, co_qualname=line.function, co_firstlineno=line.line
    )
    return types.FunctionType(code, {"sys": sys})()  # type: ignore[no-any-return]


def _own_frame() -> types.FrameType:
    return sys._getframe()


def _undo(tensor: torch.Tensor, before: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(before)


class WayOut:
    """Writes the way out of one replacement code. `wrong` is where a check on a tensor goes that fails."""

    def __init__(self, trace: Any) -> None:
        frame = trace.frame
        self.frame = frame
        self.target = AsWritten(frame.code, frame.globals, trace.grad_mode)
        self.failed, self.wrong = emit.nop()[0], emit.nop()[0]
        self.checks = self.target.checks = bool(trace.assumptions)
        self._seeds = any(isinstance(call, (Seed, TorchState)) for call in trace.before_graph)
        self._draws = [call for call in trace.before_graph if isinstance(call, (Draw, Seeded))]
        self.target.draws = bool(self._draws)
        self._saved: str | None = None
        self._kept: list[Any] = []
        self._tensors: list[tuple[str, str]] = []

    def keep_written(self, emitter: Any, graph: CapturedGraph) -> list[Instruction]:
        """What the frame begins with where a failure has to undo what the graph writes to. A history is not undone."""
        if graph.needs_grad:
            return []
        self.target.undoes = True
        loader = CodeEmitter(self.frame)
        for item in (graph.inputs[index] for index in sorted(graph.mutated)):
            places = emitter.temporary(), emitter.temporary()
            loader.load_const(item.real) if item.lifted else loader.load_source(item.source)
            loader.add([*emit.dup_top(), *emit.store_fast(places[0])])
            loader.call_method("detach", [])
            loader.call_method("clone", [])
            loader.add(emit.store_fast(places[1]))
            self._tensors.append(places)
        return loader.out

    def begin(self, emitter: Any) -> list[Instruction]:
        """What the frame begins with: the state of the generators is kept where it may be needed again."""
        left = self.target.left
        states: list[Instruction] = []
        if self._draws and (left.may_raise or self.checks or self._seeds):
            loader = CodeEmitter(self.frame)
            self._kept = keep_states(loader, self._draws, emitter.temporary)
            states = loader.out
        known = left.lasting is not None
        if known and (self._seeds or left.draws and (left.may_raise or self.checks)):
            self._saved = emitter.temporary()
            states += [*emit.load_const(torch.default_generator.get_state), *emit.call_function(0)]
            states += emit.store_fast(self._saved)
        self.target.restores = bool(states)
        return states

    def protects(self, call: list[Instruction]) -> ExceptionEntry:
        """The exception entry of a call of the graph."""
        return ExceptionEntry(call[0], call[-1], self.failed, 0)

    def write(self, emitter: Any) -> None:
        """Append what happens there. Behind all else: only jumps and the exception table lead here."""
        other, way = emit.nop()[0], emitter.temporary()
        emitter.add([self.wrong, *emit.load_const(None), self.failed, *emit.copy(1)])
        emitter.load_const(self.target.choose)
        emitter.swap(2)
        emitter.call(1)
        emitter.add([*emit.store_fast(way), *emit.load_fast_bound(way), *emit.pop_jump_if_none(other), *emit.pop_top()])
        if self._saved is not None:
            emitter.load_const(torch.default_generator.set_state)
            emitter.add(emit.load_fast_bound(self._saved))
            emitter.call(1)
            emitter.pop_top()
        put_back(emitter, self._kept)
        put_back(emitter, self._tensors, _undo)
        emitter.add(emit.load_fast_bound(way))
        names = argument_names(self.frame.code)
        freevars = self.frame.code.co_freevars
        emitter.add(emit.load_closure_tuple(freevars) if freevars else emit.load_const(None))
        for name in names:
            emitter.add(emit.load_fast(name))
        emitter.call(1 + len(names))
        emitter.add([*emit.return_value(), other, *emit.reraise()])
