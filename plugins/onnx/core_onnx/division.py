"""A region's nodes, divided between a runtime and torch: what the runtime can't compute is a call of ATen.

Enters: a functional graph, and which of its nodes are torch's. Leaves: steps in an order that respects what each reads;
the runtime's are graphs of their own, as large as that order lets them be.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass

import torch
import torch.fx as fx


@dataclass(frozen=True)
class ModelStep:
    """A part for the runtime. graph: reads the values of `inputs`, returns those of `outputs`, nodes of the whole."""

    graph: fx.GraphModule
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]


@dataclass(frozen=True)
class LibraryStep:
    """One call of ATen, or of Python's arithmetic of sizes."""

    node: fx.Node


Step = ModelStep | LibraryStep


def divided(graph: fx.GraphModule, lent: Collection[fx.Node]) -> list[Step]:
    """The steps of a graph. lent: the nodes that torch computes; it draws the random numbers too, and
    numbers are Python's."""
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    library: dict[fx.Node, bool] = {}
    levels: dict[fx.Node, int] = {}
    drawn = 0  # random numbers keep their order
    for node in calls:
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, fx.Node) and source in library:
            library[node] = library[source]
        else:
            library[node] = node in lent or _is_number(node) or _draws(node)
        before = [one for one in node.all_input_nodes if one in levels]
        level = max((levels[one] + (library[one] is not library[node]) for one in before), default=0)
        if _draws(node):
            level = drawn = max(level, drawn)
        levels[node] = level
    steps: list[Step] = []
    for level in range(max(levels.values(), default=-1) + 1):
        here = [node for node in calls if levels[node] == level]
        own = [node for node in here if not library[node]]
        if own:
            steps.append(_model_step(graph, own))
        steps += [LibraryStep(node) for node in here if library[node]]
    return steps


def _is_number(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value[0] if isinstance(value, (tuple, list)) and value else value, torch.Tensor)


def _draws(node: fx.Node) -> bool:
    tags = getattr(node.target, "tags", None)
    if tags is None:  # an operator that writes, on clones
        tags = getattr(node.args[0], "tags", ()) if node.args else ()
    return torch.Tag.nondeterministic_seeded in tags


def _model_step(graph: fx.GraphModule, nodes: list[fx.Node]) -> ModelStep:
    inside = set(nodes)
    read = dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one not in inside)
    made = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = tuple(one for one in read if one.op != "get_attr")
    for one in inputs:
        copies[one] = made.placeholder(one.name)
        copies[one].meta = dict(one.meta)
    for one in read:
        if one.op == "get_attr":
            copies[one] = made.node_copy(one)
    for node in nodes:
        copies[node] = made.node_copy(node, copies.__getitem__)
    outputs = tuple(node for node in nodes if any(user not in inside for user in node.users))
    made.output(tuple(copies[node] for node in outputs))
    return ModelStep(fx.GraphModule(graph, made), inputs, outputs)
