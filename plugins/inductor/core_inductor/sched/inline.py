"""inline: pointwise producers move into the bodies that read them.

Enters: Loops nodes whose bodies load each other. Leaves: fewer nodes with longer bodies. A producer moves when it has
one reader that evaluates it no more often than it would itself, or when computing it again is cheaper than reading it
back. What stays is joined, where possible, by fusion, which evaluates every member once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..ir import expr
from ..ir.body import BodyBuilder
from ..ir.expr import Indirect, atoms_of
from ..ir.graph import LoopGraph, leaves
from ..ir.nodes import CHEAP, Extern, Loops, Node, Op, Pointwise, Strided

MAX_OPS = 400
"""Longest body that inlining may make: beyond it compilers slow down and registers spill."""

CHEAP_OPS = 12
CHEAP_LOADS = 3
"""A body within both limits and of cheap operations only is recomputed by every reader."""


@dataclass
class Uses:
    """Who reads a node: the Loops nodes that load it, and whether a real tensor of it is needed."""

    readers: dict[Node, list[Loops]]
    pinned: set[Node]


def pinned_nodes(graph: LoopGraph) -> set[Node]:
    """Nodes that extern calls or outputs need as tensors."""
    found: set[Node] = set()
    for item in graph.items:
        if isinstance(item, Extern):
            found.update(leaf.node for leaf in leaves((item.args, item.kwargs)) if isinstance(leaf, Strided))
    found.update(output.node for output in graph.outputs if isinstance(output, Strided))
    return found


def count_uses(graph: LoopGraph) -> Uses:
    """Readers of every node."""
    readers: dict[Node, list[Loops]] = {}
    for node in graph.loops():
        for op in node.loads():
            known = readers.setdefault(op.attr[0], [])
            if not known or known[-1] is not node:
                known.append(node)
    return Uses(readers, pinned_nodes(graph))


def remove_dead(graph: LoopGraph) -> None:
    """Drop Loops nodes that nothing reads, and extern calls without effect whose results nothing reads."""
    live = pinned_nodes_of_outputs(graph)
    kept: list[Any] = []
    for item in reversed(graph.items):
        if isinstance(item, Loops):
            if item not in live:
                continue
            live.update(op.attr[0] for op in item.loads())
        elif isinstance(item, Extern):
            used = any(r in live for r in item.results) or item.effect or _scalar_result(item)
            if not used and not item.binds and not item.size_binds:
                continue
            live.update(leaf.node for leaf in leaves((item.args, item.kwargs)) if isinstance(leaf, Strided))
        kept.append(item)
    graph.items = kept[::-1]


def _scalar_result(item: Extern) -> bool:
    return not item.results


def pinned_nodes_of_outputs(graph: LoopGraph) -> set[Node]:
    """Nodes that the program returns."""
    return {output.node for output in graph.outputs if isinstance(output, Strided)}


def inline(graph: LoopGraph) -> None:
    """Rewrite the graph's bodies in order."""
    uses = count_uses(graph)
    for node in graph.loops():
        Inliner(node, uses).run()
    remove_dead(graph)


class Inliner:
    """Rewrites the body of one node."""

    def __init__(self, node: Loops, uses: Uses) -> None:
        self.node = node
        self.uses = uses
        self.builder = BodyBuilder()

    def run(self) -> None:
        """Replace the body when any of its loads can be computed in place."""
        node = self.node
        chosen = {op.attr[0] for op in node.loads() if self.should_inline(op)}
        if not chosen:
            return
        positions: list[int] = []
        for op in node.body:
            positions.append(self._moved(op, positions, chosen))
        node.body = self.builder.ops
        node.result = positions[node.result]
        compact(node)

    def _moved(self, op: Op, positions: list[int], chosen: set[Node]) -> int:
        args = tuple(positions[a] for a in op.args)
        if op.name == "load" and op.attr[0] in chosen:
            producer, index = op.attr
            return self.builder.inline(producer, index, producer.variables, args)
        if op.name == "masked_load" and op.attr[0] in chosen:
            producer, index = op.attr
            value = self.builder.inline(producer, index, producer.variables, args[2:], mask=args[0])
            return self.builder.where(args[0], value, args[1])
        if op.name == "const":
            return self.builder.const(op.attr, op.dtype)
        if op.name == "where":
            return self.builder.where(*args)
        return self.builder.emit(op.name, args, op.dtype, op.attr)

    def should_inline(self, op: Op) -> bool:
        """Whether the loaded node is better computed here than read."""
        producer = op.attr[0]
        if not isinstance(producer, Pointwise):
            return False
        loads = sum(1 for _ in producer.loads())
        if loads == 0 and is_cheap(producer):
            return True
        if producer in self.uses.pinned or len(producer.body) + len(self.node.body) > MAX_OPS:
            return False
        if is_cheap(producer) and loads <= CHEAP_LOADS:
            return True
        if len(self.uses.readers.get(producer, ())) > 1 or self._distinct_reads(producer) > 1:
            return False
        return self._evaluations(op) <= max(expr.hint(producer.numel), 1) * (2 if op.name == "masked_load" else 1)

    def _distinct_reads(self, producer: Node) -> int:
        return len({op.attr[1] for op in self.node.loads() if op.attr[0] is producer})

    def _evaluations(self, op: Op) -> int:
        """How often the load happens: once for each run through the loops that are outside of its innermost
        variable."""
        atoms = {a for i in op.attr[1] for a in atoms_of(i)}
        if any(isinstance(a, Indirect) for a in atoms):
            return 1 << 62
        count = deepest = 1
        for variable, size in zip(self.node.variables, self.node.space):
            count *= expr.hint(size)
            if not isinstance(variable, int) and not atoms.isdisjoint(atoms_of(variable)):
                deepest = count
        return deepest


def is_cheap(node: Loops) -> bool:
    """True when evaluating the body costs less than reading its result from memory."""
    return len(node.body) <= CHEAP_OPS and all(op.name in CHEAP for op in node.body)


def compact(node: Loops) -> None:
    """Drop operations that the result does not need."""
    needed = needed_positions(node.body, [node.result])
    moved: dict[int, int] = {}
    body: list[Op] = []
    for position, op in enumerate(node.body):
        if position in needed:
            moved[position] = len(body)
            body.append(op._replace(args=tuple(moved[a] for a in op.args)))
    node.body = body
    node.result = moved[node.result]


def needed_positions(body: list[Op], roots: list[int], stop: Callable[[int], bool] | None = None) -> set[int]:
    """Positions reachable from the roots through operands."""
    needed: set[int] = set()
    pending = list(roots)
    while pending:
        position = pending.pop()
        if position in needed:
            continue
        needed.add(position)
        if stop is None or not stop(position):
            pending.extend(body[position].args)
    return needed
