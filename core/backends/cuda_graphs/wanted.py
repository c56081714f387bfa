"""Whether the call of an artifact is to be captured, and what captures it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch.fx as fx

from ...errors import UserLine
from ...events import FellBack, emit
from ...plugin import CUDA_GRAPH_MODES, Artifact, CompileContext
from ..resolved import ResolvedBackend
from .graph_options import GraphOptions
from .replayed import ReplayedCall, graphs_of
from .unsafe_nodes import first_unsafe


def with_cuda_graphs(
    call: Callable[..., Any],
    artifact: Artifact,
    resolved: ResolvedBackend,
    module: fx.GraphModule,
    fakes: Sequence[Any],
    ctx: CompileContext,
    *,
    passing: Collection[int] = (),
    where: UserLine | None = None,
) -> Callable[..., Any]:
    """`call`, captured and replayed where the options ask for it and the backend says that it may be.

    module, fakes: the graph and its inputs; passing: positions of results that core itself reads and lets go: those
    that a backward needs, that are written back to inputs, or that another region of the graph takes.
    """
    if not _asked(ctx):
        return call
    graphs = graphs_of(ctx.device)
    if graphs is None:
        return call  # a device without
    options = GraphOptions.of(ctx.options)
    reason, line = _refusal(artifact, resolved), where
    if not reason:
        reason, line = first_unsafe(module, graphs.device.device, custom=options.custom_operators)
    if reason:
        emit(FellBack("cudagraphs", f"{ctx.name} runs without a CUDA graph: {reason}", line or where))
        return call
    results = next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0]
    leased = frozenset(passing if options.copy_outputs else range(len(results)))
    return ReplayedCall(
        call,
        graphs,
        options,
        count=len(fakes),
        sized=[at for at, fake in enumerate(fakes) if isinstance(fake, torch.Tensor) and _has_symbols(fake)],
        numbers=[at for at, fake in enumerate(fakes) if not isinstance(fake, torch.Tensor)],
        parameters=frozenset(ctx.parameters),
        leased=leased,
        name=ctx.name,
        where=where,
    ).run


def _asked(ctx: CompileContext) -> bool:
    asked = ctx.options.get("cudagraphs")
    return asked is not None and (bool(asked) or ctx.tuning in CUDA_GRAPH_MODES)


def _refusal(artifact: Artifact, resolved: ResolvedBackend) -> str:
    declared = resolved.capabilities.cudagraph_safe
    if declared == "yes" or (declared == "per-artifact" and artifact.cudagraph_safe):
        return ""
    return f"backend {resolved.label} does not declare that a call of it may be captured"


def _has_symbols(fake: torch.Tensor) -> bool:
    strides = fake.stride() if fake.layout is torch.strided else ()
    return not all(isinstance(size, int) for size in (*fake.shape, *strides))
