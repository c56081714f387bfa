"""Geometry: sizes, strides and storage of fake tensors, compared without asking a guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .. import torch_compat
from .symbols import expression


def same_geometry(left: Any, right: Any) -> bool:
    """Equal sizes and, but for dimensions of size 1, equal strides. Symbolic numbers are compared as expressions."""
    if left is right:
        return True
    if left.ndim != right.ndim:
        return False
    pairs = zip(left.shape, right.shape, left.stride(), right.stride())
    return all(_same(a, b) and (_same(a, 1) or _same(s, t)) for a, b, s, t in pairs)


def same_numbers(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether sizes, or strides, are the same, decided by structure alone."""
    return len(left) == len(right) and all(map(_same, left, right))


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    return bool(expression(left) == expression(right))  # sympy's == compares structure and asks no guard


def is_contiguous(fake: Any) -> bool:
    """Row-major without gaps, decided by structure alone."""
    return _is_dense(fake, range(fake.ndim))


def is_dense(fake: Any) -> bool:
    """Without gaps in some order of the dimensions, decided by structure: true for every value of the symbols."""
    return _is_dense(fake, sorted(range(fake.ndim), key=lambda dim: (-hint(fake.stride(dim)), dim)))


def _is_dense(fake: Any, order: Sequence[int]) -> bool:
    expected: Any = 1
    for dim in reversed(order):
        size, stride = fake.shape[dim], fake.stride(dim)
        if not _same(size, 1) and not _same(stride, expected):
            return False
        expected = expected * size
    return True


def is_static(fake: Any) -> bool:
    """True for sizes and strides that are numbers."""
    return all(isinstance(number, int) for number in (*fake.shape, *fake.stride()))


def overlaps(val: Any) -> bool:
    """True when two elements may share memory, decided on the sizes of this call; a repeated symbolic size counts."""
    if any(isinstance(stride, int) and stride == 0 and not isinstance(size, int) for size, stride in _dims(val)):
        return True
    dims = sorted((hint(stride), hint(size)) for size, stride in _dims(val) if hint(size) > 1)
    reach = 0
    for stride, size in dims:
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _dims(fake: Any) -> Iterator[tuple[Any, Any]]:
    return zip(fake.shape, fake.stride())


def hint(value: Any) -> int:
    """A plain int for a size of this call, without a guard."""
    return value if isinstance(value, int) else torch_compat.hint_of(value)


def extent(fake: Any) -> int:
    """Elements of memory from the first to the last of the tensor, on the sizes of this call."""
    if any(hint(size) == 0 for size in fake.shape):
        return 0
    return 1 + sum((hint(size) - 1) * hint(stride) for size, stride in zip(fake.shape, fake.stride()))


def storage_key(fake: Any) -> int:
    """Equal for tensors that share a storage, as long as one of them lives."""
    return fake.untyped_storage()._cdata


def has_storage(fake: Any) -> bool:
    """False for layouts without one storage (sparse)."""
    return fake.layout is torch.strided
