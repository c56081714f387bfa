"""The plugin object behind the entry point `openvino`. Importing it imports no OpenVINO."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from core_presence import require_core

from . import __version__

require_core("openvino")

from core.plugin import (  # noqa: E402
    Artifact,
    Backend,
    Capabilities,
    CompileContext,
    Option,
    Probe,
    Support,
    hookimpl,
    installed_version,
)

_TRAINING = "training through OpenVINO is off unless the option `training` asks for it"


class OpenVinoBackend(Backend):
    """Converts a graph to an ONNX model that OpenVINO compiles for the CPU."""

    name = "openvino"
    version = __version__
    capabilities = Capabilities(
        graph_level="core-aten",
        devices=("cpu",),
        dtypes=("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
        layouts="contiguous",
        deterministic="always",
    )

    def probe(self, device: str) -> Probe:
        for module in ("openvino", "onnx"):
            if importlib.util.find_spec(module) is None:
                return Probe(False, f"{module} is not installed", 'pip install "core-openvino[cpu]" onnx')
        return Probe(True, runtime_versions={"openvino": installed_version("openvino") or "of an unknown version"})

    def options(self) -> Mapping[str, Option]:
        return {
            "config": Option(dict, {}, help="properties of the compiled model, over this plugin's own"),
            "threads": Option(int, 0, help="threads of a model; 0: torch's number"),
            "training": Option(bool, False, help="take the graphs of training too, forward and backward"),
        }

    def supports(self, node: Any, ctx: CompileContext) -> Support:
        if ctx.mode != "inference" and not ctx.options.get("training", False):
            return Support("no", _TRAINING)
        reason = refusal(node)
        if not reason:
            return Support("native")
        from core_onnx.library import can_be_called

        return Support("library", reason, yields=True) if can_be_called(node) else Support("no", reason)

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        from .artifact import compile_graph

        return compile_graph(graph, fake_inputs, ctx)

    def cache_key(self, ctx: CompileContext) -> bytes:
        from .runtime import target

        return f"{__version__} {target().name} {sorted(ctx.options.items())}".encode()


def refusal(node: Any) -> str:
    """Why a node is not the device's, or "": no ONNX form, or values that the device would have in another type."""
    import torch
    from core_onnx import unsupported_reason

    from .runtime import CHOOSING, target

    reason = unsupported_reason(node, target())
    if reason:
        return reason
    values = (node, node.args[0]) if str(node.target) in CHOOSING else (node, *node.all_input_nodes)
    for value in values:
        fake = value.meta.get("val")
        for one in fake if isinstance(fake, (tuple, list)) else (fake,):
            if isinstance(one, torch.Tensor) and one.dtype is torch.int64:
                return "the device narrows int64 to int32"
    made = node.meta.get("val")
    for one in made if isinstance(made, (tuple, list)) else (made,):
        if isinstance(one, torch.Tensor) and one.dtype is torch.float16:
            return "the device leaves out that results are rounded to float16"
    return _empty_operand(node)


def _empty_operand(node: Any) -> str:
    """Values made of none, as a sum of no values is: the device has no kernels for them."""
    import torch

    result = node.meta.get("val")
    results = result if isinstance(result, (tuple, list)) else (result,)
    if all(isinstance(fake, torch.Tensor) and 0 in fake.shape for fake in results):
        return ""  # nothing to compute
    if str(node.target) in ("aten.mm.default", "aten.bmm.default", "aten.cat.default"):
        return ""
    operands = [value.meta.get("val") for value in node.all_input_nodes]
    if any(isinstance(fake, torch.Tensor) and 0 in fake.shape for fake in operands):
        return "results made of no values are not computed"
    return ""


@hookimpl
def core_backend() -> Backend:
    """The hook that core calls once."""
    return OpenVinoBackend()
