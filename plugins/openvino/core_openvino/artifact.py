"""From a graph to an artifact: the model, compiled for the CPU device, and its call on torch's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from core_onnx import ConversionError, convert
from core_onnx.ports import calls_of, ports_of

from core.plugin import Artifact, CompileContext, CompileFailed, Unsupported

from .calls import ModelCall
from .runtime import core, target


def compile_graph(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Convert and compile. Raises Unsupported with the nodes at fault, CompileFailed with the runtime's words."""
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
    call = ModelCall(compiled, ports_of(converted, graph), converted.outputs, len(fake_inputs))
    names = [node.name for node in calls_of(graph)]
    return Artifact(
        call=call.function,
        kernels=len(names),
        provenance=dict.fromkeys(names, "native"),
        describe=lambda: call.source,
    )
