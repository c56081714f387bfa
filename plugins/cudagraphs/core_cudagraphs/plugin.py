"""The plugin object behind the entry point `cudagraphs`. Importing it imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_presence import require_core

from . import __version__

require_core("cudagraphs")

from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Option,
    Probe,
    cuda_graph_options,
    hookimpl,
)

MODES = ("default", "reduce-overhead")


class CudaGraphsBackend(Backend):
    """Runs a graph through torch's own kernels, in a form whose calls core captures and replays."""

    name = "cudagraphs"
    version = __version__
    capabilities = Capabilities(
        graph_level="aten-functional",
        modes=("inference", "training"),
        devices=("cuda",),
        deterministic="on-request",
        dynamic_shapes="full",
        cudagraph_safe="yes",
        thread_safe=True,
    )

    def probe(self, device: str) -> Probe:
        import torch

        if not torch.cuda.is_available():
            return Probe(False, "torch finds no GPU of CUDA here", "use a machine with one and a build of torch for it")
        return Probe(True, runtime_versions={"cuda": str(torch.version.cuda)})

    def options(self) -> Mapping[str, Option]:
        return {
            "mode": Option(str, "default", MODES, help="compile's mode; both mean the same here"),
            **cuda_graph_options(on=True),
        }

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        calls = [node.name for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
        return Artifact(
            call=graph.forward,
            extern_calls=len(calls),
            provenance=dict.fromkeys(calls, "library"),
            cudagraph_safe=True,  # what of a graph can't be captured, core finds
            describe=lambda: graph.code,
        )


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once."""
    return CudaGraphsBackend()
