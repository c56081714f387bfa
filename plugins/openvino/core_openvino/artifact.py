"""From a graph to an artifact: models compiled for the CPU device, calls of ATen between them, on torch's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from core_onnx import ConversionError, convert
from core_onnx.division import ModelStep, divided
from core_onnx.library import joined
from core_onnx.ports import calls_of, ports_of

from core.plugin import Artifact, CompileContext, CompileFailed, Unsupported

from .calls import ModelCall, is_seen
from .runtime import core, target


def compile_graph(graph: fx.GraphModule, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Divide, convert, compile. Raises Unsupported with the nodes at fault, CompileFailed with the runtime's words."""
    from .plugin import refusal

    names = [node.name for node in calls_of(graph)]
    lent = {node for node in calls_of(graph) if refusal(node)}
    if not lent:
        call = _model_call(graph, _frozen(graph, ctx), ctx)
        return Artifact(
            call=call.function,
            kernels=len(names) - len(call.draws),
            extern_calls=len(call.draws),
            provenance=call.provenance(graph),
            describe=lambda: call.source,
        )
    steps = divided(graph, lent)
    frozen = _frozen(graph, ctx)
    models = {
        step: _model_call(step.graph, frozen_of(step, frozen), ctx) for step in steps if isinstance(step, ModelStep)
    }
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


def _inputs(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _frozen(graph: fx.GraphModule, ctx: CompileContext) -> dict[fx.Node, torch.Tensor]:
    """Weights that may be baked in, in memory that the device can read as it is."""
    if not ctx.frozen:
        return {}
    inputs = _inputs(graph)
    return {
        inputs[index]: tensor.detach()
        for index, tensor in ctx.constants.items()
        if isinstance(tensor, torch.Tensor) and tensor.is_contiguous() and tensor.numel() and is_seen(tensor.dtype)
    }


def frozen_of(step: ModelStep, frozen: Mapping[fx.Node, torch.Tensor]) -> dict[fx.Node, torch.Tensor]:
    """The weights of a whole graph that a part of it reads, by the part's own inputs."""
    own = zip(_inputs(step.graph), step.inputs)
    return {inside: frozen[outside] for inside, outside in own if outside in frozen}


def _with_constants(model: Any, frozen: Mapping[str, torch.Tensor]) -> Any:
    """The model with inputs turned into constants, which lie where the weights do."""
    from openvino import opset13

    for parameter in list(model.get_parameters()):
        weight = frozen.get(parameter.output(0).get_any_name())
        if weight is not None:
            constant = opset13.constant(weight.numpy(), shared_memory=True)
            parameter.output(0).replace(constant.output(0))
            model.remove_parameter(parameter)
    model.validate_nodes_and_infer_types()
    return model


def _model_call(graph: fx.GraphModule, frozen: Mapping[fx.Node, torch.Tensor], ctx: CompileContext) -> ModelCall:
    from .plugin import refusal

    try:
        converted = convert(graph, target=target(), name=ctx.name)
    except ConversionError as error:
        raise Unsupported([node for node in calls_of(graph) if refusal(node)], str(error)) from error
    threads = int(ctx.options.get("threads", 0)) or torch.get_num_threads()
    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        **({"NUM_STREAMS": 0} if threads == 1 else {}),  # no pool: a model of one thread runs in the caller's
        **dict(ctx.options.get("config", {})),
    }
    try:
        model = core().read_model(converted.serialized())
        if frozen:
            named = zip(converted.inputs, _inputs(graph))
            weights = {name: frozen[node] for name, node in named if node in frozen}
            model = _with_constants(model, weights)
        compiled = core().compile_model(model, "CPU", config)
    except Exception as error:  # noqa: BLE001  the runtime raises plain RuntimeError and others
        raise CompileFailed("compiling the model", str(error)) from error
    count = sum(node.op == "placeholder" for node in graph.graph.nodes)
    return ModelCall(compiled, ports_of(converted, graph), converted, count)
