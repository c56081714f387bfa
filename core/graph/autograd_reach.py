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
class Use:
    """Nodes that save tensors and that the same starts lead to, and the same ends lie behind. ends: positions of edges;
    cuts: starts; keeps: keys of the storages of which they save something."""

    starts: frozenset[int]
    ends: frozenset[int]
    cuts: frozenset[int] = frozenset()
    keeps: frozenset[Any] = frozenset()


@dataclass(frozen=True)
class Reach:
    """By start: the positions of the edges that it reaches, and of the starts that a backward from it leaves unusable
    (those that meet a node with saved tensors which this backward has met; itself among them if there is any). keeps:
    keys of the storages of which something is saved on its way. cuts: the starts at which its way ends. alone: the
    starts that no other one shares its first node with. uses: the nodes with saved tensors."""

    inputs: tuple[frozenset[int], ...]
    frees: tuple[frozenset[int], ...]
    keeps: tuple[frozenset[Any], ...]
    cuts: tuple[frozenset[int], ...] = ()
    alone: frozenset[int] = frozenset()
    uses: tuple[Use, ...] = ()

    @staticmethod
    def unknown(starts: int, edges: int) -> Reach:
        """Every start reaches every edge and uses up everything."""
        every, ends = frozenset(range(starts)), frozenset(range(edges))
        return Reach((ends,) * starts, (every,) * starts, (frozenset(),) * starts, uses=(Use(every, ends),))


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
    leads = _leads(order, below, ends)
    together: dict[tuple[int, int], set[Any]] = {}
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
            keys = {storage_key(tensor) for tensor in kept if has_storage(tensor)}
            together.setdefault((mask, leads[node]), set()).update(keys)
            for key in keys:
                keepers[key] = keepers.get(key, 0) | mask
    count, sharers = range(len(starts)), Counter(root.node for root in roots)
    masks = {mask for mask, _ in together}
    return Reach(
        tuple(frozenset(end for end in range(len(edges)) if reached[end] >> at & 1) for at in count),
        tuple(frozenset(o for o in count if any(m >> at & 1 and m >> o & 1 for m in masks)) for at in count),
        tuple(frozenset(key for key, mask in keepers.items() if mask >> at & 1) for at in count),
        tuple(frozenset(c for end, c in enumerate(cuts, len(edges)) if reached[end] >> at & 1) for at in count),
        frozenset(at for at in count if sharers[roots[at].node] == 1),
        tuple(
            Use(
                frozenset(at for at in count if mask >> at & 1),
                frozenset(end for end in range(len(edges)) if led >> end & 1),
                frozenset(c for end, c in enumerate(cuts, len(edges)) if led >> end & 1),
                frozenset(keys),
            )
            for (mask, led), keys in together.items()
        ),
    )


def _leads(order: Sequence[Any], below: dict[Any, list[Any]], ends: dict[Any, int]) -> dict[Any, int]:
    """The ends that each node leads to, as bits."""
    found: dict[Any, int] = {}
    for node in reversed(order):
        found[node] = 0
        for key in below[node]:
            found[node] |= 1 << ends[key] if key in ends else found[key[0]]
    return found


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
