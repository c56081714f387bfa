"""From a graph to an artifact: the model, its engine, the call on torch's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx
import torch
import torch.fx as fx
from core_onnx import Answer, ConversionError, Target, answer, convert
from core_onnx.division import ModelStep, Step, divided
from core_onnx.library import joined
from core_onnx.ports import Stored, calls_of, pack, ports_of, unpack

from core.plugin import Artifact, CompileContext, Unsupported

from . import __version__
from .calls import EngineCall
from .engine import Settings, open_engine
from .packing import PackedCall, packable, with_constants
from .runtime import runtime, target_of


def compile_graph(graph: fx.GraphModule, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Convert and open, in parts where torch computes between them. Raises Unsupported, CompileFailed."""
    target = target_of(ctx.device.partition(":")[0])
    frozen = _frozen(graph, ctx)
    try:
        return _artifact(*_converted(graph, target, frozen, ctx), ctx)
    except ConversionError:
        lent = {node for node in calls_of(graph) if refusal(answer(node, target))}
    steps = divided(graph, lent)
    parts = [step for step in steps if isinstance(step, ModelStep)]
    try:
        made = {step: _converted(step.graph, target, _passed_on(frozen, step), ctx) for step in parts}
    except ConversionError as error:
        raise Unsupported(sorted(lent) or calls_of(graph), str(error)) from error
    opened = {step: _artifact(*one, _inside(ctx, graph, step)) for step, one in made.items()}
    return _divided_artifact(graph, steps, opened, ctx)


def refusal(found: Answer) -> str:
    """Why the runtime can't compute what was asked about; "" where it can."""
    return "" if found.open else found.reason


def _converted(
    graph: fx.GraphModule, target: Target, frozen: Mapping[fx.Node, torch.Tensor], ctx: CompileContext
) -> tuple[Stored, Mapping[str, torch.Tensor]]:
    """What is stored of a graph, and the weights beside it."""
    inputs = _inputs(graph)
    weights = {at: frozen[node] for at, node in enumerate(inputs) if node in frozen}
    converted = convert(graph, target=target, frozen=weights, name=ctx.name)
    names = tuple(node.name for node in calls_of(graph))
    ports, outputs, model = ports_of(converted, graph), converted.outputs, converted.serialized()
    made = Stored(ports, len(inputs), outputs, names, model, converted.draws, converted.questions)
    return made, converted.external


