"""Type promotion of elementwise operations, by dtype names.

The recorded fake says the result's dtype; promotion is needed only where that is not the type computed in
(comparisons, logical operations). Numbers rank below 0-dim tensors, and those below tensors with dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from ..ir.dtypes import ITEM_BYTES, category
from ..ir.nodes import Scalar, View

_DTYPE_NAMES = {value: name for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
# Aliases (torch.float, torch.half) name the same objects; the width-bearing name wins.
_DTYPE_NAMES.update({getattr(torch, name): name for name in ITEM_BYTES})


def dtype_name(dtype: torch.dtype) -> str:
    """The torch name of a dtype without the module."""
    return _DTYPE_NAMES[dtype]


@lru_cache(maxsize=512)
def promote(left: str, right: str) -> str:
    """The common type of two tensors of one rank class."""
    if left == right:
        return left
    return dtype_name(torch.promote_types(getattr(torch, left), getattr(torch, right)))


def number_dtype(value: Any) -> str:
    """The type a Python number brings into promotion."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) or isinstance(value, Scalar) and value.expr is not None:
        return "int64"
    return dtype_name(torch.get_default_dtype())


def result_dtype(operands: Sequence[Any]) -> str:
    """The common type of tensors (View) and numbers."""
    ranks: list[str | None] = [None, None, None]
    for operand in operands:
        rank, dtype = (
            (0 if operand.sizes else 1, operand.dtype) if isinstance(operand, View) else (2, number_dtype(operand))
        )
        known = ranks[rank]
        ranks[rank] = dtype if known is None else promote(known, dtype)
    result = None
    for dtype in ranks:
        if dtype is None:
            continue
        if result is None:
            result = dtype
        elif category(dtype) > category(result):
            result = dtype
    assert result is not None
    return result
