"""From a graph to an artifact: the optimised program, called with the inputs that it still takes.

A program that fails is followed by torch's own calls of the graph, which raise what eager raises: TorchScript's errors
are all of one class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from core.plugin import Artifact, CompileContext, Finding

from .claims import refusal
from .torch_compat import direct
from .torchscript import optimised


def compile_graph(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Trace, freeze, optimise; raises CompileFailed."""
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    names = ", ".join(f"i{at}" for at in range(len(fake_inputs)))
    untraced = {node: reason for node in calls if (reason := refusal(node))}
    if untraced:
        first, reason = next(iter(untraced.items()))
        ctx.report(Finding("info", f"not traced, as torch's own calls: {reason} ({first})"))
        return _artifact(calls, graph.forward, ctx, lambda: graph.code)
    program, kept = optimised(graph, fake_inputs, ctx)
    given = ", ".join(f"i{at}" for at in kept)
    source = f"""def compiled({names}):
    try:
        return _program({given})
    except RuntimeError:
        return _graph({names})"""
    # The program is called through its C++ method: the module around it is Python.
    namespace: dict[str, Any] = {"_program": direct(program), "_graph": graph.forward}
    exec(compile(source, f"<ofi call of {ctx.name}>", "exec"), namespace)
    return _artifact(calls, namespace["compiled"], ctx, lambda: source + "\n\n" + program.code)


def _artifact(
    calls: Sequence[Any], call: Callable[..., Any], ctx: CompileContext, describe: Callable[[], str]
) -> Artifact:
    return Artifact(
        call=call,
        extern_calls=len(calls),
        provenance=dict.fromkeys((node.name for node in calls), "library"),
        size_bytes=sum(value.nbytes for value in ctx.constants.values() if isinstance(value, torch.Tensor)),
        describe=describe,
    )
