"""Partition of a functional graph among backends: convex regions, each of one backend, in an order in which they run.

Enters: a graph and a line of backends, the first with the first claim. Leaves: a Plan. What a backend does not support
goes to the next in the line; the last one of core's own takes everything. The pass looks at nodes alone: it compiles
nothing and changes nothing.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.fx as fx

from ..errors import BackendError
from ..graph.partition import is_impure, is_view
from .partition_cost import is_dense, launch_seconds, region_seconds, seconds
from .partition_support import Verdicts, is_work, partitions_itself


@dataclass(frozen=True)
class Region:
    """Nodes that one backend compiles together. owner: its position in the line; nodes: in the graph's order."""

    owner: int
    nodes: tuple[fx.Node, ...]


@dataclass
class Plan:
    """regions: in an order in which they run; reasons: per node why backends before its own don't have it, as (position
    in the line, reason); unclaimed: nodes that nobody takes."""

    regions: list[Region] = field(default_factory=list)
    reasons: dict[fx.Node, list[tuple[int, str]]] = field(default_factory=dict)
    unclaimed: list[fx.Node] = field(default_factory=list)


class Line:
    """The backends that may take nodes of one graph, in order of claim.

    make: position -> the verdicts of the backend there, None behind the last; claimants: how many of them the user
    asked for by name, the rest is the fallback; closed: a claimant yields to no fallback.
    """

    def __init__(self, make: Callable[[int], Verdicts | None], claimants: int, *, closed: bool = False) -> None:
        self.claimants = claimants
        self.closed = closed
        self._make = make
        self._made: list[Verdicts | None] = []

    def at(self, position: int) -> Verdicts | None:
        """The verdicts of a backend; it is looked up when the first node gets so far."""
        while len(self._made) <= position:
            self._made.append(self._make(len(self._made)))
        return self._made[position]

    def owner(self, node: fx.Node, reasons: dict[fx.Node, list[tuple[int, str]]]) -> int | None:
        """The first that supports a node, one that yields if there is no other; what the others said goes to
        `reasons`."""
        position, yielding = 0, None
        against: list[tuple[int, str]] = []
        while (verdicts := self.at(position)) is not None:
            answer = verdicts.of(node)
            if answer.kind != "no":
                if not answer.yields:
                    break
                if yielding is None:
                    yielding = position
            against.append((position, answer.reason or "it does not support the operator"))
            position += 1
            if self.closed and yielding is not None and position >= self.claimants:
                verdicts = None
                break
        if verdicts is None and yielding is not None:
            position, against = yielding, against[:yielding]
        if against:
            reasons[node] = against
        return position if verdicts is not None else yielding


TOO_SMALL = "its region costs less than a call of it, and the next backend has its neighbours"


class Disagreement(Exception):
    """A partition that a backend made can't be used; the text says why."""


def make_plan(
    module: fx.GraphModule,
    line: Line,
    *,
    device: str = "cpu",
    keep_small: bool = False,
    found: Callable[[int, str], None] = lambda position, text: None,
) -> Plan:
    """Divide a graph. keep_small: a claimant keeps regions that cost less than their launch.

    found: is told, by position in the line, what is wrong with a backend's own partition.
    """
    work = [node for node in module.graph.nodes if is_work(node)]
    dropped: list[tuple[Verdicts, fx.Node]] = []
    own: dict[int, list[list[fx.Node]]] = {}
    plan = _divided(module, work, line, own, found)
    if keep_small or len(plan.regions) < 2:
        return plan
    small = [region for region in plan.regions if region.owner < line.claimants and _is_small(region, device)]
    small = [region for region in small if region.owner not in own and _has_taker(region, line)]
    if not small:
        return plan
    for region in small:
        verdicts = line.at(region.owner)
        assert verdicts is not None
        for node in region.nodes:
            if is_work(node):
                dropped.append((verdicts, node))
                verdicts.strike(node, TOO_SMALL)
    merged = _divided(module, work, line, own, found)
    if len(merged.regions) < len(plan.regions):
        return merged
    for verdicts, node in dropped:
        verdicts.forget(node)
    return plan


def shares(plan: Plan, device: str = "cpu") -> list[float]:
    """The share of each region in the graph's cost, by the estimate; by the number of nodes where that says nothing."""
    costs = [region_seconds(region.nodes, device) for region in plan.regions]
    if sum(costs) <= 0:
        costs = [float(sum(map(is_work, region.nodes))) for region in plan.regions]
    total = sum(costs) or 1.0
    return [cost / total for cost in costs]


def _is_small(region: Region, device: str) -> bool:
    return not any(map(is_dense, region.nodes)) and region_seconds(region.nodes, device) < launch_seconds(device)


def _has_taker(region: Region, line: Line) -> bool:
    """Whether the next backend that takes the first node takes all of them."""
    position = region.owner + 1
    while (verdicts := line.at(position)) is not None:
        if all(verdicts.of(node).kind != "no" for node in region.nodes if is_work(node)):
            return True
        position += 1
    return False


