"""wrap_numpy: a function of arrays as one of tensors. What it makes is traced like the code of the program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of NumPy arrays one of tensors: arguments become arrays over their memory, results tensors.

    Tensors and arrays are found in tuples, lists and dicts too; anything else stays as it is. Arrays have no gradients
    and live on the CPU: a tensor that requires gradients, or of another device, is refused as by `Tensor.numpy()`.
    """

    @functools.wraps(fn)
    def of_tensors(*args: Any, **kwargs: Any) -> Any:
        given = [as_arrays(value) for value in args]
        named = {key: as_arrays(value) for key, value in kwargs.items()}
        return as_tensors(fn(*given, **named))

    return of_tensors


def as_arrays(value: Any) -> Any:
    """The value with each tensor as an array."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if type(value) in (list, tuple):
        return type(value)([as_arrays(item) for item in value])
    if type(value) is dict:
        return {key: as_arrays(item) for key, item in value.items()}
    return value


def as_tensors(value: Any) -> Any:
    """The value with each array, and each number of NumPy's, as a tensor."""
    if isinstance(value, (np.ndarray, np.generic)):
        return torch.from_numpy(np.asarray(value))
    if type(value) in (list, tuple):
        return type(value)([as_tensors(item) for item in value])
    if type(value) is dict:
        return {key: as_tensors(item) for key, item in value.items()}
    return value
