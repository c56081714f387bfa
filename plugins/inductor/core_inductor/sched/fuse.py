"""fuse: nodes that share an iteration space become groups, and everything gets an order.

Enters: the items of a LoopGraph. Leaves: a list of Group and Extern in execution order. Nodes are visited in graph
order; each joins the group from which it saves most memory traffic, if the space fits, every load of a member is
aligned, and no path would lead out of the group and back into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..ir import expr
from ..ir.graph import LoopGraph, PythonValue, leaves
from ..ir.nodes import Extern, Loops, Node, Op, Reduce, Scalar, Strided
from .space import (
    Map,
    Placement,
    Space,
    aligned,
    moved_map,
    place_by_load,
    place_first,
    place_natural,
)

MAX_MEMBERS = 64
MAX_BUFFERS = 48
"""Limits of one kernel: past them the pointers no longer fit registers and compilers slow down."""

CACHE_BYTES = 512 * 1024
"""How much of one row (or column block) may be walked several times: about half of a core's L2."""

CANDIDATES = 8


@dataclass(eq=False)
class Group:
    """Nodes evaluated in one loop nest. maps: each member's variables over the space. stage: walks that come before."""

    position: int
    nodes: list[Loops] = field(default_factory=list)
    space: Space = field(default_factory=Space)
    maps: dict[Node, Map] = field(default_factory=dict)
    stage: dict[Node, int] = field(default_factory=dict)
    reads: set[Node] = field(default_factory=set)


Unit = Group | Extern | PythonValue


