"""What autograd would do with each output of a program by itself: which inputs its gradient reaches, what it uses up.

Enters: the tensors at which a backward may start, each with the history that eager gives it, and the edges at which it
ends. A backward through eager's nodes frees what those nodes have saved, and another one that meets such a node is an
error; nodes that save nothing may run any number of times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..torch_compat import saved
from .geometry import has_storage, storage_key


@dataclass(frozen=True)
class Reach:
    """By start: the positions of the edges that it reaches, and of the starts that a backward from it leaves unusable
    (those that meet a node with saved tensors which this backward has met; itself among them if there is any). keeps:
    keys of the storages of which something is saved on its way. cuts: the starts at which its way ends. alone: the
    starts that no other one shares its first node with."""

    inputs: tuple[frozenset[int], ...]
    frees: tuple[frozenset[int], ...]
    keeps: tuple[frozenset[Any], ...]
    cuts: tuple[frozenset[int], ...] = ()
    alone: frozenset[int] = frozenset()

    @staticmethod
    def unknown(starts: int, edges: int) -> Reach:
        """Every start reaches every edge and uses up everything."""
        return Reach((frozenset(range(edges)),) * starts, (frozenset(range(starts)),) * starts, (frozenset(),) * starts)


def gradient_edge(start: Any) -> Any:
    """The gradient edge of a tensor; an edge as it is."""
    return torch.autograd.graph.get_gradient_edge(start) if isinstance(start, torch.Tensor) else start


def autograd_reach(starts: Sequence[Any], edges: Sequence[Any], cuts: Sequence[int] = ()) -> Reach:
    """Walk the nodes between `starts`, tensors or gradient edges, and the gradient edges `edges`, without going behind
    those; nor from one start behind another one that is in `cuts`."""
    ends = {(edge.node, edge.output_nr): at for at, edge in enumerate(edges)}
    inputs = dict(ends)
    roots = [gradient_edge(start) for start in starts]
    ends.update(((roots[cut].node, roots[cut].output_nr), len(edges) + at) for at, cut in enumerate(cuts))
    met: dict[Any, int] = {}
    reached = [0] * (len(edges) + len(cuts))
    for at, root in enumerate(roots):
        end = inputs.get((root.node, root.output_nr))
        if end is None:
            met[root.node] = met.get(root.node, 0) | 1 << at
        else:
            reached[end] |= 1 << at
    order, below = in_order(list(met), ends)
    together: set[int] = set()
    keepers: dict[int, int] = {}
    for node in order:
        mask = met[node]
        for key in below[node]:
            end = ends.get(key)
            if end is None:
                met[key[0]] = met.get(key[0], 0) | mask
            else:
                reached[end] |= mask
        kept = saved.saved_by(node)
        if kept is not None:
            together.add(mask)
            for key in {storage_key(tensor) for tensor in kept if has_storage(tensor)}:
                keepers[key] = keepers.get(key, 0) | mask
    count, sharers = range(len(starts)), Counter(root.node for root in roots)
    return Reach(
        tuple(frozenset(end for end in range(len(edges)) if reached[end] >> at & 1) for at in count),
        tuple(frozenset(o for o in count if any(m >> at & 1 and m >> o & 1 for m in together)) for at in count),
        tuple(frozenset(key for key, mask in keepers.items() if mask >> at & 1) for at in count),
        tuple(frozenset(c for end, c in enumerate(cuts, len(edges)) if reached[end] >> at & 1) for at in count),
        frozenset(at for at in count if sharers[roots[at].node] == 1),
    )


def in_order(roots: list[Any], ends: dict[Any, int]) -> tuple[list[Any], dict[Any, list[Any]]]:
    """The nodes at and behind `roots`, each before those that follow it, and the edges that lead on from each."""
    below: dict[Any, list[Any]] = {}
    finished: list[Any] = []
    for root in roots:
        pending = [(root, False)]
        while pending:
            node, done = pending.pop()
            if done:
                finished.append(node)
            elif node not in below:
                below[node] = [key for key in node.next_functions if key[0] is not None]
                pending.append((node, True))
                pending += [(key[0], False) for key in below[node] if key not in ends and key[0] not in below]
    return finished[::-1], below
