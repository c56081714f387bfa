"""The plugin object behind the entry point `tvm`. Importing it imports no TVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_presence import require_core

from . import __version__

require_core("tvm")

from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Option,
    Probe,
    Support,
    hookimpl,
)

_TRAINING = "training through TVM is off unless the option `training` asks for it"


class TvmBackend(Backend):
    """Writes a graph as tensor expressions that TVM fuses and compiles for the CPU. Calls of ATen that have none are
    yielded; a graph that has one all the same, since nobody else may take it, is run as it is."""

    name = "tvm"
    version = __version__
    capabilities = Capabilities(
        graph_level="core-aten",
        devices=("cpu",),
        dtypes=("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
        layouts="contiguous",
        deterministic="always",
    )

    def probe(self, device: str) -> Probe:
        from .runtime import REMEDY, missing, version

        reason = missing()
        return Probe(not reason, reason, REMEDY if reason else "", {"apache-tvm": version()} if not reason else {})

    def options(self) -> Mapping[str, Option]:
        return {
            "mcpu": Option(str, "", help="the processor to compile for, as LLVM names it; empty: this one"),
            "opt_level": Option(int, 2, (0, 1, 2, 3), help="TVM's optimization level; 0 fuses nothing"),
            "schedule": Option(bool, True, help="loops ordered by the plugin's rules where nothing is tuned"),
            "training": Option(bool, False, help="take the graphs of training too, forward and backward"),
            "trials": Option(int, 0, help="sizes of tiles to measure for a graph of fixed sizes; 0: none"),
            "tuning_dir": Option(str, "", help="a folder that keeps what was measured; empty: none"),
        }

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        if ctx.mode != "inference" and not ctx.options.get("training", False):
            return Support("no", _TRAINING)
        from .convert import is_aten, refusal

        reason = refusal(node)
        if not reason:
            return Support("native")
        return Support("library", reason, yields=True) if is_aten(node) else Support("no", reason)

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        from .artifact import compile_graph

        return compile_graph(graph, fake_inputs, ctx)

    def cache_key(self, ctx: CompileContext) -> bytes:
        from .runtime import version

        return f"{__version__} {version()} {sorted(ctx.options.items())}".encode()


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once."""
    return TvmBackend()
