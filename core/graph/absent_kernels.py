"""Errors of kernels that dtypes and shapes alone decide, though no fake kernel raises them: a dtype without a kernel,
two dtypes that must be one, the largest of no elements.

Eager raises them at the program's line, whatever the values are; so does the capture, which asks the real kernel once
for each kind of operands. Only where that costs nothing to speak of: small tensors on the CPU. What is not asked here
is found when the graph runs (capture/as_written.py). State shared between threads: `_fine`, under the GIL.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from .. import torch_compat
from ..torch_compat import tracing
from .data_errors import BY_VALUE, PURE_NAMESPACES, divides
from .geometry import hint
from .refusals import TrialMemory, eager_exception
from .tree import leaves

LARGEST_BYTES = 1 << 16
"""Of the operands and results of a call that is tried."""

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_NOT_OF_FLOATS = ("bitwise_", "__", "gcd", "lcm")
"""How the names begin of operators that have no kernels for floats."""
_BY_VALUE = (*BY_VALUE, "_pack_padded_sequence", "fake_quantize", "_fake_quantize", "set_", "resize_", "_resize_output")
"""How the names begin of operators that zeros are no fair trial for, or that want a storage."""
_PRODUCTS = frozenset("mm bmm addmm baddbmm addbmm mv addmv dot vdot addr".split())
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

_fine: set[Any] = set()


def raised_by_kernel(op: Any, args: Any, kwargs: Any, result: Any) -> Exception | None:
    """What the real kernel raises for operands of these dtypes and shapes, None where it runs or is not asked."""
    if not _is_asked(op):
        return None
    every = [leaf for leaf in leaves((args, kwargs, result)) if isinstance(leaf, torch.Tensor)]
    if not every or _runs(op, every) or divides(op, args) or not all(map(_is_plain, every)):
        return None
    if _is_open((args, kwargs), every):
        return None
    key = (op, *_kind((args, kwargs)))
    if key in _fine:
        return None
    if TrialMemory(every, hint).size_bytes > LARGEST_BYTES:
        return None
    with torch_compat.beside_modes(), torch_compat.without_autocast():
        found = eager_exception(op, args, kwargs, hint)
    if isinstance(found, (RuntimeError, IndexError, ValueError, TypeError)):
        return found
    _fine.add(key)
    return None


def is_product(op: Any) -> bool:
    """True for products of matrices and vectors: their kernels stay kernels in every backend, and raise there too."""
    return op._schema.name.partition("::")[2].rstrip("_") in _PRODUCTS


@functools.cache
def _is_asked(op: Any) -> bool:
    """False for views, for operators that are made of others, and for those that zeros say nothing about."""
    if op.namespace not in PURE_NAMESPACES or op.is_view or torch_compat.is_composite(op):
        return False
    return not op._schema.name.partition("::")[2].startswith(_BY_VALUE)


@functools.cache
def _takes_floats(op: Any) -> bool:
    return not op._schema.name.partition("::")[2].startswith(_NOT_OF_FLOATS)


def _runs(op: Any, tensors: list[torch.Tensor]) -> bool:
    """True where it is known without a trial: floats of one dtype and at least one element."""
    first = tensors[0].dtype
    return (
        first in _FLOATS
        and _takes_floats(op)
        and all(tensor.dtype is first and not _empty(tensor) for tensor in tensors)
    )


def _empty(tensor: torch.Tensor) -> tuple[int, ...]:
    """The dimensions that are known to have no elements."""
    return tuple(at for at, size in enumerate(tensor.shape) if isinstance(size, int) and not size)


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized


def _is_open(tree: Any, tensors: list[torch.Tensor]) -> bool:
    """True where a number or a size is one that only the data knows."""
    numbers = [*leaves(tree), *(size for tensor in tensors for size in tensor.shape)]
    return any(isinstance(number, _SYMBOLIC) and tracing.depends_on_data(number) for number in numbers)


def _kind(tree: Any) -> Iterator[Any]:
    """What of the operands decides whether there is a kernel."""
    for leaf in leaves(tree):
        if isinstance(leaf, torch.Tensor):
            yield leaf.dtype, leaf.ndim, _empty(leaf)
        elif isinstance(leaf, (torch.dtype, bool, str, type(None))):
            yield leaf
        else:
            yield type(leaf), isinstance(leaf, (int, float)) and not leaf
