"""Places of equal values: operators whose order among them torch leaves open, and what is right for them all the same.

Enters: an operator of torch's table, one of its samples. Leaves: a function that takes eager's places for a backend's
where those name the same values. Places that name other values, or one value twice, stay as they are and fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .samples import Sample, name_of
from .torch_compat import tree_unflatten

PERMUTING = ("sort", "argsort", "topk")
"""No place comes twice along the dimension."""
CHOOSING = ("kthvalue", "median", "nanmedian", "mode")
"""One place of a value that may stand in several."""
_DIM = {"topk": 2, "kthvalue": 2}
"""Where the dimension stands among the arguments; behind the tensor for the others."""

Settle = Callable[[list[Any], Any, Any], Any]
"""(arguments, a backend's result, eager's result) -> the result to compare with eager's."""


def settled_by(op: Any, sample: Sample) -> Settle | None:
    """How to settle the results of a sample; None where every place is determined."""
    name = name_of(op)
    if name not in PERMUTING + CHOOSING or not sample.tensors:
        return None
    args, kwargs = tree_unflatten([None if one is None else one.value for one in sample.rest], sample.tree)
    if kwargs.get("stable"):
        return None
    at = _DIM.get(name, 1)
    dim = kwargs.get("dim", args[at] if len(args) > at else None if name in ("median", "nanmedian") else -1)
    if not isinstance(dim, int):
        return None

    def settle(given: list[Any], got: Any, expected: Any) -> Any:
        x = given[0].detach()
        if isinstance(expected, torch.Tensor):
            return expected if _same(x, got, expected, dim, name) else got
        values, places = got
        return type(expected)((values, expected[1])) if _same(x, places, expected[1], dim, name) else got

    return settle


def _same(x: torch.Tensor, places: torch.Tensor, expected: torch.Tensor, dim: int, name: str) -> bool:
    if places.shape != expected.shape or places.dtype is not expected.dtype or places.dtype is not torch.int64:
        return False
    row, mine, other = (x, places, expected) if x.dim() else (x[None], places.reshape(1), expected.reshape(1))
    if mine.dim() < row.dim():
        mine, other = mine.unsqueeze(dim), other.unsqueeze(dim)
    if not mine.numel():
        return True
    if int(mine.min()) < 0 or int(mine.max()) >= row.shape[dim]:
        return False
    if name in PERMUTING and bool((mine.sort(dim).values.diff(dim=dim) == 0).any()):
        return False
    one, two = row.gather(dim, mine), row.gather(dim, other)
    return bool(((one == two) | ((one != one) & (two != two))).all())
