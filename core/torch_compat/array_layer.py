"""torch's own layer of NumPy functions over tensors: `torch._numpy`, checked with torch 2.13."""

from __future__ import annotations

from typing import Any


def array_layer() -> Any:
    """The module that stands for numpy: functions by NumPy's names, `ndarray` over a tensor."""
    import torch._numpy

    return torch._numpy


def as_layer_array(tensor: Any) -> Any:
    """The layer's array over a tensor's memory."""
    return array_layer().ndarray(tensor)


def tensor_of(array: Any) -> Any:
    """The tensor of the layer's array; other values as they are."""
    return array.tensor if isinstance(array, array_layer().ndarray) else array
