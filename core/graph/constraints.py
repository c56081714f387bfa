"""Constraints: what a program promised of the sizes of inputs, watched while the graph is traced.

A dimension that the program marked dynamic must stay a symbol, and the range that it names must stay open. Which line
fixed a size or narrowed its range is known only while that line is traced, so each decision is followed by a look.
"""

from __future__ import annotations

from typing import Any

from .. import torch_compat
from ..errors import ConstraintViolated, UserLine
from .symbols import DimPolicy, plain


class Constraints:
    """The marked dimensions of one graph, and what was found against them."""

    def __init__(self) -> None:
        self._marked: list[tuple[Any, Any, int, DimPolicy]] = []  # fake tensor, its source, dimension, policy
        self._broken: dict[int, tuple[str, UserLine | None]] = {}  # by place in _marked

    def add(self, fake: Any, source: Any, dim: int, policy: DimPolicy) -> None:
        """Watch a dimension of an input."""
        self._marked.append((fake, source, dim, policy))

    def look(self, line: UserLine | None) -> None:
        """Note what the code of `line` has done to the marked dimensions."""
        for place, (fake, _, dim, policy) in enumerate(self._marked):
            if place not in self._broken:
                problem = _problem(fake.shape[dim], policy)
                if problem:
                    self._broken[place] = (problem, line)

    def check(self) -> None:
        """Raise ConstraintViolated for the first promise that the code broke."""
        self.look(None)
        for place, (problem, line) in sorted(self._broken.items()):
            _, source, dim, _ = self._marked[place]
            name = source.name() if hasattr(source, "name") else str(source)
            raise ConstraintViolated(
                f"dimension {dim} of {name} was marked dynamic, and the code {problem}",
                where=line,
                instead="the graph was not compiled: it would serve fewer sizes than were promised",
                remedy="change the code that depends on the exact size, narrow the mark (min=, max=), "
                "or use maybe_mark_dynamic",
            )


def _problem(size: Any, policy: DimPolicy) -> str:
    now = plain(size)
    if isinstance(now, int):
        return f"fixes its size to {now}"
    if policy.high is None and policy.low < 2:
        return ""
    low, high = torch_compat.bounds_of(now)
    if low > max(policy.low, 2):  # sizes 0 and 1 may always be cases of their own
        return f"works for sizes from {low} on, not from {policy.low}"
    if policy.high is not None and high < policy.high:
        return f"works for sizes up to {high}, not {policy.high}"
    return ""
