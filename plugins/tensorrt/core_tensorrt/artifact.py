"""From a graph to an artifact: the engine, the call on torch's memory, the bytes to store."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from core_onnx import OnnxGraph
from core_onnx.ports import Stored, calls_of, pack, ports_of, unpack

from core.plugin import Artifact, CompileContext, CompileFailed

from . import __version__
from .build import Built, Settings, build_model, model_of
from .calls import EngineCall
from .driver import capability_of
from .engines import Engine
from .profiles import require_elements
from .runtimes import Choice, choose

KEPT = 8
"""Engines whose bytes are kept for the next weights, the ones used last."""
_kept: collections.OrderedDict[str, Built] = collections.OrderedDict()


def choice_for(ctx: CompileContext) -> Choice:
    """The product for a graph. Raises CompileFailed where there is none."""
    wanted = str(ctx.options.get("compute_capability", "")) or capability_of(ctx.device)
    choice = choose(str(ctx.options.get("runtime", "auto")), wanted)
    if not choice.module:
        raise CompileFailed("finding TensorRT", choice.reason)
    return choice


def settings_of(ctx: CompileContext, module: str) -> Settings:
    """The options of a context, and the process's own flag of TF32."""
    options = ctx.options
    limits = [int(options.get("workspace_bytes", 0)), ctx.workspace_limit_bytes or 0]
    return Settings(
        module=module,
        compute_capability=str(options.get("compute_capability", "")),
        workspace=min((limit for limit in limits if limit), default=0),
        level=int(options.get("optimization_level", -1)),
        tf32=ctx.precision == "eager" and torch.backends.cuda.matmul.allow_tf32,
        refit=bool(options.get("refit", False)),
    )


def compile_graph(graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
    """Convert, build and open. Raises Unsupported and CompileFailed as `build_engine`."""
    settings = settings_of(ctx, choice_for(ctx).module)
    require_elements(fake_inputs)
    model = model_of(graph, frozen_of(ctx), ctx.name)
    built, engine = engine_for(model, fake_inputs, ctx, settings)
    names = tuple(node.name for node in calls_of(graph))
    made = Stored(ports_of(model, graph), len(fake_inputs), model.outputs, names, b"")
    return _artifact(engine, made, ctx, len(built.engine), built.profile)


def frozen_of(ctx: CompileContext) -> dict[int, torch.Tensor]:
    """Weights that may be baked in, in the CPU's memory, where the builder reads them."""
    if not ctx.frozen:
        return {}
    return {
        index: tensor.detach().cpu().contiguous()
        for index, tensor in ctx.constants.items()
        if isinstance(tensor, torch.Tensor) and tensor.numel()
    }


def engine_for(
    model: OnnxGraph, fake_inputs: Sequence[Any], ctx: CompileContext, settings: Settings
) -> tuple[Built, Engine]:
    """An engine of the model: with `refit`, one built before for other weights is given these."""
    if not (settings.refit and model.external):
        built = build_model(model, fake_inputs, ctx.ranges, settings)
        return built, Engine(settings.module, built.engine)
    text = f"{settings} {sorted(ctx.ranges.items())} {ctx.device}"
    key = hashlib.sha256(text.encode() + model.serialized()).hexdigest()
    known = _kept.get(key)
    if known is not None:
        _kept.move_to_end(key)
        engine = Engine(settings.module, known.engine)
        if engine.refit(model):
            return known, engine
    built = _kept[key] = build_model(model, fake_inputs, ctx.ranges, settings)
    while len(_kept) > KEPT:
        _kept.popitem(last=False)
    return built, Engine(settings.module, built.engine)


def _artifact(engine: Engine, made: Stored, ctx: CompileContext, size: int, profile: Mapping[str, Any]) -> Artifact:
    given, results = made.ports
    ports = (engine.ports(given), engine.ports(results))
    call = EngineCall(engine.context, engine.failure, ports, made.count, made.outputs, ctx.device)
    lines = [f"{name}: {' .. '.join(map(str, shapes))}" for name, shapes in profile.items()]
    return TensorRtArtifact(
        call=call.function,
        kernels=len(made.calls),
        provenance=dict.fromkeys(made.calls, "native"),
        size_bytes=size,
        describe=lambda: "\n".join([call.source, f"engine of {engine.layers} layers", *lines]),
        engine=engine,
        made=made,
    )


class TensorRtArtifact(Artifact):
    """An artifact that remembers its engine, to be stored."""

    def __init__(self, *, engine: Engine, made: Stored, **fields: Any) -> None:
        super().__init__(**fields)
        self.engine = engine
        self.made = made


def _marks(module: str) -> dict[str, str]:
    return {"format": "core-tensorrt 2", "version": __version__, "module": module}


def stored(artifact: Artifact) -> bytes | None:
    """The engine with what its call needs, or None for one that can't be stored."""
    if not isinstance(artifact, TensorRtArtifact):
        return None
    engine = artifact.engine
    return pack(replace(artifact.made, payload=engine.serialized()), _marks(engine.module))


def restored(blob: bytes, ctx: CompileContext) -> Artifact | None:
    """The artifact of stored bytes, None for those of another version, product or GPU."""
    module = choice_for(ctx).module
    made = unpack(blob, _marks(module))
    if made is None:
        return None
    try:
        engine = Engine(module, made.payload)
    except CompileFailed:
        return None  # the library tells engines of another version or GPU
    return _artifact(engine, made, ctx, len(made.payload), {})
