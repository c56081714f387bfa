"""From a graph to an artifact: the Relax program, compiled by LLVM, and its call on torch's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from core.plugin import Artifact, CompileContext, CompileFailed, Finding, Unsupported

from .calls import ProgramCall
from .convert import Conversion, calls_of, refusal
from .pipeline import compiled
from .registry import Refused

WORDS = 2000
"""Characters of TVM's own message that are shown: its last, behind the program."""


def compile_graph(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Convert and compile. Raises Unsupported with the nodes at fault, CompileFailed with TVM's words."""
    calls = calls_of(graph)
    conversion = Conversion(graph)
    try:
        program = conversion.run()
    except Refused as error:
        if any(refusal(node) for node in conversion.nodes_at_fault):
            return _as_it_is(graph, calls, str(error), ctx)
        raise Unsupported(conversion.nodes_at_fault, str(error)) from error
    try:
        executable = compiled(program, ctx)
    except Exception as error:  # noqa: BLE001  TVM raises its own errors, and Python's
        raise CompileFailed("compiling with TVM", f"{str(error)[-WORDS:]}\n{remedy(ctx)}") from error
    call = ProgramCall(executable.machine, program, len(fake_inputs), ctx.name)
    names = [node.name for node in calls]
    return Artifact(
        call=call.function,
        kernels=executable.kernels,
        provenance=dict.fromkeys(names, "native"),
        size_bytes=sum(value.nbytes for value in program.constants if isinstance(value, torch.Tensor)),
        describe=lambda: f"{call.source}\n\n{executable.text}",
    )


def _as_it_is(graph: Any, calls: Sequence[Any], reason: str, ctx: CompileContext) -> Artifact:
    """The graph as torch's own calls: core hands over what is yielded only where nobody else may take it."""
    ctx.report(Finding("info", f"not compiled, as torch's own calls: {reason}"))
    return Artifact(
        call=graph.forward,
        extern_calls=len(calls),
        provenance=dict.fromkeys((one.name for one in calls), "library"),
        describe=lambda: graph.code,
    )


def remedy(ctx: CompileContext) -> str:
    """What a user can do where TVM's own compiler failed."""
    changed = [name for name in ("mcpu", "trials") if ctx.options.get(name)]
    if changed:
        return f"Try without the options {', '.join(changed)}, or use another backend."
    return "Set the option `schedule` to False, or use another backend; TVM's own words are above."
