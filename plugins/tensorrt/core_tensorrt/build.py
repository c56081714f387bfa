"""From a graph to an engine's bytes: the ONNX model, the network, its profile, the builder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from core_onnx import ConversionError, OnnxGraph, convert

from core.plugin import CompileFailed, Unsupported

from .profiles import Ranges, add_profile
from .runtimes import choose, load, logger_of
from .targets import TARGET, refusal


@dataclass(frozen=True)
class Settings:
    """How engines are built.

    module: the product's module; compute_capability: "8.6" to build for that GPU, "" for what the product builds for by
    itself (TensorRT: the GPU here; TensorRT-RTX: every GPU it has code for);
    workspace: most bytes of scratch memory, 0 for no limit; level: the builder's optimisation level, -1 for its own;
    tf32: whether products of float32 may be computed in TF32; refit: whether weights of the engine can be replaced.
    """

    module: str
    compute_capability: str = ""
    workspace: int = 0
    level: int = -1
    tf32: bool = False
    refit: bool = False


@dataclass(frozen=True)
class Built:
    """An engine's bytes and what is known of it: the model it was built from, its number of layers, and for each input
    of changing size the (least, usual, largest) shape."""

    engine: bytes
    graph: OnnxGraph
    layers: int
    profile: Mapping[str, Any] = field(default_factory=dict)


def build_engine(
    graph: Any,
    fake_inputs: Sequence[Any] | None = None,
    *,
    ranges: Ranges | None = None,
    frozen: Mapping[int, torch.Tensor] | None = None,
    settings: Settings | None = None,
    name: str = "graph",
) -> Built:
    """Build an engine of an fx graph. No GPU is needed where the settings name a compute capability and the product
    can build for one that is not here.

    fake_inputs: the fake value of each placeholder, by default those of the graph; ranges: of its symbols;
    frozen: weights by placeholder, as contiguous CPU tensors, which the builder reads by pointer.

    Raises Unsupported for nodes without an ONNX form or that the parser refuses, CompileFailed with the words of the
    builder.
    """
    if fake_inputs is None:
        fake_inputs = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    return build_model(model_of(graph, frozen, name), fake_inputs, ranges or {}, settings or _found_settings())


def _found_settings() -> Settings:
    choice = choose()
    if not choice.module:
        raise CompileFailed("finding TensorRT", choice.reason)
    return Settings(choice.module)


def model_of(graph: Any, frozen: Mapping[int, torch.Tensor] | None, name: str) -> OnnxGraph:
    """The graph's ONNX model. Raises Unsupported with the nodes that have none."""
    try:
        return convert(graph, target=TARGET, frozen=frozen, name=name)
    except ConversionError as error:
        calls = [node for node in graph.graph.nodes if node.op == "call_function"]
        raise Unsupported([node for node in calls if refusal(node)], str(error)) from error


def build_model(model: OnnxGraph, fake_inputs: Sequence[Any], ranges: Ranges, settings: Settings) -> Built:
    """Build an engine of a converted graph."""
    runtime, log = load(settings.module), logger_of(settings.module)
    log.taken()
    builder = runtime.Builder(log)
    # Types are those of the graph, each cast written out: the only way in TensorRT 11, and right in 10.
    network = builder.create_network(1 << int(runtime.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = runtime.OnnxParser(network, log)
    loaded = parser.load_model_proto(model.serialized()) and all(
        parser.load_initializer(key, weight.data_ptr(), weight.numel() * weight.element_size())
        for key, weight in model.external.items()  # kept alive by the model until the engine is built
    )
    if not loaded or not parser.parse_model_proto():
        raise Unsupported((), _refused_by(parser) or log.taken() or "the ONNX parser refuses the model")
    config = builder.create_builder_config()
    _configure(runtime, config, settings)
    profile = add_profile(builder, config, network, dict(zip(model.inputs, fake_inputs)), ranges)
    layers = network.num_layers
    made = builder.build_serialized_network(network, config)
    if made is None:
        raise CompileFailed("building the engine", log.taken())
    return Built(bytes(made), model, layers, profile)


def _refused_by(parser: Any) -> str:
    """The parser's first words, with the ONNX operator that they are about."""
    if not parser.num_errors:
        return ""
    error = parser.get_error(0)
    return f"{error.node_operator() or 'the model'}: {error.desc()}"


def _configure(runtime: Any, config: Any, settings: Settings) -> None:
    flags = runtime.BuilderFlag
    config.set_flag(flags.STRICT_NANS)
    if settings.tf32:
        config.set_flag(flags.TF32)
    else:
        config.clear_flag(flags.TF32)
    if settings.refit:
        config.set_flag(flags.REFIT)
    if settings.workspace:
        config.set_memory_pool_limit(runtime.MemoryPoolType.WORKSPACE, settings.workspace)
    if settings.level >= 0:
        config.builder_optimization_level = settings.level
    if settings.compute_capability:
        _build_for(runtime, config, settings.compute_capability)


def _build_for(runtime: Any, config: Any, capability: str) -> None:
    known = getattr(runtime, "ComputeCapability", None)
    wanted = getattr(known, f"SM{capability.replace('.', '')}", None)
    if wanted is None:
        has = ", ".join(sorted(name for name in dir(known) if name.startswith("SM")))
        what = f"this product builds for {has}" if known is not None else "this product builds for the GPU at hand only"
        raise CompileFailed(f"building for compute capability {capability}", what)
    config.num_compute_capabilities = 1
    config.set_compute_capability(wanted, 0)
