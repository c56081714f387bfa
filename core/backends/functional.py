"""Compiling the functional ATen graph of a capture: inference, or forward and backward of a training region.

Enters: CapturedGraph and a ResolvedBackend that wants functional graphs. Leaves: a callable `(*inputs) -> outputs` that
does everything the torch-level graph does. What the recorder refuses goes to AOTAutograd, and an event says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
import torch.fx as fx

from ..errors import RecorderRefused
from ..events import compiling
from ..graph.captured import CapturedGraph
from ..graph.decompose import decompose, named_table
from ..graph.finish import functional_graph
from ..graph.functional import FunctionalGraph, JointGraph
from ..graph.joint import joint_graph
from ..graph.partition import partition
from ..options import CompileOptions, strict
from .artifact import artifact_call, build_artifact, compile_context, first_line, graph_device
from .double_backward import EagerBackward
from .first_run import checked_once
from .inference_outputs import in_inference_mode, inference_places
from .resolved import ResolvedBackend
from .training import wrap_training
from .wrapper import CallState, wrap_inference

_Graph = TypeVar("_Graph", FunctionalGraph, JointGraph)


def compile_functional(
    captured: CapturedGraph, resolved: ResolvedBackend, options: CompileOptions, name: str
) -> Callable[..., tuple[Any, ...]]:
    """Compile a capture for a backend of graph level "aten-functional" or "core-aten"."""
    state = CallState.now((graph_device(captured),))
    try:
        places = inference_places(captured)
        if captured.needs_grad:
            joint = _decomposed(joint_graph(captured), captured, resolved, "forward")
            run = compile_training(captured, joint, resolved, options, name, state)
            return in_inference_mode(run, captured, places)
        functional = _decomposed(functional_graph(captured), captured, resolved, "inference")
    except RecorderRefused as refusal:
        if strict():
            raise
        from .aot_fallback import compile_refused

        return compile_refused(captured, resolved, options, name, refusal)
    run = compile_inference(captured, functional, resolved, options, name, state)
    return in_inference_mode(run, captured, places)


def _decomposed(graph: _Graph, captured: CapturedGraph, resolved: ResolvedBackend, mode: str) -> _Graph:
    """The graph in the operators that the backend asks for."""
    table: dict[Any, Callable[..., Any]] = {}
    if resolved.capabilities.graph_level == "core-aten":
        table.update(named_table("core"))
    own = resolved.decompositions(mode)
    if own:
        table.update(named_table(own) if isinstance(own, str) else own)
    if not table:
        return graph
    return replace(graph, module=decompose(graph.module, captured.fake_mode, captured.shape_env, table))


def compile_inference(
    captured: CapturedGraph,
    functional: FunctionalGraph,
    resolved: ResolvedBackend,
    options: CompileOptions,
    name: str,
    state: CallState,
) -> Callable[..., tuple[Any, ...]]:
    """One graph, one artifact, and the epilogue around it."""
    run = _artifact(captured, functional.module, resolved, options, name, "inference")
    requires_grad = [item.is_tensor and item.requires_grad for item in functional.inputs]
    return wrap_inference(run, functional.epilogue, captured.outputs, state, requires_grad)


def compile_training(
    captured: CapturedGraph,
    joint: JointGraph,
    resolved: ResolvedBackend,
    options: CompileOptions,
    name: str,
    state: CallState,
) -> Callable[..., tuple[Any, ...]]:
    """Partition, compile the forward now and the backward when its first gradient arrives."""
    parts = partition(joint)
    run_forward = _artifact(captured, parts.forward, resolved, options, name, "forward")

    def compile_backward() -> Callable[..., Any]:
        with compiling(f"the backward of {name}", first_line(captured)):
            return _artifact(captured, parts.backward, resolved, options, f"{name}_backward", "backward")

    replay = EagerBackward(captured, joint, parts, state)
    return wrap_training(joint, parts, captured.outputs, run_forward, compile_backward, replay, state)


def _artifact(
    captured: CapturedGraph,
    module: fx.GraphModule,
    resolved: ResolvedBackend,
    options: CompileOptions,
    name: str,
    mode: str,
) -> Callable[..., Any]:
    """One functional graph through the backend, its first results checked, its layouts kept."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    fakes = [node.meta["val"] for node in placeholders]
    expected = [value.meta["val"] if isinstance(value, fx.Node) else value for value in output_values(module)]
    strides = [tuple(fake.stride()) if _is_strided(fake) else None for fake in expected]
    held = _held_inputs(captured, module, placeholders, mode)
    ctx = compile_context(captured, resolved, options, mode=mode, name=name, output_strides=strides, parameters=held)
    artifact = build_artifact(resolved, module, fakes, ctx, first_line(captured))
    keep_layout = mode != "backward"  # autograd takes gradients of any layout
    return checked_once(artifact_call(artifact), expected, resolved.label, restore_layout=keep_layout)


def _held_inputs(captured: CapturedGraph, module: fx.GraphModule, placeholders: list[Any], mode: str) -> frozenset[int]:
    """Placeholders that are parameters or buffers; in the backward, saved inputs keep the joint graph's names."""
    held = [item.index for item in captured.inputs if item.is_parameter or item.is_buffer]
    if mode != "backward":
        return frozenset(held)
    wanted = {f"input_{index}" for index in held}
    return frozenset(at for at, node in enumerate(placeholders) if node.name in wanted)


def _is_strided(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.layout is torch.strided


def output_values(module: fx.GraphModule) -> tuple[Any, ...]:
    """The arguments of a graph's output node."""
    node = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return tuple(node.args[0])
