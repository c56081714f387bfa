"""Cuts of autograd's nodes at values that are no results: where ways around a result meet those that go through it.

In `y = f(x)`, `z = g(y) + x.sin()` with the results y and z, what makes x belongs neither to the node of z nor to that
of y alone: a way around y leads there. So the gradient of x passes from one node to another through a value that nobody
holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MOST = 48
"""With more cuts than this, results on each other's way stay one node: each cut is one more node to run."""


@dataclass(frozen=True)
class HiddenStart:
    """A value inside of the program at which a node of autograd ends. start, steps: the way to it from a result, each
    step the name of a node and the place of the next one; output: which of the last one's results it is. shape: as
    recorded, then with a SlotRef for each symbol."""

    start: int
    steps: tuple[tuple[str, int], ...]
    output: int
    shape: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device

    def edge(self, root: torch.Tensor) -> Any:
        """The value's gradient edge in another run of the program, where `root` is the result. None: runs differ."""
        node: Any = torch.autograd.graph.get_gradient_edge(root).node
        for name, place in self.steps:
            if node is None or node.name() != name or place >= len(node.next_functions):
                return None
            node = node.next_functions[place][0]
        return None if node is None else torch.autograd.graph.GradientEdge(node, self.output)


def hidden_cuts(
    order: Sequence[Any], below: Mapping[Any, Sequence[Any]], ends: Collection[Any], cuts: Collection[Any]
) -> list[Any] | None:
    """The edges to cut besides `cuts`, so that every way between two parts goes through a cut; None for too many.

    order: nodes, each before those that follow it; below: the edges that lead on from each.
    """
    found: dict[Any, None] = {}
    while len(found) <= MOST:
        levels: dict[Any, int] = {}
        for node in order:
            level = levels.setdefault(node, 0)
            for key in below[node]:
                if key not in ends:
                    step = key in cuts or key in found
                    levels[key[0]] = max(levels.get(key[0], 0), level + step)
        around = [
            key
            for node in order
            for key in below[node]
            if key not in ends and key not in cuts and key not in found and levels[key[0]] > levels[node]
        ]
        if not around:
            return list(found)
        found.update(dict.fromkeys(around))
    return None


def hidden_start(roots: Sequence[Any], key: Any) -> HiddenStart | None:
    """What is known of the value with the edge `key`, behind one of `roots`; None where it lies behind none."""
    node, output = key
    facts = node._input_metadata[output]
    shape = tuple(facts.shape)
    ways: dict[Any, tuple[int, tuple[tuple[str, int], ...]]] = {}
    pending = []
    for at, root in enumerate(roots):
        if root.node not in ways:
            ways[root.node] = (at, ())
            pending.append(root.node)
    for step in pending:
        start, steps = ways[step]
        if step is node:
            return HiddenStart(start, steps, output, shape, facts.dtype, facts.device)
        for place, (following, _) in enumerate(step.next_functions):
            if following is not None and following not in ways:
                ways[following] = (start, (*steps, (step.name(), place)))
                pending.append(following)
    return None
