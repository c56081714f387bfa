"""Whether there is a GPU for an engine, asked without making a CUDA context.

A builder or a runtime of TensorRT can be made on a machine without a GPU: that they exist says nothing. Where torch has
begun to use CUDA it is asked; before that the management library of the driver is, which leaves a later fork unharmed.
torch is imported only where there is a GPU: a probe has seconds.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_LIBRARY = "libnvidia-ml.so.1"


@dataclass(frozen=True)
class Gpu:
    """A GPU: its compute capability as "8.6", the driver's version of CUDA as (13, 0). With `reason` there is none."""

    capability: str = ""
    cuda: tuple[int, int] = (0, 0)
    reason: str = ""
    remedy: str = ""


def gpu_of(device: str) -> Gpu:
    """The GPU of "cuda" or "cuda:1", or why there is none."""
    asked = _from_library(int(device.partition(":")[2] or 0))
    if asked.reason:
        return asked
    import torch

    if torch.version.cuda is None:
        return Gpu(
            reason=f"torch {torch.__version__} is built without CUDA",
            remedy="install a build of torch for CUDA",
        )
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        major, minor = torch.cuda.get_device_capability(device)
        return Gpu(f"{major}.{minor}", asked.cuda)
    return asked


def capability_of(device: str) -> str:
    """The compute capability of a device that torch has tensors on."""
    import torch

    major, minor = torch.cuda.get_device_capability(device)
    return f"{major}.{minor}"


def _none(reason: str) -> Gpu:
    return Gpu(reason=f"no NVIDIA GPU: {reason}", remedy="run on a machine with an NVIDIA GPU and its driver")


def _from_library(index: int) -> Gpu:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return _none(f"the driver's library {_LIBRARY} is not here")
    if library.nvmlInit_v2():
        return _none("the driver does not answer")
    try:
        count = ctypes.c_uint(0)
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) or not count.value:
            return _none("the driver knows no device")
        version = ctypes.c_int(0)
        library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(version))
        cuda = (version.value // 1000, version.value % 1000 // 10)
        handle, major, minor = ctypes.c_void_p(), ctypes.c_int(0), ctypes.c_int(0)
        # CUDA_VISIBLE_DEVICES is not looked at: the index is exact once torch has begun to use CUDA.
        if library.nvmlDeviceGetHandleByIndex_v2(min(index, count.value - 1), ctypes.byref(handle)):
            return _none(f"the driver refuses device {index}")
        if library.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor)):
            return Gpu(cuda=cuda)
        return Gpu(f"{major.value}.{minor.value}", cuda)
    finally:
        library.nvmlShutdown()
