"""From a captured graph to a callable: picks the graph level the backend asks for, calls the plugin, reports.

Enters: CapturedGraph, backend, CompileOptions. Leaves: a positional callable `(*inputs) -> tuple of outputs`. It must
not know how a frame is captured, nor how any backend works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import BackendFailed
from ..events import FellBack, GraphCaptured, emit
from ..graph.captured import CapturedGraph
from ..options import CompileOptions
from .artifact import artifact_call, build_artifact, compile_context, first_line
from .fallback import Lineup, as_lineup
from .first_run import checked_once
from .functional import compile_functional
from .passes import run_passes
from .precision import in_precision
from .resolved import ResolvedBackend
from .restored_modes import restoring
from .symbolic import bound_sizes, plain_fakes, specialise, with_plain_sizes


def compile_graph(
    captured: CapturedGraph, backend: Any, options: CompileOptions, *, name: str = "graph", announce: bool = True
) -> Callable[..., tuple[Any, ...]]:
    """Compile a captured graph. `backend` is whatever `resolve` of the registry takes, a ResolvedBackend or a Lineup.

    The returned callable takes the graph's inputs in order and returns its outputs as a tuple; it has an attribute
    `followers` (see first_run.checked_once). announce: say that a graph was captured, which is once. Raises the
    errors CORE-B001 to CORE-B007 and CORE-B015 to CORE-B017.
    """
    lineup = as_lineup(backend, options)
    chooser = getattr(lineup.first, "compile_captured", None)
    if chooser is not None and len(lineup.claimants) == 1:
        return chooser(captured, options, name, compile_graph)
    claimants = lineup.fit(captured)
    if any(resolved.capabilities.dynamic_shapes == "none" for resolved in claimants):
        specialise(captured)
    elif any(resolved.capabilities.dynamic_shapes == "bounded" for resolved in claimants):
        bound_sizes(captured)
    first = claimants[0] if claimants else lineup.first
    if announce:
        emit(GraphCaptured(name, captured.ops, first.name, captured.module, captured))
    while claimants and claimants[0].capabilities.graph_level == "torch":
        try:
            return _compile_torch_level(captured, claimants[0], lineup, name)
        except BackendFailed as failed:
            lineup.require_replacement(failed, claimants[1:], captured)
            claimants = claimants[1:]
    for resolved in claimants:
        if resolved.capabilities.graph_level == "torch":
            what = f"backend {resolved.label} takes whole torch graphs only, and one before it takes part of this one"
            emit(FellBack("backend", what, first_line(captured)))
    functional = [resolved for resolved in claimants if resolved.capabilities.graph_level != "torch"]
    return compile_functional(captured, lineup, functional, name)


def _compile_torch_level(
    captured: CapturedGraph, resolved: ResolvedBackend, lineup: Lineup, name: str
) -> Callable[..., tuple[Any, ...]]:
    """The torch graph goes to the backend as it is: autograd, mutation and aliasing happen by themselves."""
    mode = "forward" if captured.needs_grad else "inference"
    ctx = compile_context(captured, resolved, lineup.options_of(resolved), mode=mode, name=name)
    fakes = [graph_input.fake for graph_input in captured.inputs]
    module = run_passes(captured.module, "torch", captured)
    if resolved.capabilities.dynamic_shapes == "none":
        module, fakes = with_plain_sizes(module, captured.fake_mode), plain_fakes(fakes, captured.fake_mode)
    artifact = build_artifact(resolved, module, fakes, ctx, first_line(captured))
    run = in_precision(artifact_call(artifact), lineup.options.precision, guarded=True)
    return checked_once(restoring(captured, run), captured.outputs, resolved.label)
