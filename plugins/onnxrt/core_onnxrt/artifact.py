"""From a graph to an artifact: the model, its engine, the call on torch's memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from core_onnx import ConversionError, OnnxGraph, convert, unsupported_reason

from core.plugin import Artifact, CompileContext, Unsupported

from . import __version__
from .calls import EngineCall, Port, ports_of
from .engine import Settings, open_engine
from .runtime import target_of

_FORMAT = "core-onnxrt 1"


def compile_graph(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Convert and open. Raises Unsupported with the nodes that have no ONNX form, CompileFailed for the runtime's."""
    target = target_of(ctx.device.partition(":")[0])
    weights = _frozen(ctx)
    try:
        converted = convert(graph, target=target, frozen=weights, name=ctx.name)
    except ConversionError as error:
        raise Unsupported(_refused(graph, target), str(error)) from error
    output = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    fakes = [value.meta["val"] if isinstance(value, torch.fx.Node) else value for value in output.args[0]]
    ports = ports_of(converted, fake_inputs, fakes)
    calls = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    return _artifact(
        converted.serialized(), converted.external, ports, len(fake_inputs), converted.outputs, ctx, calls, converted
    )


def _frozen(ctx: CompileContext) -> dict[int, torch.Tensor]:
    """Weights that may be baked in, where the runtime can take them by pointer as they are."""
    if not ctx.frozen or ctx.device != "cpu":
        return {}
    return {
        index: tensor.detach()
        for index, tensor in ctx.constants.items()
        if isinstance(tensor, torch.Tensor) and tensor.is_contiguous() and tensor.numel()
    }


def _refused(graph: Any, target: Any) -> list[Any]:
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    return [node for node in calls if unsupported_reason(node, target)]


def _settings(ctx: CompileContext) -> Settings:
    options = ctx.options
    return Settings(
        device=ctx.device,
        provider=str(options.get("provider", "auto")),
        level=str(options.get("graph_optimization", "all")),
        threads=int(options.get("intra_op_threads", 0)),
        profile=str(options.get("profile", "")),
    )


def _artifact(
    model: bytes,
    external: Mapping[str, torch.Tensor],
    ports: tuple[list[Port], list[Port]],
    count: int,
    outputs: Sequence[Any],
    ctx: CompileContext,
    calls: list[str],
    converted: OnnxGraph | None = None,
) -> Artifact:
    settings = _settings(ctx)
    call = EngineCall(lambda: open_engine(model, external, settings, ctx.name), ports, count, outputs, ctx.device)
    return OnnxRuntimeArtifact(
        call=call.function,
        kernels=len(calls),
        provenance=dict.fromkeys(calls, "native"),
        size_bytes=len(model),
        describe=lambda: call.source + "\n\n" + _text(model),
        model=model,
        state={"ports": ports, "count": count, "outputs": list(outputs), "calls": calls, "external": bool(external)},
        owner=call,
    )


class OnnxRuntimeArtifact(Artifact):
    """An artifact that remembers its model, to be stored."""

    def __init__(self, *, model: bytes, state: dict[str, Any], owner: EngineCall, **fields: Any) -> None:
        super().__init__(**fields)
        self.model = model
        self.state = state
        self.owner = owner  # alive as long as the call: a fork makes its engine again


def _text(model: bytes) -> str:
    import onnx

    return str(onnx.printer.to_text(onnx.load_from_string(model)))


def stored(artifact: Artifact) -> bytes | None:
    """A header of JSON, then the model's bytes. None for one whose weights lie outside of the model."""
    if not isinstance(artifact, OnnxRuntimeArtifact) or artifact.state["external"]:
        return None
    state = artifact.state
    if not all(value is None or isinstance(value, (str, int, float)) for value in state["outputs"]):
        return None
    ports = [[_port_data(port) for port in side] for side in state["ports"]]
    header = {"format": _FORMAT, "version": __version__, "ports": ports}
    header |= {key: state[key] for key in ("count", "outputs", "calls")}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + artifact.model


def _port_data(port: Port) -> list[Any]:
    return [port.index, port.name, str(port.dtype).removeprefix("torch."), port.sizes, port.number]


def restored(blob: bytes, ctx: CompileContext) -> Artifact | None:
    """The artifact of stored bytes, None for those of another version."""
    try:
        size = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + size])
        if header["format"] != _FORMAT or header["version"] != __version__:
            return None
        sides = [[_port(data) for data in side] for side in header["ports"]]
    except (ValueError, KeyError, TypeError):
        return None
    return _artifact(
        blob[8 + size :], {}, (sides[0], sides[1]), header["count"], header["outputs"], ctx, header["calls"]
    )


def _port(data: list[Any]) -> Port:
    index, name, dtype, sizes, number = data
    return Port(index, name, getattr(torch, dtype), None if sizes is None else tuple(sizes), number)
