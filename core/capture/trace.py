"""Trace: what all interpreters of one capture share. The root frame and every call inlined into it write here."""

from __future__ import annotations

import types
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..errors import UserLine
from ..graph.builder import GraphBuilder
from ..guards.checks import TypeIs
from ..guards.guard import Guard, GuardSet
from ..guards.source import ConstSource
from ..options import CompileOptions
from ..variables.base import VariableTracker
from ..variables.unread import UnreadVariable
from .first_calls import is_drawn
from .side_effects import SideEffects


@dataclass(frozen=True)
class FrameInput:
    """The call to capture, as the C side hands it over: argument slots in the order of the code's varnames."""

    code: types.CodeType
    args: tuple[Any, ...]
    globals: dict[str, Any]
    builtins: dict[str, Any]
    closure: tuple[Any, ...] | None


@dataclass
class Trace:
    """Shared state of one capture."""

    frame: FrameInput
    options: CompileOptions
    policy: Any
    builder: GraphBuilder
    guards: GuardSet = field(default_factory=GuardSet)
    side_effects: SideEffects = field(default_factory=SideEffects)
    known: dict[int, VariableTracker] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)  # objects whose ids are keys of `known`
    exceptions: list[VariableTracker] = field(default_factory=list)  # being handled, innermost last
    constants: dict[int, VariableTracker] = field(default_factory=dict)  # tuples among those of traced code, by id
    inlined: set[types.CodeType] = field(default_factory=set)
    numbers: dict[str, VariableTracker] = field(default_factory=dict)  # symbolic numbers by the name of their source
    unreal: dict[int, int] = field(default_factory=dict)  # ids of what exists only while tracing: the step that made it
    assumptions: list[Any] = field(default_factory=list)  # truths of tensors; see assumptions.py
    in_order: bool = True  # the backend runs the graph as captured, writes and all; False: it writes at the end
    raises_into: str | None = None  # an operation that may raise inside a try; see caught_errors.py
    undoes: bool = False  # a failure of the graph has to undo its writes; see caught_errors.py
    as_written: Any = None  # the way out of the graph's call; see as_written.py
    made_again: dict[int, VariableTracker] = field(default_factory=dict)  # of those: classes that the code makes anew
    stand_ins: dict[int, Any] = field(default_factory=dict)  # by id of the tracker; see stand_ins.py
    references: dict[int, VariableTracker] = field(default_factory=dict)  # weak references, likewise
    proxies: dict[int, VariableTracker] = field(default_factory=dict)  # weak proxies by id of the tracker behind
    asked: dict[Any, Any] = field(default_factory=dict)  # sources of what cached functions gave, by call
    unread: list[tuple[UnreadVariable, UserLine | None]] = field(
        default_factory=list
    )  # literals, and where they came up
    reads: dict[int, UserLine | None] | None = None  # under config.audit_guards: where each object was first met
    interpreters: list[Any] = field(default_factory=list)  # of all calls in the frame
    before_graph: list[Any] = field(default_factory=list)  # calls before the graph's; see first_calls.py
    forks_over: bool = False  # torch's generator goes back to an earlier state behind the graph, which draws no more
    draws: list[Any] = field(default_factory=list)  # of those: random numbers of Python and NumPy
    generators: list[Any] = field(default_factory=list)  # those of the traced code
    frame_locals: dict[int, VariableTracker] = field(default_factory=dict)  # what locals() gave, by id of interpreter
    catching_warnings: int = 0  # blocks entered in which warnings are caught
    function_modes: list[VariableTracker] = field(default_factory=list)  # entered by the traced code, the top one last
    functions_off: int = 0  # regions entered in which no class takes torch's functions over
    depth: int = 0
    step: int = 0  # of the root frame
    grad_mode: bool = field(default_factory=torch.is_grad_enabled)  # at the start of the frame

    def guard(self, source: Any, check: Any, line: UserLine | None, reason: str = "") -> None:
        """Assume `check`; guards on a source that the traced code made are void and never arrive here."""
        if source is not None and (self.unreal and self.is_unreal(source) or self.draws and is_drawn(source)):
            return
        self.guards.add(Guard(source, check, line, reason))

    def is_unreal(self, source: Any) -> bool:
        """Whether a source starts at an object that exists only while tracing."""
        root = source.root()
        return isinstance(root, ConstSource) and id(root.value) in self.unreal

    def remember(self, value: Any, tracker: VariableTracker) -> VariableTracker:
        """Make `tracker` the one tracker of the real object `value`."""
        self.known[id(value)] = tracker
        self.kept.append(value)
        return tracker

    def unread_literal(self, value: Any, source: Any, check: Any, line: UserLine | None) -> VariableTracker:
        """The tracker of a literal that `check` makes part of the entry once its value is read."""

        def on_read() -> None:
            if type(value) in (int, float):
                self.policy.numbers[source.name()] = value
            self.guard(source, check, line)

        tracker = UnreadVariable(value, source, on_read)
        self.unread.append((tracker, line))
        return tracker

    def guard_unread(self) -> None:
        """At the end of capture: the types of the literals that were handed on without a look at their values."""
        for tracker, line in self.unread:
            if tracker.unread:
                self.guard(tracker.source, TypeIs(tracker.python_type()), line)

    def release(self) -> None:
        """Let go of the program's objects once the code is made: trackers and interpreters know each other in circles,
        and the objects would live until the garbage collector comes by."""
        for interpreter in self.interpreters:
            interpreter.release()
        for tracker in self.known.values():
            payload = getattr(tracker, "payload", None)
            if payload is not None:
                payload.payload_of = None
        self.frame = replace(self.frame, args=(), closure=None)
        for held in (
            self.interpreters,
            self.generators,
            self.known,
            self.kept,
            self.exceptions,
            self.numbers,
            self.unread,
            self.draws,
            self.before_graph,
        ):
            held.clear()
        for table in (self.references, self.proxies, self.constants):
            table.clear()
        self.side_effects.release()