def _divided(
    module: fx.GraphModule,
    work: Sequence[fx.Node],
    line: Line,
    own: dict[int, list[list[fx.Node]]],
    found: Callable[[int, str], None],
) -> Plan:
    plan = Plan()
    while True:
        plan.reasons.clear()
        owners = {node: line.owner(node, plan.reasons) for node in work}
        plan.unclaimed = [node for node in work if owners[node] is None]
        if plan.unclaimed:
            return plan
        positions = sorted({at for at in owners.values() if at is not None})
        fresh = [at for at in positions if at not in own and _asks_own(line, at)]
        if not fresh:
            break
        _ask_own(module, line, fresh[0], owners, own, found)
    groups = [group for groups in own.values() for group in groups]
    plan.regions = convex_regions(module.graph, owners, groups)  # type: ignore[arg-type]
    return plan


def _asks_own(line: Line, position: int) -> bool:
    verdicts = line.at(position)
    return verdicts is not None and partitions_itself(verdicts.resolved)


def _ask_own(
    module: fx.GraphModule,
    line: Line,
    position: int,
    owners: dict[fx.Node, int | None],
    own: dict[int, list[list[fx.Node]]],
    found: Callable[[int, str], None],
) -> None:
    """A backend's own partition of the nodes that came to it; what it leaves out goes on to the next."""
    verdicts = line.at(position)
    assert verdicts is not None
    own[position] = []
    claimed = [node for node, owner in owners.items() if owner == position]
    try:
        answer = verdicts.resolved.partition(module, verdicts.ctx)
        if answer is None:
            return
        groups = _checked(module, answer, frozenset(claimed))
        _unit_order(module.graph, [node for node in owners], [*(g for gs in own.values() for g in gs), *groups])
    except BackendError:
        raise
    except Disagreement as wrong:
        found(position, f"its own partition can't be used: {wrong}; core divides the graph")
        return
    except Exception as error:  # the plugin boundary: core has a partition of its own
        found(position, f"partition raised {type(error).__name__}: {error}; core divides the graph")
        return
    own[position] = groups
    listed = {node for group in groups for node in group}
    for node in claimed:
        if node not in listed:
            verdicts.strike(node, "the backend's own partition leaves it out")


def _checked(module: fx.GraphModule, answer: Any, claimed: frozenset[fx.Node]) -> list[list[fx.Node]]:
    """The groups of a partition as work nodes, each in the graph's order. Raises Disagreement."""
    by_name = {node.name: node for node in module.graph.nodes}
    order = {node: at for at, node in enumerate(module.graph.nodes)}
    seen: set[fx.Node] = set()
    groups = []
    for group in answer:
        nodes = []
        for item in group:
            node = by_name.get(item) if isinstance(item, str) else item
            if not isinstance(node, fx.Node) or node not in order:
                raise Disagreement(f"{item!r} is no node of the graph")
            if not is_work(node):
                continue
            if node in seen:
                raise Disagreement(f"{node.name} is in two parts")
            if node not in claimed:
                raise Disagreement(f"{node.name} is not a node that the backend has")
            seen.add(node)
            nodes.append(node)
        if nodes:
            groups.append(sorted(nodes, key=order.__getitem__))
    return groups


# -- regions ----------------------------------------------------------------------------------------------------------


def convex_regions(
    graph: fx.Graph, owners: dict[fx.Node, int], groups: Sequence[Sequence[fx.Node]] = ()
) -> list[Region]:
    """Join nodes of one owner as long as no path leaves a region and comes back. groups: regions that are given.

    Nodes that draw random numbers or write to something keep the order of the graph. Greedy, in one walk: a node joins
    the latest region that feeds it, else the latest there is, else it begins one.
    """
    if not groups and len(set(owners.values())) == 1:
        return _with_items(graph, [list(owners)], list(owners.values())[:1])
    fixed = {node: at for at, group in enumerate(groups) for node in group}
    members: list[list[fx.Node]] = []
    owner_of: list[int] = []
    given: list[bool] = []
    upstream: list[int] = []  # bits of the regions that must run before
    feeds: dict[fx.Node, int] = {}
    last_impure = 0
    depends = _dependencies(graph)
    for unit in _unit_order(graph, list(owners), groups):
        direct = 0
        for node in unit:
            for source in depends[node]:
                direct |= feeds.get(source, 0)
        impure = any(map(is_impure, unit))
        if impure:
            direct |= last_impure
        above = 0
        for at in _bits(direct):
            above |= upstream[at]
        owner, place = owners[unit[0]], None
        if unit[0] not in fixed:
            open_to = [at for at in range(len(members)) if owner_of[at] == owner and not given[at]]
            viable = [at for at in open_to if not above >> at & 1]
            feeding = [at for at in viable if direct >> at & 1]
            place = next(reversed(feeding or viable), None)
        if place is None:
            place = len(members)
            members.append([])
            owner_of.append(owner)
            given.append(unit[0] in fixed)
            upstream.append(0)
        members[place].extend(unit)
        grown = (upstream[place] | direct | above) & ~(1 << place)
        if grown != upstream[place]:
            upstream[place] = grown
            for at, bits in enumerate(upstream):
                if bits >> place & 1:
                    upstream[at] = bits | grown
        for node in unit:
            feeds[node] = 1 << place
        if impure:
            last_impure = 1 << place
    _views_to_their_readers(graph, members, owner_of, given)
    members, owner_of, upstream = _without_empty(members, owner_of, upstream)
    order = sorted(range(len(members)), key=lambda at: (upstream[at].bit_count(), at))
    return _with_items(graph, [members[at] for at in order], [owner_of[at] for at in order])


