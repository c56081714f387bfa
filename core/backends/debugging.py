"""The debugging backends: `eager` runs the captured torch graph, `aot_eager` the functional ATen graph, node by node,
`aot_eager_decomp_partition` that graph taken apart into the core set of operators.

They compile nothing, so a difference between `eager` and plain Python is capture's fault, a difference between
`aot_eager` and `eager` the recorder's, and a difference between another backend and `aot_eager` that backend's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..plugin import Artifact, Backend, Capabilities, CompileContext, Option, hookimpl

TUNINGS = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class DebuggingBackend(Backend):
    """Takes the modes of torch.compile, so that a program runs with it unchanged; there is nothing to tune."""

    def options(self) -> Mapping[str, Option]:
        return {"mode": Option(str, "default", TUNINGS, help="compile's mode; it changes nothing here")}


class EagerBackend(DebuggingBackend):
    """Runs the torch-level graph as captured; autograd works on it as on any torch code."""

    name = "eager"
    version = "1.0"
    capabilities = Capabilities(graph_level="torch", deterministic="on-request")

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        return _as_written(graph)


class AotEagerBackend(DebuggingBackend):
    """Runs the functional ATen graph through torch's own kernels; core's wrapper does everything around it."""

    name = "aot_eager"
    version = "1.0"
    capabilities = Capabilities(graph_level="aten-functional", deterministic="on-request")

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        return _as_written(graph)


class DecomposedEagerBackend(AotEagerBackend):
    """As aot_eager, of operators taken apart into the core set, as compilers of that set get them."""

    name = "aot_eager_decomp_partition"
    capabilities = Capabilities(graph_level="core-aten", deterministic="on-request")


def _as_written(graph: Any) -> Artifact:
    """The graph module's generated `forward`: no module call, no hooks, no Python file of ours."""
    calls = [node.name for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
    return Artifact(
        call=graph.forward,
        extern_calls=len(calls),
        provenance=dict.fromkeys(calls, "library"),
        describe=lambda: graph.code,
    )


class EagerPlugin:
    """The plugin object behind the entry point `eager`."""

    @hookimpl
    def core_backend(self) -> Backend:
        return EagerBackend()


class AotEagerPlugin:
    """The plugin object behind the entry point `aot_eager`."""

    @hookimpl
    def core_backend(self) -> Backend:
        return AotEagerBackend()


class DecomposedEagerPlugin:
    """The plugin object behind the entry point `aot_eager_decomp_partition`."""

    @hookimpl
    def core_backend(self) -> Backend:
        return DecomposedEagerBackend()


eager_plugin = EagerPlugin()
aot_eager_plugin = AotEagerPlugin()
decomposed_plugin = DecomposedEagerPlugin()
