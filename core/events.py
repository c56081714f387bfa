"""Typed events and their sinks: the only road from the machinery to reports, counters and logs.

Enters: frozen event objects from any layer. Leaves: totals for `stats()` and calls of subscribed sinks.
State shared between threads: `_totals` and `_sinks`, both under `_lock`. This module must not know who listens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .errors import UserLine

COUNTERS = ("frames", "graphs", "ops", "breaks", "recompiles", "skipped", "kernels", "extern_calls")


@dataclass(frozen=True)
class Event:
    """Something that happened. `counts` says what it adds to the totals of `stats()`."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {}


@dataclass(frozen=True)
class FrameCaptured(Event):
    """One frame was traced to its end or to a break."""

    function: str
    line: UserLine | None = None
    guards: int = 0
    seconds: float = 0.0
    phases: tuple[tuple[str, float], ...] = ()
    """(name, seconds) of each part of the time: tracing, the backend, guards and code."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {"frames": 1}


@dataclass(frozen=True)
class CompileBegan(Event):
    """A thread started to compile a function; compiles nest, each has its CompileEnded on the same thread."""

    function: str
    line: UserLine | None = None


@dataclass(frozen=True)
class CompileEnded(Event):
    """The compile that began last on this thread is over, with or without a result."""

    function: str


@dataclass(frozen=True)
class EntryMade(Event):
    """A frame got a compiled entry: the code that stands in for `original`, and the guards it runs under."""

    function: str
    original: object = field(repr=False, compare=False)
    code: object = field(repr=False, compare=False)
    guards: tuple[object, ...] = field(default=(), repr=False, compare=False)
    graph: object = field(default=None, repr=False, compare=False)
    """The torch-level graph module of the entry, None where there is nothing to compute."""


@dataclass(frozen=True)
class GraphCaptured(Event):
    """A graph was handed to a backend. `ops` counts its call nodes."""

    function: str
    ops: int
    backend: str
    graph: object = field(default=None, repr=False, compare=False)
    captured: object = field(default=None, repr=False, compare=False)
    """The graph.captured.CapturedGraph itself; its record is read by the backend after this event."""

    @property
    def counts(self) -> Mapping[str, int]:
        return {"graphs": 1, "ops": self.ops}


@dataclass(frozen=True)
class GraphBroken(Event):
    """Capture stopped at a user line and goes on behind it."""

    reason: str
    line: UserLine | None
    remedy: str = ""

    @property
    def counts(self) -> Mapping[str, int]:
        return {"breaks": 1}


@dataclass(frozen=True)
class Recompiled(Event):
    """No entry of a callable accepted a call; `reasons` has one line an entry."""

    function: str
    reasons: tuple[str, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        return {"recompiles": 1}


@dataclass(frozen=True)
class LimitReached(Event):
    """A callable holds as many entries as it may; new cases run as written. Once for each callable.

    reasons: one line an entry, why it refused the call that asked for one more.
    """

    function: str
    limit: int
    reasons: tuple[str, ...]
    line: UserLine | None = None


@dataclass(frozen=True)
class UnguardedRead(Event):
    """With config.audit_guards: a capture relied on something that no guard of its entry looks at.

    what: the object or the way to it; line: where the traced code read it; reason: why it may change unseen.
    """

    what: str
    line: UserLine | None
    reason: str


@dataclass(frozen=True)
class FrameSkipped(Event):
    """A frame runs in plain Python."""

    function: str
    reason: str

    @property
    def counts(self) -> Mapping[str, int]:
        return {"skipped": 1}


@dataclass(frozen=True)
class ArtifactBuilt(Event):
    """A backend compiled a graph."""

    backend: str
    mode: str
    kernels: int = 0
    extern_calls: int = 0
    seconds: float = 0.0
    artifact: object = field(default=None, repr=False, compare=False)

    @property
    def counts(self) -> Mapping[str, int]:
        return {"kernels": self.kernels, "extern_calls": self.extern_calls}


@dataclass(frozen=True)
class BackendReported(Event):
    """A backend said something through the report of its context. finding: a core.plugin.Finding."""

    backend: str
    finding: Any


@dataclass(frozen=True)
class CallCaptured(Event):
    """A call of a compiled graph was captured in a CUDA graph, which later calls replay.

    inputs: how many of its tensors are copied on each call, are parameters, were the same object before, and are
    results of another capture; size_bytes: of its buffers and results; seconds: that the capture took.
    """

    function: str
    inputs: tuple[int, ...]
    size_bytes: int = 0
    seconds: float = 0.0
    line: UserLine | None = None


@dataclass(frozen=True)
class RegionShare:
    """A region of a divided graph: who compiled which nodes, their share of the estimated cost from 0 to 1, and whether
    that backend is one of the fallback."""

    backend: str
    nodes: tuple[str, ...]
    share: float
    fallback: bool = False


@dataclass(frozen=True)
class NodeRefused:
    """A backend does not have a node, and why. operator: as the graph names it; line: the user's."""

    node: str
    operator: str
    line: UserLine | None
    backend: str
    reason: str


