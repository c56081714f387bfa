"""Honest backends: slow, incomplete, in another order, and never wrong. A suite that fails them is too strict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from core.plugin import Artifact, CompileContext, Support, Unsupported

from .interpreter import Interpreted, Program, overload_name

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


class HonestInAnotherOrder(Interpreted):
    """Adds up from the other end: products, sums and softmax are as precise as torch's, and seldom the same bits."""

    name = "honest-in-another-order"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = overload_name(target)
        first = args[0] if args else None
        if not isinstance(first, torch.Tensor) or first.dtype not in (torch.float32, torch.float64):
            return target(*args, **kwargs)
        if kind in ("mm", "bmm"):
            return target(first.flip(-1), args[1].flip(-2))
        if kind in ("sum", "mean", "var") and len(args) > 1 and args[1]:
            return target(first.flip(args[1]), *args[1:], **kwargs)
        if kind == "_softmax":
            powers = torch.exp(first - first.amax(args[1], keepdim=True))
            return powers / powers.flip(args[1]).sum(args[1], keepdim=True)
        if kind == "_softmax_backward_data":
            grad, result, dim = args[:3]
            return result * (grad - (grad * result).flip(dim).sum(dim, keepdim=True))
        return target(*args, **kwargs)
