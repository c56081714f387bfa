"""What core tells a backend: graphs, fake inputs and contexts, noted on their way; and a compile asked for directly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import NodesUnclaimed
from core.plugin import Artifact, CompileContext

from .subject import Subject


@dataclass
class Asked:
    """One call of the backend's `compile`, and what it returned."""

    graph: Any
    fakes: Sequence[Any]
    ctx: CompileContext
    artifact: Artifact | None = None


@contextlib.contextmanager
def recording(subject: Subject) -> Iterator[list[Asked]]:
    """Note every compile that core asks the subject's backend for while the block runs."""
    asked: list[Asked] = []
    inner = subject.resolved.compile

    def compile_and_note(graph: Any, fakes: Sequence[Any], ctx: CompileContext) -> Any:
        note = Asked(graph, fakes, ctx)
        asked.append(note)
        note.artifact = inner(graph, fakes, ctx)
        return note.artifact

    subject.resolved.compile = compile_and_note
    try:
        yield asked
    finally:
        subject.resolved.compile = inner


def asked_for(subject: Subject, program: Callable[..., Any], *inputs: Any, **options: Any) -> list[Asked]:
    """What the backend is asked when `program` is compiled and called once with `inputs`.

    One that left all of it to the fallback is asked again with nobody else there: it may have yielded.
    """
    with recording(subject) as asked:
        subject.compile(program, **options)(*inputs)
        if not asked:
            with contextlib.suppress(NodesUnclaimed):
                subject.compile(program, **{**options, "fallback": ()})(*inputs)
    return asked


def calculating(graph: Any) -> list[Any]:
    """The call nodes of a graph."""
    return [node for node in graph.graph.nodes if node.op.startswith("call_")]
