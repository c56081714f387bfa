"""The plugin object behind the entry point `tensorrt`. Importing it imports no TensorRT."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from core_presence import require_core

from . import __version__

require_core("tensorrt")

from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Option,
    Probe,
    StaleArtifact,
    Support,
    hookimpl,
)

from .runtimes import NAMES, choose  # noqa: E402


class TensorRtBackend(Backend):
    """Converts a graph to an ONNX model that TensorRT builds an engine of, and runs it on torch's memory."""

    name = "tensorrt"
    version = __version__
    capabilities = Capabilities(
        graph_level="core-aten",
        modes=("inference",),
        devices=("cuda",),
        dtypes=("float32", "float16", "bfloat16", "int64", "int32", "bool"),
        dynamic_shapes="bounded",
        layouts="contiguous",
        deterministic="no",
        serializable=True,
        thread_safe=False,
    )

    def probe(self, device: str) -> Probe:
        if device.partition(":")[0] != "cuda":
            return Probe(False, f"TensorRT computes on NVIDIA GPUs, not on {device}", "move the tensors to a GPU")
        if importlib.util.find_spec("onnx") is None:
            return Probe(False, "onnx is not installed", "pip install onnx")
        choice = choose()
        if not choice.module:
            return Probe(False, choice.reason, choice.remedy)
        from .driver import gpu_of

        gpu = gpu_of(device)
        if gpu.reason:
            return Probe(False, gpu.reason, gpu.remedy)
        choice = choose("auto", gpu.capability)
        if not choice.module:
            return Probe(False, choice.reason, choice.remedy)
        if choice.cuda > gpu.cuda[0]:
            text = f"{choice.label} is built for CUDA {choice.cuda}, the driver has CUDA {gpu.cuda[0]}.{gpu.cuda[1]}"
            return Probe(False, text, "update the driver, or install the distribution for its version of CUDA")
        return Probe(True, runtime_versions={choice.module: choice.version})

    def options(self) -> Mapping[str, Option]:
        return {
            "compute_capability": Option(str, "", help='build for this one, as "8.6"; empty: the product decides'),
            "optimization_level": Option(int, -1, (-1, 0, 1, 2, 3, 4, 5), help="the builder's; -1: its own default"),
            "refit": Option(bool, False, help="with frozen weights: give new weights to the engine there is"),
            "runtime": Option(str, "auto", NAMES, help="the product, where several are installed"),
            "workspace_bytes": Option(int, 0, help="most scratch memory of an engine; 0: no limit"),
        }

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        from .targets import refusal

        reason = refusal(node)
        return Support("no", reason) if reason else Support("native")

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        from .artifact import compile_graph

        return compile_graph(graph, fake_inputs, ctx)

    def cache_key(self, ctx: CompileContext) -> bytes:
        from .artifact import choice_for, settings_of
        from .driver import capability_of

        choice = choice_for(ctx)
        return f"{__version__} {choice.version} {settings_of(ctx, choice.module)} {capability_of(ctx.device)}".encode()

    def serialize(self, artifact: Artifact) -> bytes | None:
        from .artifact import stored

        return stored(artifact)

    def deserialize(self, blob: bytes, ctx: CompileContext) -> Artifact:
        from .artifact import restored

        found = restored(blob, ctx)
        if found is None:
            raise StaleArtifact("the stored engine is of another version, product or GPU")
        return found


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once."""
    return TensorRtBackend()
