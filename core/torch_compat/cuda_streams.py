"""Names for streams and captures of CUDA, which exist in builds of torch for CUDA only: looked up when asked for.

Checked with torch 2.11 (CUDA 13).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def current_raw_stream(device_index: int) -> Callable[[], int]:
    """() -> the handle of the current stream of a device; torch's own function builds an object for it."""
    return functools.partial(torch._C._cuda_getCurrentRawStream, device_index)


def cuda_capturing_function() -> Callable[[], bool]:
    """() -> whether the current stream of the current device is being captured."""
    return torch._C._cuda_isCurrentStreamCapturing


def end_allocation_to_pool(device_index: int, pool: Any) -> None:
    """Tell the allocator that a capture into a pool is over, where it still thinks that one goes on."""
    try:
        torch._C._cuda_endAllocateToPool(device_index, pool)
    except RuntimeError:
        pass  # it knew
