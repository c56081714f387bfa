"""Running a function in eager and compiled, and comparing everything a caller can see."""

from __future__ import annotations

import copy
from typing import Any

import torch

import core


def same(left: Any, right: Any) -> bool:
    """Equal in type, structure and value; tensors in dtype, shape, strides and values too."""
    if isinstance(left, torch.Tensor):
        return (
            isinstance(right, torch.Tensor)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and left.requires_grad == right.requires_grad
            and torch.equal(left.detach(), right.detach())
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if hasattr(left, "__dict__") and type(left).__module__ not in ("builtins",):
        return same(vars(left), vars(right))
    return left == right


def check_close(ours: Any, theirs: Any) -> None:
    """Assert that what two runs noted is the same; tensors, in whatever nesting of lists, within their roundings."""
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs):
            check_close(left, right)
    elif isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs)
    else:
        assert ours == theirs


def check(
    fn: Any, *args: Any, graphs: int | None = 1, breaks: int = 0, backend: Any = "eager", calls: int = 2, **kw: Any
):
    """Call eager and compiled on copies of the arguments; results and changed arguments must agree each time."""
    core.reset()
    compiled = core.compile(fn, backend=backend, **kw)
    for _ in range(calls):
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        want = fn(*theirs)
        got = compiled(*ours)
        assert same(got, want), (got, want)
        assert same(list(ours), list(theirs)), "arguments differ afterwards"
    stats = core.stats()
    if graphs is not None:
        assert stats["graphs"] == graphs, stats
    assert stats["breaks"] == breaks, stats
    assert stats["recompiles"] == 0, stats
    return compiled
