"""The installed ONNX Runtime: its module, its providers, and the kernels that they have."""

from __future__ import annotations

import functools
import importlib.resources
import json
import os
import sys
from collections.abc import Iterable
from typing import Any

import torch
from core_onnx import Target

OPSETS = (26, 18)  # the first has BitCast; the second is what every supported runtime knows
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_HARMLESS = frozenset(("CPUExecutionProvider", "AzureExecutionProvider"))  # asking for their kernels loads nothing
_TYPE_NAMES = {
    torch.float32: "tensor(float)",
    torch.float64: "tensor(double)",
    torch.float16: "tensor(float16)",
    torch.bfloat16: "tensor(bfloat16)",
    torch.int64: "tensor(int64)",
    torch.int32: "tensor(int32)",
    torch.int16: "tensor(int16)",
    torch.int8: "tensor(int8)",
    torch.uint8: "tensor(uint8)",
    torch.bool: "tensor(bool)",
}
# The name that ONNX's schema of an operator gives the type that its kernels are chosen by, where it isn't T.
_CHOSEN_BY = {"IsNaN": ("T1", "T"), "IsInf": ("T1", "T"), "Cast": ("T1",), "Pow": ("T",), "TopK": ("T",)}
# Written as functions of other operators in ONNX itself: without a kernel of its own the runtime takes them apart.
_FUNCTIONS = frozenset(("Identity", "Shape", "Size", "Range"))


_TELEMETRY = "ORT_DISABLE_TELEMETRY"


def runtime() -> Any:
    """The module onnxruntime. Raises ImportError where it isn't installed.

    Imported for the first time, it writes files into the user's folders and reports its use over the network, unless
    the environment forbids it in that moment.
    """
    if "onnxruntime" in sys.modules:
        return sys.modules["onnxruntime"]
    silent = _TELEMETRY not in os.environ
    if silent:
        os.environ[_TELEMETRY] = "1"
    try:
        import onnxruntime
    finally:
        if silent:
            del os.environ[_TELEMETRY]
    return onnxruntime


@functools.lru_cache(maxsize=4)
def kernels_of(provider: str, opset: int) -> dict[str, frozenset[str]]:
    """ONNX operator -> the types that `provider` has a kernel for in an opset; empty where nothing tells.

    A build with more providers than the CPU's is not asked: it would load the libraries of all of them, and crash where
    one is absent (TensorRT's, for most). Its CPU kernels are those of the CPU build, which kernels.json keeps.
    """
    if provider == PROVIDERS["cpu"] and set(runtime().get_available_providers()) - _HARMLESS:
        table = json.loads(importlib.resources.files(__package__).joinpath("kernels.json").read_text())
        return {name: frozenset(types.split()) for name, types in table["opsets"].get(str(opset), {}).items()}
    return asked_kernels(provider, opset)


def asked_kernels(provider: str, opset: int) -> dict[str, frozenset[str]]:
    """What the runtime itself says of a provider's kernels."""
    runtime()
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    definitions = getattr(state, "get_all_opkernel_def", None)
    found: dict[str, set[str]] = {}
    for kernel in definitions() if definitions is not None else ():
        first, last = kernel.version_range
        if kernel.provider == provider and not kernel.domain and first <= opset <= last:
            found.setdefault(kernel.op_name, set()).update(_chosen_types(kernel.op_name, kernel.type_constraints))
    return {name: frozenset(types) for name, types in found.items()}


def type_names() -> frozenset[str]:
    """ONNX Runtime's names of the types that tensors of torch have here."""
    return frozenset(_TYPE_NAMES.values())


def _chosen_types(operator: str, constraints: dict[str, Iterable[str]]) -> Iterable[str]:
    for name in _CHOSEN_BY.get(operator, ("T", "T1", "V", "tensor")):
        if name in constraints:
            return constraints[name]
    return tuple(_TYPE_NAMES.values()) if not constraints else next(iter(constraints.values()))


@functools.lru_cache(maxsize=4)
def target_of(device: str) -> Target:
    """What the runtime computes on "cpu" or "cuda": what the provider has no kernel for, CUDA leaves to the CPU."""
    name = f"onnxruntime {runtime().__version__}"
    newest = next((one for one in OPSETS if "BitCast" in kernels_of(PROVIDERS["cpu"], one)), OPSETS[-1])
    opset = newest if device == "cpu" else OPSETS[-1]  # CUDA's kernels (pools, for one) are those of older opsets
    kernels = kernels_of(PROVIDERS["cpu"], opset)
    if not kernels:
        return Target(name, opset, checks_places=True, questions=True, draws=True)

    def computes(operator: str, dtype: torch.dtype) -> bool:
        return operator in _FUNCTIONS or _TYPE_NAMES[dtype] in kernels.get(operator, ())

    return Target(
        name,
        opset,
        computes,
        drops_nan=frozenset(),
        adds_to_select=True,
        checks_places=True,
        questions=True,
        draws=True,
    )


def version_of(ort: Any) -> tuple[int, int]:
    """The first two numbers of a runtime's version."""
    major, minor, *_ = ort.__version__.split(".")
    return int(major), int(minor)


def has_provider(device: str) -> bool:
    """Whether the installed build has the provider of a device."""
    return PROVIDERS.get(device, "") in runtime().get_available_providers()
