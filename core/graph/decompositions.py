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
    """
    return {torch.ops.aten.constant_pad_nd.default: _symbolic_only(torch_compat.pad_decomposition)}


def _symbolic_only(load: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """The decomposition where an operand has a symbolic size; NotImplemented for static shapes."""

    def decompose(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        numbers = [*tensor.shape, *(number for arg in args if isinstance(arg, (list, tuple)) for number in arg)]
        if not any(isinstance(number, torch.SymInt) for number in numbers):
            return NotImplemented
        return load()(tensor, *args, **kwargs)

    return decompose
