"""The plugin object behind the entry point `onnxrt`. Importing it imports no ONNX Runtime."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from core_presence import require_core

from . import __version__

require_core("onnxrt")

from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Finding,
    Option,
    Probe,
    StaleArtifact,
    Support,
    hookimpl,
    installed_version,
)

LEVELS = ("all", "extended", "basic", "disabled")
_TRAINING = "training through ONNX Runtime is off: on the CPU it is slower than torch's own kernels"


class OnnxRuntimeBackend(Backend):
    """Converts a graph to an ONNX model and runs it in an engine that reads and writes torch's memory."""

    name = "onnxrt"
    version = __version__
    capabilities = Capabilities(
        graph_level="core-aten",
        devices=("cpu", "cuda"),
        dtypes=("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
        layouts="contiguous",
        deterministic="always",
        serializable=True,
    )

    def probe(self, device: str) -> Probe:
        for module in ("onnxruntime", "onnx"):
            if importlib.util.find_spec(module) is None:
                extra = "gpu" if device.startswith("cuda") else "cpu"
                return Probe(False, f"{module} is not installed", f'pip install "core-onnxrt[{extra}]" onnx')
        kind = device.partition(":")[0]
        if kind == "cpu":  # each build has this provider, and on a busy machine an import outlasts a probe
            return Probe(True, runtime_versions={"onnxruntime": _version()})
        from .runtime import has_provider, runtime

        if not has_provider(kind):
            text = f"the installed onnxruntime {runtime().__version__} has no execution provider for {kind}"
            return Probe(
                False, text, "pip uninstall onnxruntime; pip install onnxruntime-gpu (they overwrite each other)"
            )
        return Probe(True, runtime_versions={"onnxruntime": runtime().__version__})

    def options(self) -> Mapping[str, Option]:
        return {
            "graph_optimization": Option(str, "all", LEVELS, help="the runtime's own graph optimisations"),
            "intra_op_threads": Option(int, 0, help="threads of an engine; 0: torch's number"),
            "pack_weights": Option(bool, True, help="keep packed copies of weights, compared on each call"),
            "profile": Option(str, "", help="prefix of the runtime's profile file; empty for none"),
            "provider": Option(str, "auto", help="an execution provider by its full name; auto: that of the device"),
            "training": Option(bool, False, help="take the graphs of training too, forward and backward"),
        }

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        if ctx.mode != "inference" and not ctx.options.get("training", False):
            return Support("no", _TRAINING)
        from core_onnx import answer
        from core_onnx.library import can_be_called

        from .artifact import refusal
        from .runtime import target_of

        found = answer(node, target_of(ctx.device.partition(":")[0]))
        if reason := refusal(found):
            return Support("library", reason, yields=True) if can_be_called(node) else Support("no", reason)
        return Support("library" if found.drawn else "native", found.reason, yields=found.open)

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        from .artifact import compile_graph

        return compile_graph(graph, fake_inputs, ctx)

    def cache_key(self, ctx: CompileContext) -> bytes:
        from core_onnx.digest import converters_digest

        from .runtime import runtime

        return f"{__version__} {converters_digest()} {runtime().__version__} {sorted(ctx.options.items())}".encode()

    def serialize(self, artifact: Artifact) -> bytes | None:
        from .artifact import stored

        return stored(artifact)

    def deserialize(self, blob: bytes, ctx: CompileContext) -> Artifact:
        from .artifact import restored

        found = restored(blob, ctx)
        if found is None:
            raise StaleArtifact("the stored model is not one of this version of core-onnxrt")
        return found


def _version() -> str:
    return installed_version("onnxruntime") or installed_version("onnxruntime-gpu") or "of an unknown version"


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once."""
    return OnnxRuntimeBackend()


@hookimpl
def core_diagnose() -> list[Finding]:
    """Both builds of the runtime write the same package: with two installed, the later one won."""
    found = [name for name in ("onnxruntime", "onnxruntime-gpu") if installed_version(name)]
    if len(found) < 2:
        return []
    text = "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files"
    return [Finding("warning", text, "pip uninstall both, then install the one you want")]
