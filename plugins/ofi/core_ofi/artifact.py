"""From a graph to an artifact: the optimised program, called with the inputs that it still takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from core.plugin import Artifact, CompileContext

from .torch_compat import direct
from .torchscript import optimised


def compile_graph(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Trace, freeze, optimise; raises CompileFailed."""
    program, kept = optimised(graph, fake_inputs, ctx)
    names = ", ".join(f"i{at}" for at in range(len(fake_inputs)))
    source = f"def compiled({names}):\n    return _program({', '.join(f'i{at}' for at in kept)})"
    # The program is called through its C++ method: the module around it is Python.
    namespace: dict[str, Any] = {"_program": direct(program)}
    exec(compile(source, f"<ofi call of {ctx.name}>", "exec"), namespace)
    calls = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    return Artifact(
        call=namespace["compiled"],
        extern_calls=len(calls),
        provenance=dict.fromkeys(calls, "library"),
        size_bytes=sum(value.nbytes for value in ctx.constants.values() if isinstance(value, torch.Tensor)),
        describe=lambda: source + "\n\n" + program.code,
    )
