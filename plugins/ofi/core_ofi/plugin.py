"""The plugin object behind the entry point `ofi`. Importing it imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core_presence import require_core

from . import __version__

require_core("ofi")

from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Finding,
    Probe,
    Support,
    hookimpl,
)

_TRAINING = "optimize_for_inference is for inference: training is left to the fallback"


class TorchScriptBackend(Backend):
    """Traces a graph and has TorchScript freeze and optimise it. Calls of ATen that are not traced are yielded; a graph
    that has one all the same, since nobody else may take it, is run as it is."""

    name = "ofi"
    version = __version__
    capabilities = Capabilities(
        graph_level="aten-functional",
        devices=("cpu",),
        dynamic_shapes="none",
        deterministic="always",
    )

    def probe(self, device: str) -> Probe:
        from .torchscript import REMEDY, missing

        reason = missing()
        return Probe(not reason, reason, REMEDY if reason else "")

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        if ctx.mode != "inference":
            return Support("no", _TRAINING)
        from .claims import is_aten, refusal

        reason = refusal(node)
        if reason and not is_aten(node):
            return Support("no", reason)
        return Support("library", reason, yields=bool(reason))

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        from .artifact import compile_graph

        return compile_graph(graph, fake_inputs, ctx)


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once."""
    return TorchScriptBackend()


@hookimpl
def core_diagnose() -> list[Finding]:
    """Says that what this backend stands on is going away."""
    from .torchscript import DEPRECATED, REMEDY

    return [Finding("warning", DEPRECATED, REMEDY)]
