"""From a graph to an artifact: the model, its engine, the call on torch's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from core_onnx import ConversionError, convert, unsupported_reason
from core_onnx.ports import Stored, calls_of, pack, ports_of, unpack

from core.plugin import Artifact, CompileContext, Unsupported

from . import __version__
from .calls import EngineCall
from .engine import Settings, open_engine
from .runtime import target_of

_MARKS = {"format": "core-onnxrt 3", "version": __version__}


def compile_graph(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Convert and open. Raises Unsupported with the nodes that have no ONNX form, CompileFailed for the runtime's."""
    target = target_of(ctx.device.partition(":")[0])
    try:
        converted = convert(graph, target=target, frozen=_frozen(ctx), name=ctx.name)
    except ConversionError as error:
        raise Unsupported([node for node in calls_of(graph) if unsupported_reason(node, target)], str(error)) from error
    names = tuple(node.name for node in calls_of(graph))
    made = Stored(
        ports_of(converted, graph),
        len(fake_inputs),
        converted.outputs,
        names,
        converted.serialized(),
        converted.draws,
        converted.questions,
    )
    return _artifact(made, converted.external, ctx)


def _frozen(ctx: CompileContext) -> dict[int, torch.Tensor]:
    """Weights that may be baked in, where the runtime can take them by pointer as they are."""
    if not ctx.frozen or ctx.device != "cpu":
        return {}
    return {
        index: tensor.detach()
        for index, tensor in ctx.constants.items()
        if isinstance(tensor, torch.Tensor) and tensor.is_contiguous() and tensor.numel()
    }


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
    return OnnxRuntimeArtifact(
        call=call.function,
        kernels=len(made.calls) - len(made.draws),
        extern_calls=len(made.draws),
        provenance=made.provenance,
        size_bytes=len(model),
        describe=lambda: call.source + "\n\n" + _text(model),
        made=None if external else made,
        owner=call,
    )


class OnnxRuntimeArtifact(Artifact):
    """An artifact that remembers its model, to be stored; `made` is None where weights lie outside of the model."""

    def __init__(self, *, made: Stored | None, owner: EngineCall, **fields: Any) -> None:
        super().__init__(**fields)
        self.made = made
        self.owner = owner  # alive as long as the call: a fork makes its engine again


def _text(model: bytes) -> str:
    import onnx

    return str(onnx.printer.to_text(onnx.load_from_string(model)))


def stored(artifact: Artifact) -> bytes | None:
    """The model with what its call needs, or None for one that can't be stored."""
    made = artifact.made if isinstance(artifact, OnnxRuntimeArtifact) else None
    return pack(made, _MARKS) if made is not None else None


def restored(blob: bytes, ctx: CompileContext) -> Artifact | None:
    """The artifact of stored bytes, None for those of another version."""
    made = unpack(blob, _MARKS)
    return _artifact(made, {}, ctx) if made is not None else None
