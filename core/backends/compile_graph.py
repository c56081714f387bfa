"""From a captured graph to a callable: picks the graph level the backend asks for, calls the plugin, reports.

Enters: CapturedGraph, backend, CompileOptions. Leaves: a positional callable `(*inputs) -> tuple of outputs`. It must
not know how a frame is captured, nor how any backend works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..events import GraphCaptured, emit
from ..graph.captured import CapturedGraph
from ..options import CompileOptions
from .artifact import artifact_call, build_artifact, compile_context, first_line, graph_device
from .first_run import checked_once
from .functional import compile_functional
from .registry import resolve_backend
from .resolved import ResolvedBackend
from .restored_modes import restoring


def compile_graph(
    captured: CapturedGraph, backend: Any, options: CompileOptions, *, name: str = "graph"
) -> Callable[..., tuple[Any, ...]]:
    """Compile a captured graph. `backend` is whatever `resolve` of the registry takes, or a ResolvedBackend.

    The returned callable takes the graph's inputs in order and returns its outputs as a tuple; it has an attribute
    `followers` (see first_run.checked_once). Raises the errors CORE-B001 to CORE-B007.
    """
    resolved = backend if isinstance(backend, ResolvedBackend) else resolve_backend(backend)
    resolved.require_device(graph_device(captured).partition(":")[0])
    resolved.require_mode(training=captured.needs_grad)
    emit(GraphCaptured(name, captured.ops, resolved.name, captured.module, captured))
    build = _LEVELS[resolved.capabilities.graph_level]
    return build(captured, resolved, options, name)


def _compile_torch_level(
    captured: CapturedGraph, resolved: ResolvedBackend, options: CompileOptions, name: str
) -> Callable[..., tuple[Any, ...]]:
    """The torch graph goes to the backend as it is: autograd, mutation and aliasing happen by themselves."""
    mode = "forward" if captured.needs_grad else "inference"
    ctx = compile_context(captured, resolved, options, mode=mode, name=name)
    fakes = [graph_input.fake for graph_input in captured.inputs]
    artifact = build_artifact(resolved, captured.module, fakes, ctx, first_line(captured))
    return checked_once(restoring(captured, artifact_call(artifact)), captured.outputs, resolved.label)


_LEVELS = {"torch": _compile_torch_level, "aten-functional": compile_functional, "core-aten": compile_functional}
