"""The plugin object behind the entry point `ipex`. Importing it imports no torch and no Intel extension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_presence import require_core

from . import __version__

require_core("ipex")

from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Finding,
    Option,
    Probe,
    Support,
    hookimpl,
    installed_version,
)

ENDED = "IPEX ended at 2.8.0, archived 2026-03-30; using PyTorch's oneDNN"
NATIVE = "native: frozen weights go to the kernels of IPEX {}, which ended at 2.8.0; all else to PyTorch's oneDNN"
_TRAINING = "oneDNN's fused kernels have no gradients, and a backward reads what they would leave out"


class OneDnnBackend(Backend):
    """Calls oneDNN's fused kernels for products and convolutions, ATen's for what it takes beside them."""

    name = "ipex"
    version = __version__
    capabilities = Capabilities(
        graph_level="aten-functional",
        devices=("cpu",),
        deterministic="always",
    )

    def probe(self, device: str) -> Probe:
        from .torch_compat import missing

        reason = missing()
        remedy = "install a build of PyTorch with oneDNN, of version 2.8 to 2.13" if reason else ""
        return Probe(not reason, f"{ENDED}; {reason}" if reason else "", remedy, _versions())

    def options(self) -> Mapping[str, Option]:
        return {
            "fusions": Option(bool, True, help="off: every operator through ATen, to look for a wrong result"),
            "native": Option(bool, True, help="off: PyTorch's oneDNN even where the Intel extension for this torch is"),
        }

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        from .patterns import refusal, yielded

        reason = refusal(node)
        if reason:
            return Support("no", reason)
        reason = _TRAINING if ctx.mode != "inference" else yielded(node, ctx.frozen)
        return Support("library", reason, yields=bool(reason))

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        from .artifact import compile_graph

        return compile_graph(graph, fake_inputs, ctx)


def _versions() -> dict[str, str]:
    extension = installed_version("intel_extension_for_pytorch")
    if not extension:
        return {"kernels": ENDED}
    if _native():
        return {"kernels": NATIVE.format(extension), "intel_extension_for_pytorch": extension}
    return {"kernels": ENDED, "intel_extension_for_pytorch": f"{extension}, not used"}


def _native() -> str:
    from .native import installed

    return installed()


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once."""
    return OneDnnBackend()


@hookimpl
def core_diagnose() -> list[Finding]:
    """Says whose kernels run: the extension's where the one for this torch is installed, else none of its."""
    installed = _versions().get("intel_extension_for_pytorch")
    if installed and _native():
        return [Finding("info", NATIVE.format(installed))]
    return [Finding("info", f"{ENDED}; the installed extension is {installed}" if installed else ENDED)]
