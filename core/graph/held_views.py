"""Results that are views, and that other results are made of: autograd's nodes end there too.

In `v = x.view(-1)`, `y = v.exp()` with the results v and y, callers may ask for the gradient of y with respect to v.
The view is taken outside of the graph, by torch itself; so the node of y takes v, not x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .output_plan import OutputPlan
from .outputs import ViewOfInput, ViewOfSlot


@dataclass(frozen=True)
class HeldView:
    """output: its place among the program's outputs; start: the start that it is a view of, None for an input."""

    output: int
    start: int | None


def held_views(
    outputs: Sequence[Any], plan: OutputPlan, starts: Sequence[int], edges: dict[int, Any]
) -> list[tuple[HeldView, Any, Any]]:
    """Each with its gradient edge, and that of what it is a view of.

    starts: the slots that are differentiable; edges: of each input that takes gradients, its edge before the graph.
    """
    written = {write.input: write.slot for write in plan.epilogue.write_backs}
    found, seen = [], set()
    for at, (kind, fake) in enumerate(zip(plan.epilogue.outputs, outputs)):
        if not isinstance(kind, ViewOfInput | ViewOfSlot) or not fake.requires_grad or id(fake) in seen:
            continue
        seen.add(id(fake))
        slot = written.get(kind.index) if isinstance(kind, ViewOfInput) else kind.index
        start = starts.index(slot) if slot in starts else None
        base = edges.get(kind.index) if start is None and isinstance(kind, ViewOfInput) else None
        if start is not None:
            base = torch.autograd.graph.get_gradient_edge(plan.slot_fakes[starts[start]])
        if base is not None and fake.grad_fn is not None and not fake._backward_hooks:
            found.append((HeldView(at, start), torch.autograd.graph.get_gradient_edge(fake), base))
    return found
