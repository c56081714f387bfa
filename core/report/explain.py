"""Explanation: what one compile did, gathered from events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import events


@dataclass
class Explanation:
    """The events of one call, sorted. `result` is what the call returned."""

    result: Any = None
    frames: list[events.FrameCaptured] = field(default_factory=list)
    graphs: list[events.GraphCaptured] = field(default_factory=list)
    breaks: list[events.GraphBroken] = field(default_factory=list)
    recompiles: list[events.Recompiled] = field(default_factory=list)
    skipped: list[events.FrameSkipped] = field(default_factory=list)
    fallbacks: list[events.FellBack] = field(default_factory=list)
    artifacts: list[events.ArtifactBuilt] = field(default_factory=list)

    @property
    def graph_count(self) -> int:
        """Number of graphs."""
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        """Number of graph breaks."""
        return len(self.breaks)

    def add(self, event: events.Event) -> None:
        """Sort one event in."""
        place = _PLACES.get(type(event))
        if place is not None:
            getattr(self, place).append(event)

    def __str__(self) -> str:
        ops = sum(graph.ops for graph in self.graphs)
        lines = [f"{len(self.graphs)} graphs with {ops} operations, {len(self.breaks)} graph breaks"]
        for item in self.breaks:
            lines.append(f"  break at {item.line}: {item.reason}")
            if item.remedy:
                lines.append(f"    remedy: {item.remedy}")
        for recompiled in self.recompiles:
            lines.append(f"  recompiled {recompiled.function}: {'; '.join(recompiled.reasons)}")
        for frame in self.frames:
            lines.append(f"  {frame.function}: {frame.guards} guards, {frame.seconds * 1e3:.1f} ms")
        for skipped in self.skipped:
            lines.append(f"  skipped {skipped.function}: {skipped.reason}")
        for fallback in self.fallbacks:
            lines.append(f"  {fallback.stage} fell back: {fallback.reason}")
        return "\n".join(lines)


_PLACES = {
    events.FrameCaptured: "frames",
    events.GraphCaptured: "graphs",
    events.GraphBroken: "breaks",
    events.Recompiled: "recompiles",
    events.FrameSkipped: "skipped",
    events.FellBack: "fallbacks",
    events.ArtifactBuilt: "artifacts",
}


def explained(make: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """Compile what `make` makes, call it, and say what happened."""
    explanation = Explanation()
    unsubscribe = events.subscribe(explanation.add)
    try:
        explanation.result = make()(*args, **kwargs)
    finally:
        unsubscribe()
    return explanation
