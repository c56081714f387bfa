"""The backend abacus: what core may ask of it. Importing this module imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.plugin import (
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Option,
    Probe,
    Support,
    Unsupported,
    hookimpl,
)

from . import __version__


class AbacusBackend(Backend):
    """Interprets functional ATen graphs through the table in ops.py. Replace the interpreter by your compiler."""

    name = "abacus"
    version = __version__
    capabilities = Capabilities(
        graph_level="aten-functional",
        modes=("inference", "training"),
        devices=("cpu",),
        dynamic_shapes="none",
        deterministic="always",
    )

    def probe(self, device: str) -> Probe:
        """Check here for the driver and the libraries that you need; say in `remedy` what the user can do."""
        if device.partition(":")[0] != "cpu":
            return Probe(False, f"there is no code for {device}", "move the tensors to the CPU")
        return Probe(True)

    def options(self) -> Mapping[str, Option]:
        return {"beads": Option(int, 4096, help="the largest tensor that is laid out")}

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        from .converter import is_library, refusal

        why = refusal(node, ctx.options["beads"])
        return Support("native") if not why else Support("library" if is_library(node.target) else "no", why)

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        from .converter import Abacus

        calls = [node for node in graph.graph.nodes if node.op == "call_function"]
        kinds = {node.name: self.supports(node, ctx) for node in calls}
        refused = [node for node in calls if kinds[node.name].kind == "no"]
        if refused:
            raise Unsupported(refused, "no beads for it")
        native = {name for name, support in kinds.items() if support.kind == "native"}
        return Artifact(
            call=Abacus(graph, native),
            kernels=len(native),
            extern_calls=len(kinds) - len(native),
            provenance={name: support.kind for name, support in kinds.items()},
        )


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once, when somebody asks for the name."""
    return AbacusBackend()
