"""From a graph to an artifact: models compiled for the CPU device, calls of ATen between them, on torch's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from core_onnx import ConversionError, convert
from core_onnx.division import ModelStep, divided
from core_onnx.library import joined
from core_onnx.ports import calls_of, ports_of

from core.plugin import Artifact, CompileContext, CompileFailed, Unsupported

from .calls import ModelCall
from .runtime import core, target


def compile_graph(graph: fx.GraphModule, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Divide, convert, compile. Raises Unsupported with the nodes at fault, CompileFailed with the runtime's words."""
    from .plugin import refusal

    names = [node.name for node in calls_of(graph)]
    lent = {node for node in calls_of(graph) if refusal(node)}
    if not lent:
        call = _model_call(graph, ctx)
        return Artifact(
            call=call.function,
            kernels=len(names) - len(call.draws),
            extern_calls=len(call.draws),
            provenance=call.provenance(graph),
            describe=lambda: call.source,
        )
    steps = divided(graph, lent)
    models = {step: _model_call(step.graph, ctx) for step in steps if isinstance(step, ModelStep)}
    provenance = {name: "library" for name in names}
    for step, call in models.items():
        provenance |= call.provenance(step.graph)
    native = sum(kind == "native" for kind in provenance.values())
    calls = {step: call.function for step, call in models.items()}
    source, function = joined(graph, steps, calls, ctx.name)
    return Artifact(
        call=function,
        kernels=native,
        extern_calls=len(names) - native,
        provenance=provenance,
        describe=lambda: "\n\n".join([source, *(call.source for call in models.values())]),
    )


def _model_call(graph: fx.GraphModule, ctx: CompileContext) -> ModelCall:
    from .plugin import refusal

    try:
        converted = convert(graph, target=target(), name=ctx.name)
    except ConversionError as error:
        raise Unsupported([node for node in calls_of(graph) if refusal(node)], str(error)) from error
    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": int(ctx.options.get("threads", 0)) or torch.get_num_threads(),
        **dict(ctx.options.get("config", {})),
    }
    try:
        model = core().read_model(converted.serialized())
        compiled = core().compile_model(model, "CPU", config)
    except Exception as error:  # noqa: BLE001  the runtime raises plain RuntimeError and others
        raise CompileFailed("compiling the model", str(error)) from error
    count = sum(node.op == "placeholder" for node in graph.graph.nodes)
    return ModelCall(compiled, ports_of(converted, graph), converted, count)