@dataclass(frozen=True)
class Partitioned(Event):
    """A graph was divided among backends, or went to another than the first. mode: "inference", "forward" or
    "backward"; regions: in the order in which they run; refused: one entry a node and backend that does not have it."""

    function: str
    mode: str
    regions: tuple[RegionShare, ...]
    refused: tuple[NodeRefused, ...] = ()

    @property
    def fallback_share(self) -> float:
        """The share of the estimated cost that fell back."""
        return sum(region.share for region in self.regions if region.fallback)


@dataclass(frozen=True)
class Trial:
    """One row of the table of backend="auto".

    coverage: the share of the graph's cost that the backend runs itself; error_ratio: its error as a multiple of
    eager's; compile_s: seconds until its first result; run_us: microseconds of a run, with its backward in training;
    None where it did not get so far. reason: why it lost, empty for the winner.
    """

    backend: str
    coverage: float | None = None
    error_ratio: float | None = None
    compile_s: float | None = None
    run_us: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class AutoDecided(Event):
    """backend="auto" chose for one graph. reason: why nothing was measured; stored: an earlier process decided."""

    function: str
    winner: str
    trials: tuple[Trial, ...]
    reason: str = ""
    stored: bool = False
    line: UserLine | None = None


@dataclass(frozen=True)
class FellBack(Event):
    """Something took a slower road than asked for; `stage` names the machinery, `reason` says why."""

    stage: str
    reason: str
    line: UserLine | None = None


_lock = threading.Lock()
_totals: dict[str, int] = dict.fromkeys(COUNTERS, 0)
_sinks: list[Callable[[Event], None]] = []


def emit(event: Event) -> None:
    """Add the event's counts to the totals and hand it to every sink, in order of subscription."""
    with _lock:
        for name, amount in event.counts.items():
            _totals[name] = _totals.get(name, 0) + amount
        sinks = tuple(_sinks)
    for sink in sinks:
        sink(event)


@contextmanager
def compiling(function: str, line: UserLine | None = None) -> Iterator[None]:
    """Say that a compile began and, however it ends, that it is over."""
    emit(CompileBegan(function, line))
    try:
        yield
    finally:
        emit(CompileEnded(function))


def subscribe(sink: Callable[[Event], None]) -> Callable[[], None]:
    """Call `sink` with each later event; the returned function ends that."""
    with _lock:
        _sinks.append(sink)

    def unsubscribe() -> None:
        with _lock:
            if sink in _sinks:
                _sinks.remove(sink)

    return unsubscribe


def totals() -> dict[str, int]:
    """A copy of the totals since the last reset."""
    with _lock:
        return dict(_totals)


def reset_totals() -> None:
    """Set every total to zero."""
    with _lock:
        _totals.clear()
        _totals.update(dict.fromkeys(COUNTERS, 0))
