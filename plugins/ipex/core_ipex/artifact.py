"""From a graph to an artifact: its fusions, its generated call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from core.plugin import Artifact, CompileContext, Finding

from . import native
from .calls import RegionCall
from .fusions import Fusion, find, labels
from .torch_compat import has_bfloat16
from .weights import prepared


def compile_graph(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Find what can be fused, write the call, say what was fused."""
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    constants = {}
    if ctx.frozen:
        constants = {places[at]: value for at, value in ctx.constants.items() if isinstance(value, torch.Tensor)}
    fusions = []
    if ctx.options.get("fusions", True) and torch.backends.mkldnn.enabled:
        own = bool(constants) and _native(ctx)
        fusions = _prepared(find(graph.graph, constants, has_bfloat16()), constants, own)
        unfolded = [fusion.norm for fusion in fusions if fusion.norm is not None and fusion.ready is None]
        if unfolded:
            fusions = _prepared(find(graph.graph, constants, has_bfloat16(), unfolded), constants, own)
    packed = sum(fusion.native for fusion in fusions)
    call = RegionCall(graph, fusions, ctx.name)
    if fusions:
        ctx.report(Finding("info", f"oneDNN computes {', '.join(labels(fusions))}"))
    if packed:
        ctx.report(Finding("info", f"native: {packed} of them by kernels of the extension {native.installed()}"))
    calls = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    return Artifact(
        call=call.function,
        extern_calls=call.calls,
        provenance=dict.fromkeys(calls, "library"),
        size_bytes=call.baked,
        describe=lambda: call.source,
    )


def _native(ctx: CompileContext) -> bool:
    """Whether the extension's kernels are called for frozen weights; says so where they should be and can't."""
    if not ctx.options.get("native", True) or not native.installed():
        return False
    reason = native.unusable()
    if reason:
        ctx.report(Finding("warning", f"the kernels of the extension {native.installed()} can't be called ({reason})"))
    return not reason


def _prepared(fusions: list[Fusion], constants: dict[Any, torch.Tensor], own: bool) -> list[Fusion]:
    for fusion in fusions:
        if fusion.weight in constants and (fusion.bias is None or fusion.bias in constants):
            fusion.native = own
            fusion.ready = prepared(fusion, constants)
            fusion.native = own and fusion.ready is not None
    return fusions
