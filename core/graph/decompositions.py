"""Decompositions applied while recording.

The table is small on purpose. A forward operator whose backward consumes its auxiliary results (attention, layer norm,
batch norm, dropout) is never taken apart: the two halves would no longer fit together. Whole operators also keep the
graph short; a backend that wants them smaller expands them itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .. import torch_compat


@functools.cache
def default_table() -> Mapping[Any, Callable[..., Any]]:
    """Operator -> function that computes the same with other operators, or returns NotImplemented to keep it whole.

    constant_pad_nd: its C++ kernel reads symbolic sizes as numbers and so freezes them in the record.
    unique_consecutive: the rule for fakes takes a dimension that is counted from the end for another one.
    """
    return {
        torch.ops.aten.constant_pad_nd.default: _symbolic_only(torch_compat.pad_decomposition),
        torch.ops.aten.unique_consecutive.default: _counted_from_the_front,
    }


def _counted_from_the_front(
    tensor: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The same call with its dimension counted from the front."""
    if dim is None or dim >= 0 or dim < -tensor.ndim:
        return NotImplemented
    return torch.ops.aten.unique_consecutive.default(tensor, return_inverse, return_counts, dim + tensor.ndim)


def _symbolic_only(load: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """The decomposition where an operand has a symbolic size; NotImplemented for static shapes."""

    def decompose(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        numbers = [*tensor.shape, *(number for arg in args if isinstance(arg, (list, tuple)) for number in arg)]
        if not any(isinstance(number, torch.SymInt) for number in numbers):
            return NotImplemented
        return load()(tensor, *args, **kwargs)

    return decompose
