"""The stack of modes with a __torch_function__. Checked with torch 2.11 and 2.13."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode  # noqa: F401 - names of this module


def push(mode: Any) -> None:
    """Put a mode on top."""
    torch._C._push_on_torch_function_stack(mode)


@functools.cache
def device_constructors() -> frozenset[Any]:
    """The functions that `with torch.device(...)` gives a device to."""
    from torch.utils._device import _device_constructors

    return frozenset(_device_constructors())