def _inputs(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _frozen(graph: fx.GraphModule, ctx: CompileContext) -> dict[fx.Node, torch.Tensor]:
    """Weights that may be baked in, where the runtime can take them by pointer as they are."""
    if not ctx.frozen or ctx.device != "cpu":
        return {}
    inputs = _inputs(graph)
    return {
        inputs[index]: tensor.detach()
        for index, tensor in ctx.constants.items()
        if isinstance(tensor, torch.Tensor) and tensor.is_contiguous() and tensor.numel()
    }


def _passed_on(frozen: Mapping[fx.Node, torch.Tensor], step: ModelStep) -> dict[fx.Node, torch.Tensor]:
    """The weights of a whole graph that a part of it reads."""
    own = zip(_inputs(step.graph), step.inputs)
    return {inside: frozen[outside] for inside, outside in own if outside in frozen}


def _inside(ctx: CompileContext, graph: fx.GraphModule, step: ModelStep) -> CompileContext:
    """The context of a part of a graph: the places of its own inputs that are parameters."""
    weights = {node for at, node in enumerate(_inputs(graph)) if at in ctx.parameters}
    return replace(ctx, parameters=frozenset(at for at, node in enumerate(step.inputs) if node in weights))


def _divided_artifact(
    graph: fx.GraphModule, steps: Sequence[Step], parts: Mapping[ModelStep, Artifact], ctx: CompileContext
) -> Artifact:
    source, function = joined(graph, steps, {step: part.call for step, part in parts.items()}, ctx.name)
    provenance = {node.name: "library" for node in calls_of(graph)}
    for part in parts.values():
        provenance |= part.provenance
    native = sum(kind == "native" for kind in provenance.values())
    return OnnxRuntimeArtifact(
        call=function,
        kernels=native,
        extern_calls=len(provenance) - native,
        provenance=provenance,
        size_bytes=sum(part.size_bytes for part in parts.values()),
        describe=lambda: "\n\n".join([source, *(part.describe() for part in parts.values() if part.describe)]),
        made=None,
        device=ctx.device,
        owner=tuple(parts.values()),
    )


def _settings(ctx: CompileContext) -> Settings:
    options = ctx.options
    return Settings(
        device=ctx.device,
        provider=str(options.get("provider", "auto")),
        level=str(options.get("graph_optimization", "all")),
        threads=int(options.get("intra_op_threads", 0)),
        profile=str(options.get("profile", "")),
    )


def _artifact(made: Stored, external: Mapping[str, torch.Tensor], ctx: CompileContext) -> Artifact:
    settings, model = _settings(ctx), made.payload

    def engine() -> Any:
        return open_engine(model, external, settings, ctx.name)

    call = EngineCall(engine, made, ctx.device)
    packed = _packed(call, made, external, ctx)
    return OnnxRuntimeArtifact(
        call=packed.function if packed is not None else call.function,
        kernels=len(made.calls) - len(made.draws),
        extern_calls=len(made.draws),
        provenance=made.provenance,
        size_bytes=len(model),
        describe=lambda: "\n\n".join([*([packed.source] if packed is not None else []), call.source, _text(model)]),
        made=None if external else made,
        device=ctx.device,
        owner=call if packed is None else packed,
    )


def _packed(
    reading: EngineCall, made: Stored, external: Mapping[str, torch.Tensor], ctx: CompileContext
) -> PackedCall | None:
    """The call that has the weights of convolutions packed, where there are such."""
    if ctx.mode != "inference" or ctx.device != "cpu" or not ctx.options.get("pack_weights", True):
        return None
    if not ctx.parameters or b"Conv" not in made.payload:
        return None
    model = onnx.load_from_string(made.payload)
    given, results = made.ports
    ports = packable(model, given, ctx.parameters)
    if not ports:
        return None
    settings, rest = _settings(ctx), [port for port in given if port not in ports]

    def opened(constants: Mapping[str, torch.Tensor]) -> EngineCall:
        payload, weights = with_constants(model, constants), {**external, **constants}
        own = replace(made, ports=(rest, results), payload=payload)
        return EngineCall(lambda: open_engine(payload, weights, settings, ctx.name), own, ctx.device)

    return PackedCall(reading, opened, ports, made.count)


class OnnxRuntimeArtifact(Artifact):
    """An artifact that remembers its model, to be stored; `made` is None where that does not hold all of it: weights
    lie outside, or torch computes a part."""

    def __init__(self, *, made: Stored | None, device: str, owner: Any, **fields: Any) -> None:
        super().__init__(**fields)
        self.made = made
        self.device = device
        self.owner = owner  # alive as long as the call: a fork makes its engine again


def _text(model: bytes) -> str:
    return str(onnx.printer.to_text(onnx.load_from_string(model)))


def _marks(device: str) -> dict[str, str]:
    """What a model was converted for: which operators a runtime computes depends on its version and the device."""
    kind = device.partition(":")[0]
    return {"format": "core-onnxrt 4", "version": __version__, "runtime": runtime().__version__, "device": kind}


def stored(artifact: Artifact) -> bytes | None:
    """The model with what its call needs, or None for one that can't be stored."""
    if not isinstance(artifact, OnnxRuntimeArtifact) or artifact.made is None:
        return None
    return pack(artifact.made, _marks(artifact.device))


def restored(blob: bytes, ctx: CompileContext) -> Artifact | None:
    """The artifact of stored bytes, None for those of another version."""
    made = unpack(blob, _marks(ctx.device))
    return _artifact(made, {}, ctx) if made is not None else None
