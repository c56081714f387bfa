"""Honest backends: slow, incomplete, and never wrong. A suite that fails them is too strict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.plugin import Artifact, CompileContext, Support, Unsupported

from .interpreter import Interpreted, overload_name

REFUSED = frozenset({"_softmax", "_log_softmax", "convolution", "native_layer_norm", "cumsum", "sort"})
"""Operators that the incomplete backend does not have."""


class HonestInterpreter(Interpreted):
    """Runs every node through torch's own kernels, and says that it calls a library."""

    name = "honest-interpreter"


class HonestButIncomplete(Interpreted):
    """Lacks some operators: it says so when asked, and refuses a graph that has them all the same."""

    name = "honest-but-incomplete"

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        if overload_name(node.target) in REFUSED:
            return Support("no", f"{overload_name(node.target)} is not implemented")
        return Support("library")

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        nodes = [node for node in graph.graph.nodes if overload_name(node.target) in REFUSED]
        if nodes:
            raise Unsupported(nodes, "not implemented")
        return super().compile(graph, fake_inputs, ctx)
