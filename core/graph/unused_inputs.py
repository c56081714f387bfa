"""Inputs that nothing in a finished graph reads: code that only asked for a tensor's shape, dtype or identity."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.fx as fx

from .captured import GraphInput
from .recorder import AtenRecord


def drop_unused(
    graph: fx.Graph, nodes: Sequence[fx.Node], inputs: Sequence[GraphInput], record: AtenRecord | None
) -> tuple[GraphInput, ...]:
    """The inputs that stay, renumbered; the placeholders and the facts of the others go. Without nodes all stay.

    Tensors with symbolic sizes stay, since the symbols get their values from them, and so do symbolic numbers.
    """
    kept = [at for at, (node, item) in enumerate(zip(nodes, inputs)) if node.users or not _is_plain(item)]
    if len(kept) == len(nodes):
        return tuple(inputs)
    for at in set(range(len(nodes))).difference(kept):
        graph.erase_node(nodes[at])
    if record is not None:
        record.inputs[:] = [record.inputs[at] for at in kept]
        record.facts[:] = [record.facts[at] for at in kept]
    return tuple(dataclasses.replace(inputs[at], index=index) for index, at in enumerate(kept))


def _is_plain(item: GraphInput) -> bool:
    return item.is_tensor and not item.dynamic_dims and not any(isinstance(n, torch.SymInt) for n in item.fake.shape)
