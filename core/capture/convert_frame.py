"""FrameCompiler: from a call that no entry accepts to a new entry. The driver of one frame.

Enters: what the C side knows of a call. Leaves: an Entry (guards and replacement code), None (run this code as it is
from now on) or False (run it as it is this once). The steps stand in `compile_frame`, in order.
State shared between threads: `_states`, and each FrameState while its callable compiles, both under `_lock`.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Iterable
from typing import Any, TypeVar

from .. import _C, torch_compat
from ..errors import BackendError, CoreError, RecompileLimit, RecompileRefused, Unsupported, UserLine
from ..events import (
    EntryMade,
    FellBack,
    FrameCaptured,
    FrameSkipped,
    GraphBroken,
    LimitReached,
    Recompiled,
    compiling,
    emit,
)
from ..graph.builder import GraphBuilder
from ..graph.captured import CapturedGraph
from ..graph.refusals import NeedsSymbols
from ..guards.checks import GlobalState, Is, Predicate, TypeUnchanged
from ..guards.failure import describe_failure, failing_guard
from ..guards.guard import Guard
from ..guards.source import ClosureSource, FrameValues, LocalSource
from ..guards.tree import build_program
from ..options import CompileOptions, disabled, strict
from ..settings import config
from ..stance import Stance, current
from ..torch_compat import peer, tensor_hooks
from ..variables.base import VariableTracker
from ..variables.cell import CellVariable
from . import policy, replacement
from .alias_guards import identity_guards, memory_guard
from .breaks import BreakHere, BreakWriter, FoundBreak, ResumeFunctions, Stop, TraceAgain
from .class_guards import class_guards, class_name
from .dynamic import CapturePolicy, History, holders_of_lifted, is_lifted_source, observe
from .first_calls import DecidedByChance
from .generators import refuse_waiting
from .interpreter import RootInterpreter
from .shape_guards import shape_guards
from .trace import FrameInput, Trace

VT = VariableTracker

NO_CAPTURE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
MAX_RESTARTS = 8  # a restart moves the end of the graph to the first thing refused, or before what can't come back


CROWD = 3  # from so many entries on, cases of sizes 0 and 1 share one


class NotItsOwnCall(Exception):
    """A capture with sizes without a value can't serve: what was assumed of them does not hold in its own call, or its
    backward could be refused when it is too late for another try."""


E = TypeVar("E", bound=BaseException | None)


def _without_frames(refusal: E, handled: BaseException | None) -> E:
    """The refusal less its tracebacks, whose frames would keep the program's objects in a circle with it.

    handled: what the program was handling when it was captured, which is the context of all that was raised since.
    """
    error: BaseException | None = refusal
    seen = {id(handled)}  # a program that raises an error from our own, and compiles again, has made a circle of them
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
    return refusal


class FrameState:
    """What is remembered of one callable or nested code between captures."""

    def __init__(self) -> None:
        self.history = History()
        self.warned = False
        self.entries = 0  # made so far
        self.unbacked = True  # sizes may have no value in the capture under way
        self.draws = True  # random numbers of Python and NumPy may be inputs of its graph
        self.scalars = False  # numbers and sizes of the data are symbols, for without them it would break
        self.without_symbols: Unsupported | None = None  # the refusal that led to that
        self.declared: Any = None  # what shapes_spec says of the call under way
        self.seen = False  # a first call has run as written, for its sizes
        self.latest: Any = None  # the entry made last
        self.idle = 0  # entries in a row that died before they served a second call

    def count_idle(self) -> int:
        """How often in a row the latest entry was lost unused: its guards name objects that each call makes anew."""
        if self.latest is not None:
            self.idle = self.idle + 1 if not self.latest.valid and self.latest.hits == 0 else 0
            self.latest = None
        return self.idle


class FrameCompiler:
    """The callback of one compiled callable: options, backend and what its frames have in common."""

    def __init__(self, options: CompileOptions, compile_graph: Any) -> None:
        self.options = options
        self.compile_graph = compile_graph
        self.resumes = ResumeFunctions(self)
        self.in_order = True  # the backend runs graphs as captured
        self.root_as_written = False  # the callable itself is kept out of graphs, what it calls is not
        self._states: dict[Any, FrameState] = {}
        self._left_to_python: set[types.CodeType] = set()
        self._lock = threading.Lock()
        torch_compat.calibrate_tensor_guards()
        for code in policy.QUIET_CODE:
            _C.quiet_code(code)

    def __call__(
        self,
        owner: Any,
        code: types.CodeType,
        args: tuple[Any, ...],
        globals_dict: dict[str, Any],
        builtins: dict[str, Any],
        closure: tuple[Any, ...] | None,
    ) -> Any:
        if disabled():
            return False
        reason = self._refuses(owner, code, globals_dict)
        if reason is not None:
            return None
        frame = FrameInput(code, tuple(args), globals_dict, builtins, closure)
        if not self._stance_allows(owner, frame):
            return False
        if not self._lock.acquire(blocking=False):
            return False  # another thread compiles, or this one does further up: run as written meanwhile
        try:
            with compiling(code.co_qualname, UserLine(code.co_filename, code.co_firstlineno)):
                return self.compile_frame(owner, frame)
        finally:
            self._lock.release()

    def reset(self) -> None:
        """Forget what earlier captures saw."""
        self._states.clear()
        self._left_to_python.clear()
        self.resumes = ResumeFunctions(self)

    def _refuses(self, owner: Any, code: types.CodeType, globals_dict: dict[str, Any]) -> str | None:
        if code.co_flags & NO_CAPTURE:
            return "a generator or coroutine"
        if owner is None:
            if policy.is_disabling_wrapper(code, globals_dict):
                _C.quiet_code(code)
            if code in self._left_to_python:
                return "a comprehension with a graph break in it"
            return policy.code_is_skipped(code, globals_dict)
        return None

    def _stance_allows(self, owner: Any, frame: FrameInput) -> bool:
        """Whether a miss may compile now; False runs this call as written. Raises RecompileRefused."""
        stance = current()
        if stance.name == "eager_on_recompile":
            return False
        if stance.name == "fail_on_recompile" or stance.skip_guards and self._entries(owner, frame.code):
            raise self._recompile_refused(stance, owner, frame)
        if stance.name == "eager_then_compile" and isinstance(owner, _C.CompiledCallable):
            state = self._state_of(owner, frame.code)
            if not state.seen and not owner.entries():
                state.seen = True
                observe(state.history, self.options, frame, replacement.argument_names(frame.code))
                return False
        return True

    def _recompile_refused(self, stance: Stance, owner: Any, frame: FrameInput) -> RecompileRefused:
        call = (frame.args, frame.globals, frame.builtins, frame.closure)
        entries = [entry for entry in self._entries(owner, frame.code) if entry.user]
        reasons = [describe_failure(entry.user.guards, entry.program, *call) for entry in entries]
        name, given = frame.code.co_qualname, "skip_guard_eval_unsafe" if stance.skip_guards else stance.name
        why = "; ".join(reasons) if reasons else "it has no entry yet"
        return RecompileRefused(
            f"{name} would have to be compiled, which the stance {given!r} forbids: {why}",
            where=UserLine(frame.code.co_filename, frame.code.co_firstlineno, name),
            instead="the call was not made",
            remedy="call it with every kind of argument before the stance is set, or set another stance",
        )

    def _entries(self, owner: Any, code: types.CodeType) -> list[Any]:
        return owner.entries() if owner is not None else _C.frame_entries(code)

    # -- one frame -------------------------------------------------------------------------------------------------

    def compile_frame(self, owner: Any, frame: FrameInput) -> Any:
        """Recompile policy, capture, graph, guards, code, entry."""
        if self.root_as_written and owner is not None:
            return self._as_written(owner, frame)
        unknown = torch_compat.unknown_active_mode()
        if unknown is not None:
            emit(FellBack("capture", f"{unknown} is active"))
            return False
        state = self._state_of(owner, frame.code)
        entries = self._entries(owner, frame.code)
        if state.count_idle() >= self.options.recompile_limit:
            self._refuse_recompile(state, frame.code, ("it names objects that are gone by the next call",))
            return self._no_more(owner)
        if entries and not self._may_recompile(state, entries, frame):
            return self._no_more(owner)
        began = time.perf_counter()
        if self.options.shapes_spec is not None and isinstance(owner, _C.CompiledCallable):
            state.declared = self._declared(owner, frame)
        try:
            policy.refuse_code(frame.code)
            with tensor_hooks.hooks_aside():
                state.latest = self._captured_entry(state, frame, began, self._only_enters(owner))
            return state.latest
        except Unsupported as refusal:
            if self.options.fullgraph:
                raise
            emit(FrameSkipped(frame.code.co_qualname, refusal.what))
            return self._as_written(owner, frame)
        except CoreError:
            raise
        except Exception as error:  # border: a fault of ours must not break the user's program, nor stay unseen
            if strict():
                raise
            text = f"capture failed inside core ({type(error).__name__}: {error})"
            emit(FellBack("capture", text))
            warnings.warn(f"{frame.code.co_qualname} runs uncompiled: {text}", RuntimeWarning, stacklevel=2)
            return None

    def _state_of(self, owner: Any, code: types.CodeType) -> FrameState:
        key = code if owner is None else id(owner)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = FrameState()
        return state

    def _may_recompile(self, state: FrameState, entries: list[Any], frame: FrameInput) -> bool:
        call = (frame.args, frame.globals, frame.builtins, frame.closure)
        for entry in entries:
            failing = failing_guard(entry.user.guards, entry.program, *call)
            if failing is not None and isinstance(failing.check, TypeUnchanged):
                state.history.changing_classes.add(class_name(failing.check.type))
            if failing is not None and is_lifted_source(failing.source) and isinstance(failing.check, Is):
                entry.valid = False  # it would keep the replaced weight in memory; the next entry loads it on each call
        reasons = tuple(describe_failure(entry.user.guards, entry.program, *call) for entry in entries if entry.user)
        name = frame.code.co_qualname
        if len(entries) >= self.options.recompile_limit:
            self._refuse_recompile(state, frame.code, reasons)
            return False
        if reasons:
            emit(Recompiled(name, reasons))
        return True

    def _no_more(self, owner: Any) -> bool | None:
        """The answer that ends compiling here, while the entries that there are go on to serve."""
        if owner is None:
            return None
        owner.frozen = True
        return False

    def _refuse_recompile(self, state: FrameState, code: types.CodeType, reasons: tuple[str, ...]) -> None:
        limit, name = self.options.recompile_limit, code.co_qualname
        where = UserLine(code.co_filename, code.co_firstlineno, name)
        if self.options.fullgraph:
            why = reasons[0] if reasons else "no reason was kept"
            raise RecompileLimit(
                f"{name} was compiled {limit} times and no entry accepts this call: {why}",
                where=where,
                instead="the call was not made",
                remedy="raise recompile_limit, pass dynamic=True, or keep what differs out of the function",
            )
        if not state.warned:
            state.warned = True
            emit(LimitReached(name, limit, reasons, where))
            listed = "\n  ".join(reasons)
            warnings.warn(
                f"{name} ({code.co_filename}:{code.co_firstlineno}) has reached recompile_limit={limit}; new cases run "
                f"uncompiled. Why each entry refused this call:\n  {listed}",
                stacklevel=3,
            )

    def _declared(self, owner: Any, frame: FrameInput) -> Any:
        from .declared_shapes import DeclaredShapes

        return DeclaredShapes(self.options.shapes_spec, owner.fn, frame, replacement.argument_names(frame.code))

    def _as_written(self, owner: Any, frame: FrameInput) -> Any:
        """What stands for a frame that can't be captured: its own code, with the functions it calls captured."""
        if owner is None or not self.options.nested:
            return None
        return _C.Entry(None, frame.code.replace(), False, EntryRecord([], None, frame.code))

    def _only_enters(self, owner: Any) -> bool:
        """True for the function of ours by which a module is called."""
        return "_core_entry" in getattr(getattr(owner, "fn", None), "__dict__", ())

    def _told_further_in(self, refusal: Unsupported, entry: Any, only_enters: bool) -> bool:
        """True for a break of a called frame, which tells it, where it ends no graph of this frame's."""
        return self.options.nested and refusal.met_again and (only_enters or not entry.user.ops)

    def _captured_entry(self, state: FrameState, frame: FrameInput, began: float, only_enters: bool) -> Any:
        stop: Stop | None = None
        refusal: Unsupported | None = None
        handled = sys.exc_info()[1]
        state.unbacked = True
        for attempt in range(MAX_RESTARTS):
            try:
                trace, tx, ending, closed = self._traced(state, frame, stop)
            except FoundBreak as found:
                if self._takes_symbols(state, found.refusal, handled):
                    continue
                if found.refusal is not None and self.options.fullgraph:
                    raise found.refusal from None
                stop, refusal = Stop(found.step), _without_frames(found.refusal, handled)
                if refusal is not None and refusal.left is not None:
                    self._left_to_python.add(refusal.left)
                _without_frames(found.__cause__, handled)  # that of the traced code holds its objects
                continue
            try:
                entry = self._entry(state, trace, ending, closed, began)
            except NotItsOwnCall:
                state.unbacked = False
                continue
            except DecidedByChance:
                state.draws = False
                continue
            except BackendError as failed:  # few backends take sizes without a value in every operation
                if state.without_symbols is not None:  # nor numbers of the data: then it is the break that it was
                    emit(FellBack("numbers of the data", failed.what))
                    raise state.without_symbols from failed
                if not trace.policy.opened:
                    raise
                emit(FellBack("sizes without a value", failed.what))
                state.unbacked = state.history.open_sizes = False
                continue
            except Unsupported as unwritable:  # what the traced code made can't be given back: stop before it is made
                stop = tx.earlier_stop(unwritable, attempt)
                if stop is None or self.options.fullgraph:
                    raise
                refusal = refusal or _without_frames(unwritable, handled)
                continue
            finally:
                trace.release()
            if not closed and refusal is not None and not self._told_further_in(refusal, entry, only_enters):
                emit(GraphBroken(refusal.what, refusal.where, refusal.remedy))
            return entry
        raise refusal or Unsupported("capture found a new break on every try", remedy="report this function")

    def _takes_symbols(self, state: FrameState, refusal: Unsupported | None, handled: BaseException | None) -> bool:
        """Whether to capture anew with symbols for what only the data knows: where a break is no way out."""
        asked = self.options.fullgraph and self.options.capture_scalar_outputs is None
        if not asked or state.scalars or not isinstance(refusal, NeedsSymbols):
            return False
        state.scalars, state.without_symbols = True, _without_frames(refusal, handled)
        return True

    def _traced(self, state: FrameState, frame: FrameInput, stop: Stop | None) -> tuple[Trace, Any, Any, bool]:
        """The trace, its interpreter at the end, how the code ends, and whether that is the end of the frame."""
        while True:
            trace = self._new_trace(state, frame)
            tx = self._root_interpreter(trace, stop)
            try:
                value = tx.run()
                refuse_waiting(trace.generators)
                return trace, tx, replacement.return_ending(trace, value, tx.current.position), True
            except BreakHere as here:
                return trace, tx, BreakWriter(tx, self.resumes, run=here.run).ending(), False
            except TraceAgain:
                trace.builder.abort()
                trace.release()
            except FoundBreak:
                trace.builder.abort()
                trace.release()
                if trace.policy.opened_by_itself:  # not at the price of a break
                    state.history.open_sizes = False
                    continue
                raise
            except BaseException:
                trace.builder.abort()
                trace.release()
                raise

    def _new_trace(self, state: FrameState, frame: FrameInput) -> Trace:
        builder = GraphBuilder(scalar_outputs=self.options.capture_scalar_outputs or state.scalars)
        trace = Trace(
            frame,
            self.options,
            CapturePolicy(state.history, self.options, state.entries >= CROWD, state.unbacked),
            builder,
            in_order=self.in_order,
        )
        trace.policy.draws = state.draws
        trace.policy.stepped = self.resumes.stepped(frame.code)
        if state.declared is not None:
            trace.policy.declare(state.declared)
        if config.audit_guards:
            trace.reads = {}
        # now, before the traced code switches anything
        trace.guard(None, GlobalState(_C.global_state_snapshot()), None, "torch's global state")
        if tensor_hooks.has_saved_tensor_hooks():
            trace.guard(None, Predicate((), tensor_hooks.saves_through_torch_itself), None, "saved-tensor hooks")
        return trace

    def _root_interpreter(self, trace: Trace, stop: Stop | None) -> RootInterpreter:
        frame = trace.frame
        tx = RootInterpreter(trace, frame.code, frame.globals, None, {}, (), stop=stop)
        for slot, (name, value) in enumerate(zip(replacement.argument_names(frame.code), frame.args)):
            tx.locals[name] = tx.lazy(value, LocalSource(name, slot))
        for index, (name, cell) in enumerate(zip(frame.code.co_freevars, frame.closure or ())):
            tx.cells[name] = tx.real_cell(cell, name, ClosureSource(name, index))
            if not isinstance(tx.cells[name], CellVariable):
                raise AssertionError(name)
        return tx

    # -- the entry -------------------------------------------------------------------------------------------------

    def _entry(self, state: FrameState, trace: Trace, ending: Any, closed: bool, began: float) -> Any:
        frame = trace.frame
        name = frame.code.co_qualname
        traced, backend = time.perf_counter(), 0.0

        def compile_graph(captured: CapturedGraph) -> Any:
            nonlocal backend
            start = time.perf_counter()
            if captured.needs_grad and trace.policy.opened_by_itself:
                raise NotItsOwnCall
            result = self.compile_graph(captured, name)
            backend = time.perf_counter() - start
            return result

        try:
            code, graph, decided = replacement.build(trace, ending, compile_graph)
        except BaseException:
            trace.builder.abort()
            raise
        if trace.draws and trace.builder.chance and trace.builder.chance.is_assumed(trace.builder.shape_env):
            raise DecidedByChance
        if decided is not None:
            self._graph_guards(trace, decided)
        trace.guard_unread()
        trace.guards.update(identity_guards(trace))
        trace.guards.update(class_guards(trace, state.history.changing_classes))
        program, guards = build_program(self._kept_guards(trace))
        call = (frame.args, frame.globals, frame.builtins, frame.closure)
        if trace.policy.opened and program.check(*call) >= 0:
            raise NotItsOwnCall
        if graph is None and closed and trace.side_effects.empty:
            code = frame.code.replace()  # nothing to compile: the code as it is, while these guards hold
        record = EntryRecord(guards, graph, frame.code)
        state.history.remember(trace.policy)
        state.entries += 1
        now = time.perf_counter()
        phases = (("trace", traced - began), ("backend", backend), ("guards and code", now - traced - backend))
        line = ending.position and ending.position.user_line(frame.code.co_filename)
        emit(FrameCaptured(name, line, len(guards), now - began, phases))
        emit(EntryMade(name, frame.code, code, tuple(guards), record.module))
        owners = holders_of_lifted(trace, graph) if graph is not None else ()
        if graph is not None:
            peer.keep_peer_out(code)  # torch.compile meets it where it calls what core compiled
        entry = _C.Entry(program, code, closed or not self.options.nested, record, None, owners)
        if trace.as_written is not None:
            trace.as_written.entry = weakref.ref(entry)
        return entry

    def _kept_guards(self, trace: Trace) -> Iterable[Guard]:
        if config.audit_guards:
            from .audit import unguarded_reads

            for read in unguarded_reads(trace):
                emit(read)
        if self.options.guard_filter is None:
            return trace.guards
        from ..guards.filter import filtered

        frame = trace.frame
        return filtered(
            trace.guards,
            self.options.guard_filter,
            FrameValues(frame.args, frame.globals, frame.builtins, frame.closure),
        )

    def _graph_guards(self, trace: Trace, graph: CapturedGraph) -> None:
        for guard in shape_guards(graph):
            trace.guards.add(guard)
        if graph.mutated:
            guard = memory_guard(trace)
            if guard is not None:
                trace.guards.add(guard)


class EntryRecord:
    """What an entry keeps for reports: its guards by instruction, its graph, the code it replaces."""

    def __init__(self, guards: list[Any], graph: CapturedGraph | None, code: types.CodeType) -> None:
        self.guards = guards
        self.module = graph.module if graph is not None else None
        self.ops = graph.ops if graph is not None else 0
        self.code_name = code.co_qualname


peer.keep_peer_out(FrameCompiler.__call__.__code__)  # a callee that torch.compile made brings its hook along
