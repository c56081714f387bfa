"""Cuts in a backward while it is recorded: the whole gradient of a result at which one node of autograd ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from .autograd_reach import gradient_edge
from .node_groups import NodeGroup


class Cuts:
    """A context in which the engine copies the gradients that arrive at the starts which other groups lead to.

    The copy makes two values of one: what is added up there, and what goes on from there.
    """

    def __init__(self, starts: Sequence[Any], groups: Sequence[NodeGroup]) -> None:
        """starts: tensors or gradient edges."""
        self.nodes: list[fx.Node] = []
        self._starts = {cut: starts[cut] for cut in sorted({cut for group in groups for cut in group.cuts})}
        self._seen: dict[int, tuple[Any, Any]] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        for cut, start in self._starts.items():
            edge = gradient_edge(start)
            self._handles.append(edge.node.register_prehook(self._copying(cut, edge.output_nr)))

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _copying(self, cut: int, place: int) -> Callable[..., Any]:
        def copying(gradients: tuple[Any, ...]) -> tuple[Any, ...]:
            whole = gradients[place]
            if whole is None:
                return gradients
            copied = torch.ops.aten.clone.default(whole)
            self._seen[cut] = (whole, copied)
            return (*gradients[:place], copied, *gradients[place + 1 :])

        return copying

    @property
    def complete(self) -> bool:
        """Whether a gradient came by at each of them."""
        return len(self._seen) == len(self._starts)

    def results(self, node_of: Callable[[Any], fx.Node | None], first: int) -> tuple[tuple[int, int, int], ...]:
        """(start, position before, position behind) of each cut, where `nodes` are results from `first` on."""
        found = []
        for cut, (whole, copied) in self._seen.items():
            before, behind = node_of(whole), node_of(copied)
            assert before is not None and behind is not None
            found.append((cut, first + len(self.nodes), first + len(self.nodes) + 1))
            self.nodes += [before, behind]
        return tuple(found)
