"""From one graph to one artifact: what the backend is told, the call into the plugin, errors with its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import BackendError, BackendFailed, UserLine
from ..events import ArtifactBuilt, BackendReported, emit
from ..graph.captured import CapturedGraph
from ..graph.decompose import named_table
from ..options import CompileOptions
from ..plugin import Artifact, CompileContext, CompileFailed, PluginBug, Unsupported
from .generated import compile_source
from .resolved import ResolvedBackend
from .symbolic import size_ranges


def graph_device(captured: CapturedGraph) -> str:
    """The device of the graph's tensors: the first that is not the CPU, else "cpu"."""
    values = [graph_input.fake for graph_input in captured.inputs] + list(captured.outputs)
    devices = [str(value.device) for value in values if isinstance(value, torch.Tensor)]
    return next((device for device in devices if device != "cpu"), "cpu")


def first_line(captured: CapturedGraph) -> UserLine | None:
    """The user line of the graph's first call."""
    return next(iter(captured.lines.values()), None)


def compile_context(
    captured: CapturedGraph,
    resolved: ResolvedBackend,
    options: CompileOptions,
    *,
    mode: str,
    name: str,
    output_strides: Sequence[tuple[Any, ...] | None] = (),
    parameters: frozenset[int] | None = None,
) -> CompileContext:
    """What the backend is told about the graph. `parameters` defaults to the captured graph's own inputs."""
    if parameters is None:
        parameters = frozenset(i.index for i in captured.inputs if i.is_parameter or i.is_buffer)
    return CompileContext(
        device=graph_device(captured),
        mode=mode,
        shape_env=captured.shape_env,
        options=resolved.validate_options(resolved.with_mode(options.backend_options, options.mode)),
        precision=options.precision,
        deterministic=torch.are_deterministic_algorithms_enabled(),
        output_strides=tuple(output_strides),
        parameters=parameters,
        report=lambda finding: emit(BackendReported(resolved.name, finding)),
        name=name,
        tuning=options.mode or "default",
        ranges=size_ranges(captured),
        deadline_s=options.deadline_s,
        isolated=options.isolate == "process" and resolved.capabilities.serializable,
    )


def decomposition_table(resolved: ResolvedBackend, mode: str) -> dict[Any, Callable[..., Any]]:
    """The operators that a backend wants taken apart, with the functions that do it."""
    table: dict[Any, Callable[..., Any]] = {}
    if resolved.capabilities.graph_level == "core-aten":
        table.update(named_table("core"))
    own = resolved.decompositions(mode)
    if own:
        table.update(named_table(own) if isinstance(own, str) else own)
    return table


def build_artifact(
    resolved: ResolvedBackend, graph: Any, fakes: Sequence[Any], ctx: CompileContext, where: UserLine | None
) -> Artifact:
    """Have the plugin compile one graph and emit ArtifactBuilt. Raises BackendFailed or PluginBug with its name."""
    began = time.perf_counter()
    try:
        with resolved.compile_lock:
            artifact = _compiled(resolved, graph, fakes, ctx)
    except BackendError:
        raise
    except Unsupported as error:
        raise _failed(resolved, f"does not support this graph: {error}", where, "choose another backend") from error
    except CompileFailed as error:
        raise _failed(resolved, f"failed: {error}", where, "see the compiler's log above") from error
    except Exception as error:  # the plugin boundary: whatever comes out of it is named after the plugin and raised
        raise _plugin_bug(resolved, f"raised {type(error).__name__} while compiling: {error}", where, error) from error
    if not isinstance(artifact, Artifact) or not callable(artifact.call):
        raise _plugin_bug(resolved, f"returned {type(artifact).__name__}, not a core.plugin.Artifact", where)
    seconds = time.perf_counter() - began
    emit(ArtifactBuilt(resolved.name, ctx.mode, artifact.kernels, artifact.extern_calls, seconds, artifact))
    return artifact


def _compiled(resolved: ResolvedBackend, graph: Any, fakes: Sequence[Any], ctx: CompileContext) -> Artifact:
    if not resolved.capabilities.serializable:
        return resolved.compile(graph, fakes, ctx)
    from .stored import compiled_or_stored

    return compiled_or_stored(resolved, graph, fakes, ctx, lambda: _compiled_now(resolved, graph, fakes, ctx))


def _compiled_now(resolved: ResolvedBackend, graph: Any, fakes: Sequence[Any], ctx: CompileContext) -> Artifact:
    if not ctx.isolated:
        return resolved.compile(graph, fakes, ctx)
    from .isolation import compile_isolated

    return compile_isolated(resolved, graph, fakes, ctx)


def artifact_call(artifact: Artifact) -> Callable[..., Any]:
    """The artifact as a flat positional callable."""
    call = artifact.call
    if isinstance(call, torch.fx.GraphModule):
        call = call.forward  # the generated code itself, without the module call around it
    if artifact.boxed:
        source = ("def compiled(*inputs):", "    return run(list(inputs))")
        return compile_source(source, {"run": call}, "compiled")
    return call


def _failed(resolved: ResolvedBackend, what: str, where: UserLine | None, remedy: str) -> BackendFailed:
    return BackendFailed(f"backend {resolved.label} {what}", where=where, instead="nothing was compiled", remedy=remedy)


def _plugin_bug(
    resolved: ResolvedBackend, what: str, where: UserLine | None, error: Exception | None = None
) -> BackendFailed:
    if not resolved.distribution:  # a callable or object of the user's own
        return _failed(resolved, what, where, "the error below is the backend's own")
    return PluginBug(
        f"backend {resolved.label} {what}",
        dist=resolved.distribution,
        version=resolved.version,
        issues_url=resolved.issues,
        where=where,
        instead="nothing was compiled",
        remedy=resolved.remedy_of(error),
    )
