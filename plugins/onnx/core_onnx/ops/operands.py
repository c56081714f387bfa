"""What the converters of several families do with their arguments: tensors and numbers brought to one dtype."""

from __future__ import annotations

from typing import Any

import torch

from ..builder import ModelBuilder, Value


def operand(builder: ModelBuilder, value: Any, dtype: torch.dtype) -> Value:
    """A tensor, a symbolic number or a number as a Value of `dtype`."""
    if isinstance(value, Value):
        return builder.cast(value, dtype)
    return builder.scalar(value, dtype)


def common_dtype(*values: Any) -> torch.dtype:
    """The dtype in which torch computes an operation of these tensors and numbers."""
    fakes = [value.fake if isinstance(value, Value) else value for value in values]
    numbers = [_plain(fake) for fake in fakes]
    if len(numbers) == 1:
        return values[0].dtype
    result = torch.result_type(numbers[0], numbers[1])
    for other in numbers[2:]:
        result = torch.result_type(torch.empty((), dtype=result), other)
    return result


def _plain(fake: Any) -> Any:
    if isinstance(fake, torch.SymInt):
        return 1
    if isinstance(fake, torch.SymFloat):
        return 1.0
    if isinstance(fake, torch.SymBool):
        return True
    return fake


def axes_of(dims: Any, rank: int) -> list[int]:
    """Dimensions as non-negative axes; None or an empty list means all."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    given = dims if isinstance(dims, (list, tuple)) else [dims]
    return sorted(dim % rank if rank else 0 for dim in given) if rank else []
