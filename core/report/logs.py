"""CORE_LOGS: events as text on the standard error stream.

Enters: events. Leaves: text for people, a header line and the lines under it in one write. With the variable unset
nothing is subscribed, and no text is ever made.
"""

from __future__ import annotations

import dis
import os
import sys
import threading
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import _C
from ..backends.generated import source_of
from ..errors import InvalidOption
from ..events import (
    ArtifactBuilt,
    BackendReported,
    CallCaptured,
    EntryMade,
    Event,
    FellBack,
    FrameSkipped,
    GraphBroken,
    GraphCaptured,
    LimitReached,
    Recompiled,
    UnguardedRead,
    subscribe,
)

VARIABLE = "CORE_LOGS"


class Log:
    """A sink that prints the events of some channels."""

    def __init__(self, channels: Iterable[str]) -> None:
        self.channels = frozenset(channels)

    def __call__(self, event: Event) -> None:
        for channel in _CHANNELS_OF.get(type(event), ()):
            if channel in self.channels:
                header, lines = CHANNELS[channel][type(event)](event)
                _write([f"[core {channel}] {header}", *(f"  {line}".rstrip() for line in lines)])


def _write(lines: Sequence[str]) -> None:
    if sys.stderr is not None:
        sys.stderr.write("\n".join(lines) + "\n")


Text = tuple[str, Iterable[str]]


def _graph(event: Any) -> Text:
    code = str(getattr(event.graph, "code", "")).strip()
    calls = [node for node in event.graph.graph.nodes if "user_line" in node.meta]
    places = [f"{node.name}: {node.meta['user_line']}" for node in calls]
    return f"{event.function}: {event.ops} operations for {event.backend}", [*code.splitlines(), *places]


def _guards(event: Any) -> Text:
    lines = [str(guard) for guard in dict.fromkeys(event.guards)]  # a guard of several instructions stands there twice
    return f"{event.function}: {len(lines)} guards", lines


def _code(event: Any) -> Text:
    lines = ["as written:", *_disassembled(event.original), "runs as:", *_disassembled(event.code)]
    for constant in event.code.co_consts:
        if isinstance(constant, _C.BoundGraph):
            lines += ["the graph is called through:", *_source(constant.fn)]
    return event.function, lines


def _disassembled(code: types.CodeType) -> list[str]:
    return dis.Bytecode(code).dis().splitlines()


def _source(function: Any) -> list[str]:
    return source_of(function).splitlines() if isinstance(function, types.FunctionType) else [repr(function)]


def _break(event: Any) -> Text:
    return f"{event.reason} at {event.line}", [f"remedy: {event.remedy}"] if event.remedy else []


def _skipped(event: Any) -> Text:
    return f"{event.function} runs as written: {event.reason}", []


def _fell_back(event: Any) -> Text:
    return f"{event.stage} fell back: {event.reason}" + (f" at {event.line}" if event.line else ""), []


def _recompiled(event: Any) -> Text:
    return event.function, event.reasons


def _limit(event: Any) -> Text:
    return f"{event.function} ({event.line}) holds {event.limit} entries; new cases run as written", event.reasons


def _unguarded(event: Any) -> Text:
    return f"no guard looks at {event.what}", [f"read at {event.line}: {event.reason}"]


def _reported(event: Any) -> Text:
    finding = event.finding
    remedy = [f"remedy: {finding.remedy}"] if finding.remedy else []
    return f"{event.backend}, {finding.level}: {finding.text}", remedy


def _kernels(event: Any) -> Text:
    header = f"{event.backend}, {event.mode}: {event.kernels} kernels, {event.extern_calls} calls of torch's own"
    describe = getattr(event.artifact, "describe", None)
    return f"{header}, {event.seconds * 1e3:.1f} ms", describe().splitlines() if describe is not None else []


def _captured(event: Any) -> Text:
    copied, parameters, same, pooled = event.inputs
    read = f"{copied} inputs copied; read in place: {parameters} parameters, {same} others, {pooled} kept results"
    return f"{event.function} captured in {event.seconds * 1e3:.1f} ms: {event.size_bytes} bytes", [read]


CHANNELS: Mapping[str, Mapping[type[Event], Callable[[Any], Text]]] = {
    "graph": {GraphCaptured: _graph},
    "guards": {EntryMade: _guards, UnguardedRead: _unguarded},
    "breaks": {GraphBroken: _break, FrameSkipped: _skipped, FellBack: _fell_back},
    "recompiles": {Recompiled: _recompiled, LimitReached: _limit},
    "code": {EntryMade: _code},
    "kernels": {ArtifactBuilt: _kernels, BackendReported: _reported, CallCaptured: _captured},
}
"""Channel -> event -> the function that words it."""

_CHANNELS_OF: dict[type[Event], list[str]] = {}
for _channel, _events in CHANNELS.items():
    for _event in _events:
        _CHANNELS_OF.setdefault(_event, []).append(_channel)

# State shared between threads, under _lock: the text that is being followed and the end of its subscription.
_lock = threading.Lock()
_followed = ""
_stop: Callable[[], None] | None = None


def channels(text: str) -> tuple[str, ...]:
    """The channels that a text such as `graph,breaks` or `all` names. Raises InvalidOption for an unknown one."""
    named = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in named if name not in CHANNELS and name != "all"]
    if unknown:
        raise InvalidOption(
            f"{VARIABLE} names {', '.join(map(repr, unknown))}",
            instead="nothing was compiled",
            remedy=f"use some of {', '.join(CHANNELS)}, separated by commas, or all",
        )
    return tuple(CHANNELS) if "all" in named else named


def follow_environment() -> None:
    """Print what CORE_LOGS asks for now. Called by compile(), which reads the variable each time."""
    global _followed, _stop
    text = os.environ.get(VARIABLE, "")
    with _lock:
        if text == _followed:
            return
        wanted = channels(text)
        if _stop is not None:
            _stop()
        _stop = subscribe(Log(wanted)) if wanted else None
        _followed = text