def _views_to_their_readers(
    graph: fx.Graph, members: list[list[fx.Node]], owner_of: Sequence[int], given: Sequence[bool]
) -> None:
    """A view of something from outside its region, read in one other region of the same owner, is made there.

    So a transposed weight is no result of one region and operand of the next. The last first: chains move as a whole.
    """
    place = {node: at for at, region in enumerate(members) for node in region}
    for node in reversed(graph.nodes):
        here = place.get(node)
        if here is None or given[here] or not is_view(node):
            continue
        readers = {place.get(user, -1) for user in node.users}
        there = readers.pop() if len(readers) == 1 else -1
        if there < 0 or there == here or given[there] or owner_of[there] != owner_of[here]:
            continue
        if not any(place.get(operand) == here for operand in node.all_input_nodes):
            members[here].remove(node)
            members[there].append(node)
            place[node] = there


def _without_empty(
    members: list[list[fx.Node]], owner_of: list[int], upstream: list[int]
) -> tuple[list[list[fx.Node]], list[int], list[int]]:
    kept = [at for at, region in enumerate(members) if region]
    return [members[at] for at in kept], [owner_of[at] for at in kept], [upstream[at] for at in kept]


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _dependencies(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """The work nodes that each work node needs, through items of results and arithmetic on sizes."""
    behind: dict[fx.Node, list[fx.Node]] = {}
    found: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        sources: dict[fx.Node, None] = {}
        for operand in node.all_input_nodes:
            if is_work(operand):
                sources[operand] = None
            else:
                sources.update(dict.fromkeys(behind.get(operand, ())))
        if is_work(node):
            found[node] = list(sources)
        else:
            behind[node] = list(sources)
    return found


def _unit_order(
    graph: fx.Graph, work: Sequence[fx.Node], groups: Sequence[Sequence[fx.Node]]
) -> list[Sequence[fx.Node]]:
    """Groups and single nodes, each after what it needs. Raises Disagreement where groups need one another."""
    if not groups:
        return [(node,) for node in graph.nodes if is_work(node)]
    depends = _dependencies(graph)
    in_group = {node: at for at, group in enumerate(groups) for node in group}
    nodes = [node for node in graph.nodes if is_work(node)]
    units: list[Sequence[fx.Node]] = [*groups, *((node,) for node in nodes if node not in in_group)]
    unit_of = {node: at for at, unit in enumerate(units) for node in unit}
    position = {node: at for at, node in enumerate(nodes)}
    after: list[set[int]] = [set() for _ in units]
    waiting = [0] * len(units)
    pairs = [(source, node) for node in nodes for source in depends[node]]
    impure = [node for node in nodes if is_impure(node)]
    for source, node in [*pairs, *zip(impure, impure[1:])]:
        first, second = unit_of[source], unit_of[node]
        if first != second and second not in after[first]:
            after[first].add(second)
            waiting[second] += 1
    ready = [(position[units[at][0]], at) for at in range(len(units)) if not waiting[at]]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, at = heapq.heappop(ready)
        ordered.append(units[at])
        for later in after[at]:
            waiting[later] -= 1
            if not waiting[later]:
                heapq.heappush(ready, (position[units[later][0]], later))
    if len(ordered) < len(units):
        stuck = next(node.name for at, unit in enumerate(units) if waiting[at] for node in unit)
        raise Disagreement(f"a part would have to run before and after another one, around {stuck}")
    return ordered


def _with_items(graph: fx.Graph, members: Sequence[Sequence[fx.Node]], owners: Sequence[int]) -> list[Region]:
    """The regions of some work nodes, with the items taken of their results, in the graph's order."""
    place = {node: at for at, region in enumerate(members) for node in region}
    found: list[list[fx.Node]] = [[] for _ in members]
    for node in graph.nodes:
        at = place.get(node)
        if at is None and node.target is operator.getitem:
            at = place.get(node.args[0])
            if at is not None:
                place[node] = at
        if at is not None:
            found[at].append(node)
    return [Region(owner, tuple(nodes)) for owner, nodes in zip(owners, found)]


def costs_most(nodes: Iterable[fx.Node], device: str, count: int = 5) -> list[fx.Node]:
    """The nodes whose estimate is largest, for messages."""
    return sorted(nodes, key=lambda node: -seconds(node, device))[:count]
