"""Explanation: what one compile did, gathered from events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import events
from ..settings import config


@dataclass
class Explanation:
    """The events of one call, sorted. `result` is what the call returned."""

    result: Any = None
    frames: list[events.FrameCaptured] = field(default_factory=list)
    entries: list[events.EntryMade] = field(default_factory=list)
    graphs: list[events.GraphCaptured] = field(default_factory=list)
    breaks: list[events.GraphBroken] = field(default_factory=list)
    recompiles: list[events.Recompiled] = field(default_factory=list)
    limits: list[events.LimitReached] = field(default_factory=list)
    skipped: list[events.FrameSkipped] = field(default_factory=list)
    fallbacks: list[events.FellBack] = field(default_factory=list)
    artifacts: list[events.ArtifactBuilt] = field(default_factory=list)
    choices: list[events.AutoDecided] = field(default_factory=list)
    findings: list[events.BackendReported] = field(default_factory=list)
    partitions: list[events.Partitioned] = field(default_factory=list)
    unguarded: list[events.UnguardedRead] = field(default_factory=list)

    @property
    def graph_count(self) -> int:
        """Number of graphs."""
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        """Number of graph breaks."""
        return len(self.breaks)

    @property
    def op_count(self) -> int:
        """Number of torch-level calls in all graphs."""
        return sum(graph.ops for graph in self.graphs)

    @property
    def guards(self) -> list[Any]:
        """The guards of every entry, each once; `str()` of one is the statement and the user's line."""
        return list(dict.fromkeys(guard for entry in self.entries for guard in entry.guards))

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of the whole by phase: tracing, the backend, guards and code."""
        total: dict[str, float] = {}
        for frame in self.frames:
            for name, seconds in frame.phases:
                total[name] = total.get(name, 0.0) + seconds
        return total

    def add(self, event: events.Event) -> None:
        """Sort one event in."""
        place = _PLACES.get(type(event))
        if place is not None:
            getattr(self, place).append(event)

    def __str__(self) -> str:
        lines = [f"{len(self.graphs)} graphs with {self.op_count} operations, {len(self.breaks)} graph breaks"]
        for item in self.breaks:
            lines.append(f"  break at {item.line}: {item.reason}")
            if item.remedy:
                lines.append(f"    remedy: {item.remedy}")
        for recompiled in self.recompiles:
            lines.append(f"  recompiled {recompiled.function}: {'; '.join(recompiled.reasons)}")
        for limit in self.limits:
            lines.append(f"  {limit.function} reached its limit of {limit.limit} entries; new cases run as written")
        for frame in self.frames:
            split = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in frame.phases)
            lines.append(f"  {frame.function}: {frame.guards} guards, {frame.seconds * 1e3:.1f} ms ({split})")
        for skipped in self.skipped:
            lines.append(f"  skipped {skipped.function}: {skipped.reason}")
        for fallback in self.fallbacks:
            lines.append(f"  {fallback.stage} fell back: {fallback.reason}")
        for artifact in self.artifacts:
            lines.append(
                f"  {artifact.backend}, {artifact.mode}: {artifact.kernels} kernels, {artifact.extern_calls} calls of "
                f"torch's own, {artifact.seconds * 1e3:.1f} ms"
            )
        for partition in self.partitions:
            lines.extend(_partition_lines(partition))
        for choice in self.choices:
            lines += auto_lines(choice)
        for report in self.findings:
            lines.append(f"  {report.backend} says: {report.finding.text}")
        for read in self.unguarded:
            lines.append(f"  no guard looks at {read.what}, read at {read.line}: {read.reason}")
        for guard in self.guards:
            lines.append(f"  guard: {guard}")
        return "\n".join(lines)


def _partition_lines(partition: events.Partitioned) -> Iterator[str]:
    """Who compiled what of a divided graph, and why somebody didn't."""
    yield f"  {partition.function}, {partition.mode}: {len(partition.regions)} regions"
    for at, region in enumerate(partition.regions):
        kind = " (fallback)" if region.fallback else ""
        yield f"    {at}: {region.backend}{kind}, {region.share:.0%} of the cost: {', '.join(region.nodes)}"
    for refused in partition.refused:
        place = f" at {refused.line}" if refused.line else ""
        yield f"    {refused.backend} does not take {refused.node} ({refused.operator}{place}): {refused.reason}"


def auto_lines(choice: events.AutoDecided) -> list[str]:
    """The table of one choice of backend="auto"."""
    origin = " (stored)" if choice.stored else ""
    lines = [f"  auto, {choice.function}: {choice.winner}{origin}" + (f"; {choice.reason}" if choice.reason else "")]
    if choice.trials:
        lines.append(f"    {'candidate':20} {'coverage':>8} {'error':>7} {'compile s':>9} {'run us':>9}  reason lost")
    for trial in choice.trials:
        numbers = (
            _number(trial.coverage, 8, ".0%"),
            _number(trial.error_ratio, 7, ".2f"),
            _number(trial.compile_s, 9, ".2f"),
            _number(trial.run_us, 9, ".1f"),
        )
        lines.append(f"    {trial.backend:20} {' '.join(numbers)}  {trial.reason}".rstrip())
    return lines


def _number(value: float | None, width: int, form: str) -> str:
    return f"{format(value, form) if value is not None else '-':>{width}}"


_PLACES = {
    events.AutoDecided: "choices",
    events.FrameCaptured: "frames",
    events.EntryMade: "entries",
    events.GraphCaptured: "graphs",
    events.GraphBroken: "breaks",
    events.Recompiled: "recompiles",
    events.LimitReached: "limits",
    events.FrameSkipped: "skipped",
    events.FellBack: "fallbacks",
    events.ArtifactBuilt: "artifacts",
    events.Partitioned: "partitions",
    events.UnguardedRead: "unguarded",
    events.BackendReported: "findings",
}


@contextmanager
def listening(sink: Callable[[events.Event], None]) -> Iterator[None]:
    """Hand events to `sink` for as long as the block runs."""
    unsubscribe = events.subscribe(sink)
    try:
        yield
    finally:
        unsubscribe()


def explained(make: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """Compile what `make` makes, call it, and say what happened."""
    explanation = Explanation()
    with listening(explanation.add), config.patch(auto_calls=1):
        explanation.result = make()(*args, **kwargs)
    return explanation