class Fuser:
    """Forms the groups of one graph."""

    def __init__(self, graph: LoopGraph) -> None:
        self.graph = graph
        self.units: list[Unit] = []
        self.unit_of: dict[Node, int] = {}
        self.before: list[int] = []
        self.readers: dict[Node, list[int]] = {}
        self.defined: dict[str, int] = {}
        self.last_effect: int | None = None

    def run(self) -> list[Unit]:
        """The units of the graph in an order in which they can run."""
        for item in self.graph.items:
            if isinstance(item, Loops):
                self._node(item)
            else:
                self._call(item)
        return self._ordered()

    # --- dependencies ------------------------------------------------------------------------------------------------

    def _new_unit(self, unit: Unit, needs: set[int]) -> int:
        number = len(self.units)
        self.units.append(unit)
        self.before.append(self._closure(needs))
        return number

    def _closure(self, needs: set[int]) -> int:
        mask = 0
        for n in needs:
            mask |= self.before[n] | (1 << n)
        return mask

    def _call(self, item: Extern | PythonValue) -> None:
        args = (item.args, item.kwargs) if isinstance(item, Extern) else item.args
        needs: set[int] = set()
        for leaf in leaves(args):
            needs |= self._needs_of_leaf(leaf)
        if isinstance(item, Extern) and item.effect:
            if self.last_effect is not None:
                needs.add(self.last_effect)
            self.last_effect = len(self.units)
        number = self._new_unit(item, needs)
        self.defined[item.name] = number
        if isinstance(item, Extern):
            for result in item.results:
                self.unit_of[result] = number
            if item.binds:
                self.defined[item.binds] = number
            self.defined.update((symbol, number) for symbol, _, _ in item.size_binds)
        else:
            for symbol, (source, _) in self.graph.bindings.items():
                if source == item.name:
                    self.defined[symbol] = number

    def _needs_of_leaf(self, leaf: Any) -> set[int]:
        if isinstance(leaf, Strided):
            needs = self._needs_of_size(leaf.offset)
            if leaf.node in self.unit_of:
                needs.add(self.unit_of[leaf.node])
            for e in (*leaf.sizes, *leaf.strides):
                needs |= self._needs_of_size(e)
            return needs
        if isinstance(leaf, Scalar):
            if leaf.expr is not None:
                return self._needs_of_size(leaf.expr)
            name = (leaf.name or "").split("[")[0]
            return {self.defined[name]} if name in self.defined else set()
        return set()

    def _needs_of_size(self, e: expr.Index) -> set[int]:
        if isinstance(e, int) or not self.defined:
            return set()
        names = (a.name for a in expr.atoms_of(e) if isinstance(a, expr.SizeVar))
        return {self.defined[n] for n in names if n in self.defined}

    def _needs_of_node(self, node: Loops) -> set[int]:
        needs: set[int] = set()
        for op in node.body:
            if op.name in ("load", "masked_load"):
                if op.attr[0] in self.unit_of:
                    needs.add(self.unit_of[op.attr[0]])
            elif op.name == "scalar" and op.attr.split("[")[0] in self.defined:
                needs.add(self.defined[op.attr.split("[")[0]])
        if self.defined:
            for e in (*node.space, *(i for op in node.body for i in _indices(op))):
                needs |= self._needs_of_size(e)
        return needs

    # --- grouping ----------------------------------------------------------------------------------------------------

    def _node(self, node: Loops) -> None:
        needs = self._needs_of_node(node)
        for number in self._candidates(node, needs):
            group = self.units[number]
            assert isinstance(group, Group)
            if self._cyclic(number, needs):
                continue
            placement = self._placement(group, node)
            if placement is not None:
                self._join(number, group, node, placement, needs)
                return
        group = Group(len(self.units))
        number = self._new_unit(group, needs)
        self._join(number, group, node, place_first(node), set())

    def _candidates(self, node: Loops, needs: set[int]) -> list[int]:
        """Groups worth joining, most bytes saved first."""
        saved: dict[int, int] = {}
        for source in {op.attr[0] for op in node.loads()}:
            size = expr.hint(source.numel) * source.item_bytes
            number = self.unit_of.get(source)
            if number is not None and isinstance(self.units[number], Group):
                saved[number] = saved.get(number, 0) + 2 * size
            for reader in self.readers.get(source, ())[-CANDIDATES:]:
                if reader != number:
                    saved[reader] = saved.get(reader, 0) + size
        return sorted(saved, key=lambda n: (-saved[n], -n))[:CANDIDATES]

    def _cyclic(self, number: int, needs: set[int]) -> bool:
        """True when something the node needs comes after the group."""
        bit = 1 << number
        return any(n != number and self.before[n] & bit for n in needs)

    def _placement(self, group: Group, node: Loops) -> Placement | None:
        if len(group.nodes) >= MAX_MEMBERS or len(group.reads) >= MAX_BUFFERS:
            return None
        if expr.product(node.space) == 0:
            return None
        inside = [op for op in node.loads() if op.attr[0] in group.maps]
        placement = place_natural(group.space, node)
        if placement is not None and self._fits(group, node, placement, inside):
            return placement
        for op in inside:
            producer = op.attr[0]
            placement = place_by_load(group.space, node, op, group.maps[producer])
            if placement is not None and self._fits(group, node, placement, inside):
                return placement
        return None

    def _fits(self, group: Group, node: Loops, placement: Placement, inside: list[Op]) -> bool:
        for op in inside:
            producer = op.attr[0]
            producer_map = group.maps[producer]
            if placement.moved is not None:
                producer_map = moved_map(producer_map, placement.moved)
            if not aligned(op, placement.own, producer, producer_map):
                return False
        # Strangers that share an operand join only when they walk it in the same order.
        if not inside and not self._shares_load(group, node, placement):
            return False
        return self._row_is_cached(group, node, placement, inside)

    def _shares_load(self, group: Group, node: Loops, placement: Placement) -> bool:
        mine = {
            (op.attr[0], tuple(expr.substitute(i, placement.own) for i in op.attr[1]))
            for op in node.loads()
            if not op.args
        }
        for member in group.nodes:
            mapping = group.maps[member]
            if placement.moved is not None:
                mapping = moved_map(mapping, placement.moved)
            for op in member.loads():
                if (op.attr[0], tuple(expr.substitute(i, mapping) for i in op.attr[1])) in mine:
                    return True
        return False

    def _row_is_cached(self, group: Group, node: Loops, placement: Placement, inside: list[Op]) -> bool:
        """A second walk over the reduced dimensions pays only while they stay in cache and rows keep threads busy."""
        stage = self._stage(group, node, inside)
        if not placement.space.reducing or stage == 0 or not placement.full:
            return True
        rows = expr.hint(placement.space.extent(placement.space.rows))
        cols = expr.hint(placement.space.extent(placement.space.cols))
        if rows * cols <= 65536:
            return True
        inner = placement.space.variables[-1] if placement.space.variables else 0
        by_column = inner in placement.space.rows
        width = min(64, expr.hint(expr.atoms_of(inner).pop().size)) if by_column else 1  # type: ignore[attr-defined]
        return rows >= 4 and cols * width * 4 <= CACHE_BYTES

    def _stage(self, group: Group, node: Loops, inside: list[Op]) -> int:
        stage = 0
        for op in inside:
            producer = op.attr[0]
            after = 1 if isinstance(producer, Reduce) else 0
            stage = max(stage, group.stage[producer] + after)
        return stage

    def _join(self, number: int, group: Group, node: Loops, placement: Placement, needs: set[int]) -> None:
        inside = [op for op in node.loads() if op.attr[0] in group.maps]
        group.stage[node] = self._stage(group, node, inside)
        if placement.moved is not None:
            group.maps = {n: moved_map(m, placement.moved) for n, m in group.maps.items()}
        group.space = placement.space
        group.maps[node] = placement.own
        group.nodes.append(node)
        self.unit_of[node] = number
        for op in node.loads():
            if op.attr[0] not in group.maps:
                group.reads.add(op.attr[0])
                self.readers.setdefault(op.attr[0], []).append(number)
        extra = self._closure(needs - {number}) & ~self.before[number]
        if extra:
            bit = 1 << number
            for k, mask in enumerate(self.before):
                if k == number or mask & bit:
                    self.before[k] = mask | extra

    # --- order -------------------------------------------------------------------------------------------------------

    def _ordered(self) -> list[Unit]:
        """Units in graph order, each preceded by what it needs (which always has fewer units before it)."""
        done = 0
        order: list[int] = []
        for number in range(len(self.units)):
            missing = (self.before[number] | (1 << number)) & ~done
            numbers = []
            while missing:
                low = missing & -missing
                numbers.append(low.bit_length() - 1)
                missing ^= low
            numbers.sort(key=lambda n: (self.before[n].bit_count(), n))
            order.extend(numbers)
            for n in numbers:
                done |= 1 << n
        return [self.units[n] for n in order]


def _indices(op: Op) -> Iterator[expr.Index]:
    if op.name in ("load", "masked_load"):
        yield from op.attr[1]
    elif op.name == "index":
        yield op.attr
    elif op.name == "index_below":
        yield from op.attr
