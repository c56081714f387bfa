"""Guards on which inputs share memory and which objects are the same, for code that changes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..guards.checks import NoOverlap, NotSameAs, Predicate
from ..guards.guard import Guard
from ..variables.wrapper_class import memory_of
from .first_calls import is_drawn
from .trace import Trace


@dataclass(frozen=True)
class MemoryPattern:
    """How tensors lie in memory relative to each other.

    places: for each tensor the first one on the same storage, and the bytes between their starts.
    """

    places: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> MemoryPattern:
        """The pattern of real tensors."""
        first: dict[int, tuple[int, int]] = {}
        places = []
        for index, tensor in enumerate(tensors):
            start = tensor.storage_offset() * tensor.element_size()
            owner, origin = first.setdefault(tensor.untyped_storage()._cdata, (index, start))
            places.append((owner, start - origin))
        return cls(tuple(places))

    def __call__(self, *tensors: torch.Tensor) -> bool:
        return MemoryPattern.of(tensors) == self


def memory_guard(trace: Trace) -> Guard | None:
    """A graph that writes an input is right only while its inputs share memory as they did at capture."""
    found = {
        id(tracker.real): tracker  # type: ignore[attr-defined]
        for tracker in trace.known.values()
        if tracker.kind == "tensor"
        and tracker.source is not None
        and tracker.real is not None  # type: ignore[attr-defined]
        and not is_drawn(tracker.source)
    }
    memory = {s: t for tracker in found.values() for s, t in memory_of(tracker.real, tracker.source)}  # type: ignore[attr-defined]
    if len(memory) < 2:
        return None
    sources = tuple(memory)
    pattern = MemoryPattern.of(list(memory.values()))
    if all(owner == index for index, (owner, _) in enumerate(pattern.places)):
        return Guard(None, NoOverlap(sources))
    return Guard(None, Predicate(sources, pattern))


def identity_guards(trace: Trace) -> Iterator[Guard]:
    """An object that the code changed must not be another argument of the same kind in a later call."""
    others = {id(t): t for t in trace.known.values() if t.source is not None and t.mutable and not is_drawn(t.source)}
    for tracker in trace.side_effects.changed():
        for other in others.values():
            if tracker.source is None or is_drawn(tracker.source) or other is tracker or other.kind != tracker.kind:
                continue
            if tracker.kind == "cell":
                continue  # the cells of a closure are what its code makes them; their sources lead to the contents
            if _type_of(other) is _type_of(tracker):
                yield Guard(other.source, NotSameAs(tracker.source))


def _type_of(tracker: Any) -> type:
    kind: type = tracker.python_type()
    return kind
