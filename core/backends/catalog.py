"""The offline name table: which distribution owns a bare backend name, and which peers serve the same purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CatalogEntry:
    """A reserved backend name. install: what to give pip; peers: importable modules that are something else."""

    distribution: str
    install: str
    summary: str
    peers: tuple[str, ...] = ()


CATALOG = {
    "eager": CatalogEntry("core", "core", "runs the captured torch graph as it is"),
    "aot_eager": CatalogEntry("core", "core", "runs the functional ATen graph, one kernel a node"),
    "inductor": CatalogEntry("core-inductor", "core[inductor]", "loops in C++ and Triton"),
    "cudagraphs": CatalogEntry("core-cudagraphs", "core-cudagraphs", "CUDA graph capture and replay"),
    "onnxrt": CatalogEntry("core-onnxrt", "core-onnxrt", "ONNX Runtime", ("onnxruntime",)),
    "tensorrt": CatalogEntry("core-tensorrt", "core-tensorrt", "NVIDIA TensorRT", ("torch_tensorrt", "tensorrt")),
    "ipex": CatalogEntry("core-ipex", "core-ipex", "Intel extension for PyTorch", ("intel_extension_for_pytorch",)),
}

CONFUSED_PEERS = {
    "openvino": "openvino",
    "hidet": "hidet",
    "thunder": "thunder",
    "tvm": "tvm",
    "iree": "iree.turbine",
}
"""Names people ask for that core has no plugin for -> the module of the peer, to say so when it is installed."""
