"""The plugin object behind the entry point `inductor`: what core may ask, and no work before it asks.

Importing this module imports neither torch nor triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_presence import require_core

from . import __version__

require_core("inductor")

from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Finding,
    Option,
    Probe,
    cuda_graph_options,
    hookimpl,
)

_DEVICES = ("cpu",)
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class InductorBackend(Backend):
    """Compiles functional ATen graphs to fused loops; what has no loop runs through torch's own kernels."""

    name = "inductor"
    version = __version__
    capabilities = Capabilities(
        graph_level="aten-functional",
        modes=("inference", "training"),
        devices=_DEVICES,
        deterministic="always",
        dynamic_shapes="full",
        cudagraph_safe="per-artifact",
        serializable=True,
        thread_safe=True,
    )

    def probe(self, device: str) -> Probe:
        """Without a compiler the backend still works, through torch's kernels; the probe says so."""
        kind = device.partition(":")[0]
        if kind not in _DEVICES:
            return Probe(False, f"no code generator for device {kind!r}", "choose another backend for this device")
        from .runtime.toolchain import CompilerMissing, find_toolchain

        try:
            toolchain = find_toolchain()
        except CompilerMissing as missing:
            return Probe(True, f"{missing}: graphs run through torch's kernels", "install g++")
        return Probe(True, runtime_versions={"compiler": toolchain.identity})

    def options(self) -> Mapping[str, Option]:
        return {
            "cache": Option(bool, True, help="keep compiled kernels on disk, in CORE_CACHE_DIR or the user's cache"),
            "compiler": Option(str, "", help="the C++ compiler: a name or path of g++"),
            "missing_compiler": Option(
                str, "aten", ("aten", "raise"), help="without a compiler: run through torch's kernels, or raise"
            ),
            "mode": Option(str, "default", MODES, help="compile's mode; on the CPU each gives the same kernels"),
            "parallel": Option(bool, True, help="let kernels use torch's number of threads"),
            **cuda_graph_options(),
        }

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        from .artifact import compile_artifact

        mode = ctx.options.get("mode", "default")
        if mode != "default" and ctx.device.startswith("cpu"):
            text = f"mode {mode!r} changes nothing on the CPU: it has no CUDA graphs and no variants to time"
            ctx.report(Finding("info", text, "leave mode out"))
        return compile_artifact(graph, ctx)

    def cache_key(self, ctx: CompileContext) -> bytes:
        from .runtime.toolchain import CompilerMissing, find_toolchain

        try:
            return repr(find_toolchain(str(ctx.options.get("compiler", ""))).key).encode()
        except CompilerMissing:
            return b"aten"

    def serialize(self, artifact: Artifact) -> bytes | None:
        from .artifact import stored

        return stored(artifact)

    def deserialize(self, blob: bytes, ctx: CompileContext) -> Artifact:
        from .artifact import restored

        return restored(blob, ctx)


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once."""
    return InductorBackend()
