"""From a graph to an artifact: the engine, the call on torch's memory, the bytes to store."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from core_onnx import OnnxGraph

from core.plugin import Artifact, CompileContext, CompileFailed

from . import __version__
from .build import Built, Settings, build_model, model_of
from .calls import EngineCall, Port, ports_of
from .driver import capability_of
from .engines import Engine
from .profiles import require_elements
from .runtimes import Choice, choose

_FORMAT = "core-tensorrt 1"
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
    output = next(node for node in reversed(graph.graph.nodes) if node.op == "output")
    fakes = [value.meta["val"] if isinstance(value, torch.fx.Node) else value for value in output.args[0]]
    calls = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    ports = ports_of(model, fake_inputs, fakes)
    state = {"ports": ports, "count": len(fake_inputs), "outputs": list(model.outputs), "calls": calls}
    return _artifact(engine, state, ctx, len(built.engine), built.profile)


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


def _artifact(
    engine: Engine, state: dict[str, Any], ctx: CompileContext, size: int, profile: Mapping[str, Any]
) -> Artifact:
    given, made = state["ports"]
    ports = (engine.ports(given), engine.ports(made))
    call = EngineCall(engine.context, engine.failure, ports, state["count"], state["outputs"], ctx.device)
    lines = [f"{name}: {' .. '.join(map(str, shapes))}" for name, shapes in profile.items()]
    return TensorRtArtifact(
        call=call.function,
        kernels=len(state["calls"]),
        provenance=dict.fromkeys(state["calls"], "native"),
        size_bytes=size,
        describe=lambda: "\n".join([call.source, f"engine of {engine.layers} layers", *lines]),
        engine=engine,
        state=state,
    )


class TensorRtArtifact(Artifact):
    """An artifact that remembers its engine, to be stored."""

    def __init__(self, *, engine: Engine, state: dict[str, Any], **fields: Any) -> None:
        super().__init__(**fields)
        self.engine = engine
        self.state = state


def stored(artifact: Artifact) -> bytes | None:
    """A header of JSON, then the engine's bytes. None for results that JSON can't hold."""
    if not isinstance(artifact, TensorRtArtifact):
        return None
    state = artifact.state
    if not all(value is None or isinstance(value, (str, int, float)) for value in state["outputs"]):
        return None
    header: dict[str, Any] = {"format": _FORMAT, "version": __version__, "module": artifact.engine.module}
    header["ports"] = [[_port_data(port) for port in side] for side in state["ports"]]
    header |= {key: state[key] for key in ("count", "outputs", "calls")}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + artifact.engine.serialized()


def _port_data(port: Port) -> list[Any]:
    return [port.index, port.name, str(port.dtype).removeprefix("torch."), port.sizes, port.number]


def restored(blob: bytes, ctx: CompileContext) -> Artifact | None:
    """The artifact of stored bytes, None for those of another version."""
    try:
        size = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8 : 8 + size])
        if header["format"] != _FORMAT or header["version"] != __version__:
            return None
        state = {key: header[key] for key in ("count", "outputs", "calls")}
        state["ports"] = tuple([_port(data) for data in side] for side in header["ports"])
        module = header["module"]
    except (ValueError, KeyError, TypeError):
        return None
    if module != choice_for(ctx).module:
        return None
    try:
        engine = Engine(module, blob[8 + size :])
    except CompileFailed:
        return None  # the library tells engines of another version or GPU
    return _artifact(engine, state, ctx, len(blob) - 8 - size, {})


def _port(data: list[Any]) -> Port:
    index, name, dtype, sizes, number = data
    return Port(index, name, getattr(torch, dtype), None if sizes is None else tuple(sizes), number)
