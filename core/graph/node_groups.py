"""Which results of a program are nodes of autograd of their own: what callers see of eager's many nodes.

A gradient may be asked for with respect to a result that another result is made of, and a hook there sees all of it.
A backward leaves alone the history of inputs that its result is not made of. So nodes of eager's
that are connected form a group, without the edges at which a result itself lies; each group becomes one node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .autograd_reach import Reach, in_order
from .held_views import HeldView
from .hidden_cuts import MOST, HiddenStart, hidden_cuts, hidden_start


@dataclass(frozen=True)
class NodeGroup:
    """starts: the tangents that it takes; inputs: the inputs that its gradients go to; cuts: the starts of other groups
    that they go to."""

    starts: tuple[int, ...]
    inputs: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Groups:
    """groups: those that others lead to first; reach: what each start reaches and uses up in its own group. cuts: for
    each start that another group leads to, the positions in the output of the joint graph of the whole gradient there,
    before and behind the cut. hidden: starts that are no results of the program, numbered behind those that are; views:
    results that other groups end at although no group gives them, numbered behind those."""

    groups: tuple[NodeGroup, ...]
    reach: Reach
    cuts: tuple[tuple[int, int, int], ...] = ()
    hidden: tuple[HiddenStart, ...] = ()
    views: tuple[HeldView, ...] = ()

    def place(self, slots: Sequence[int], start: int) -> int | HiddenStart | HeldView:
        """The slot of a start, or what is known of one that has none; slots: those of the first starts."""
        return [*slots, *self.hidden, *self.views][start]


@dataclass
class Parting:
    """parts: the starts of each group, those first that others are made of; empty where one node for all inputs will
    do. behind: the starts at which other groups end. hidden, views: further starts; edges: theirs."""

    parts: list[list[int]]
    behind: list[int]
    hidden: tuple[HiddenStart, ...] = ()
    views: tuple[HeldView, ...] = ()
    edges: tuple[Any, ...] = ()

    @staticmethod
    def none() -> Parting:
        """One node for all."""
        return Parting([], [])


def groups_of(
    starts: Sequence[torch.Tensor],
    edges: Sequence[Any],
    leaf: Sequence[bool],
    views: Sequence[tuple[HeldView, Any, Any]] = (),
    hooked: Collection[Any] = (),
) -> Parting:
    """The groups of the results `starts`.

    leaf: of each edge, whether it is a leaf's: nothing lies behind that. views: each with its edge and its base's.
    hooked: edges at which hooks of the program change what arrives in all.
    """
    ends = {_key(edge): at for at, edge in enumerate(edges)}
    roots = [torch.autograd.graph.get_gradient_edge(start) for start in starts]
    keys = [_key(root) for root in roots]
    if any(key in ends for key in keys):
        return Parting.none()
    cuts = {key: at for at, key in enumerate(keys) if keys.count(key) == 1 and not starts[at]._backward_hooks}
    bases = {_key(edge): _key(base) for _, edge, base in views}
    taken = {key: base for key, base in bases.items() if key not in (*ends, *keys) and base in (*ends, *cuts)}
    order, below = in_order([root.node for root in roots], {**ends, **taken})
    met = taken.keys() & {key for node in order for key in below[node]}
    # what leads to a view is behind its base, as what leads to the base itself
    below = {node: [taken.get(key, key) for key in below[node]] for node in order}
    ways = _Ways(roots, order, below, ends, cuts, leaf, frozenset(_key(edge) for edge in hooked))
    hidden = ways.hidden() if ways.are_entangled() else []
    for key, _ in hidden:
        ways.cut(key)
    for key, start in ways.known(ways.forks(), roots[: len(starts)]):
        hidden.append((key, start))
        ways.cut(key)
    found = ways.told_apart()
    if any(taken[key] not in (*ends, *ways.cuts) for key in met):
        return groups_of(starts, edges, leaf, hooked=hooked)  # the base of a view was let go of
    ordered = _sorted(found)
    histories = frozenset().union(*(part.histories for part in found))
    whole = all(at in histories for at, is_leaf in enumerate(leaf) if not is_leaf)
    if ordered is None or (len(ordered) < 2 and whole and not met):
        return Parting.none()
    behind = sorted({start for part in found for start in part.behind})
    if any(at not in behind for at in range(len(starts), len(roots))):
        return Parting.none()  # a cut that was let go of
    held = [(view, edge) for view, edge, _ in views if _key(edge) in met]
    behind += range(len(roots), len(roots) + len(held))
    further = (*roots[len(starts) :], *(edge for _, edge in held))
    return Parting(ordered, behind, tuple(each for _, each in hidden), tuple(view for view, _ in held), further)


def _key(edge: Any) -> tuple[Any, int]:
    """What tells edges apart."""
    return edge.node, edge.output_nr


class _Joined:
    """Sets of nodes that are put together one by one."""

    def __init__(self) -> None:
        self._above: dict[Any, Any] = {}

    def of(self, node: Any) -> Any:
        """The node that stands for the set of this one."""
        while node in self._above:
            node = self._above[node]
        return node

    def join(self, first: Any, second: Any) -> None:
        """The sets of both become one."""
        first, second = self.of(first), self.of(second)
        if first is not second:
            self._above[second] = first


@dataclass
class _Part:
    """starts: its own; behind: the starts of other parts that it leads to; histories: the inputs with a history."""

    node: Any
    starts: list[int]
    behind: set[int]
    histories: set[int]


class _Ways:
    """The ways of gradients through a program. roots: the edges of its results; order: nodes, each before those that
    follow it; below: the edges that lead on from each; ends: the edges of inputs; cuts: those at which a result lies,
    or a hidden start; leaf: of each input, whether it is a leaf; hooked: edges that can't be cut."""

    def __init__(
        self,
        roots: list[Any],
        order: Sequence[Any],
        below: dict[Any, list[Any]],
        ends: dict[Any, int],
        cuts: dict[Any, int],
        leaf: Sequence[bool],
        hooked: frozenset[Any],
    ) -> None:
        self.hooked = hooked
        self.roots, self.order, self.below = roots, order, below
        self.ends, self.cuts, self.leaf = ends, cuts, leaf
        self.joined = self._connected()

    def _connected(self) -> _Joined:
        """Nodes that are connected without a cut."""
        joined = _Joined()
        for node in self.order:
            for key in self.below[node]:
                if key not in self.ends and key not in self.cuts:
                    joined.join(node, key[0])
        return joined

    def _inner(self) -> set[Any]:
        """The cuts at results that their own group leads to."""
        of, cuts = self.joined.of, self.cuts
        return {key for node in self.order for key in self.below[node] if key in cuts and of(key[0]) is of(node)}

    def are_entangled(self) -> bool:
        """Whether a result lies on the way of what it is itself connected to, or parts lead to each other."""
        return bool(self._inner()) or _sorted(self._parts()) is None

    def hidden(self) -> list[tuple[Any, HiddenStart]]:
        """Further cuts by which such results get nodes of their own, none where that can't be."""
        return self.known(hidden_cuts(self.order, self.below, self.ends, self.cuts) or (), self.roots)

    def known(self, keys: Sequence[Any], roots: Sequence[Any]) -> list[tuple[Any, HiddenStart]]:
        """The edges with what is known of them, behind `roots`; none where one can't be cut."""
        if not self.hooked.isdisjoint(keys):
            return []
        found = [(key, hidden_start(roots, key)) for key in keys]
        return [] if any(start is None for _, start in found) else found  # type: ignore[return-value]

    def forks(self) -> list[Any]:
        """Edges behind which more results meet than before them, in parts whose results are not all made of the same
        inputs with a history: a backward must leave the history alone that another result has."""
        starts, histories = self._starts_and_histories()
        kinds: dict[Any, set[int]] = {}
        for root in self.roots:
            kinds.setdefault(self.joined.of(root.node), set()).add(histories[root.node])
        found = {
            key: None
            for node in self.order
            for key in self.below[node]
            if len(kinds.get(self.joined.of(node), ())) > 1 and self._is_inner(key) and starts[key[0]] != starts[node]
        }
        return list(found) if len(found) <= MOST else []

    def _is_inner(self, key: Any) -> bool:
        return key not in self.ends and key not in self.cuts

    def _starts_and_histories(self) -> tuple[dict[Any, int], dict[Any, int]]:
        """Of each node, as bits: the results that lead to it, and the inputs with a history behind it, both within its
        part."""
        starts = dict.fromkeys(self.order, 0)
        for at, root in enumerate(self.roots):
            starts[root.node] |= 1 << at
        for node in self.order:
            for key in filter(self._is_inner, self.below[node]):
                starts[key[0]] |= starts[node]
        histories = dict.fromkeys(self.order, 0)
        for node in reversed(self.order):
            for key in self.below[node]:
                if key in self.ends:
                    histories[node] |= 0 if self.leaf[self.ends[key]] else 1 << self.ends[key]
                elif key not in self.cuts:
                    histories[node] |= histories[key[0]]
        return starts, histories

    def cut(self, key: Any) -> None:
        """One more start, a hidden one, at this edge."""
        self.cuts[key] = len(self.roots)
        self.roots.append(torch.autograd.graph.GradientEdge(*key))
        self.joined = self._connected()

    def told_apart(self) -> list[_Part]:
        """The parts that are worth a node of their own."""
        while True:
            self._let_go_of_inner()
            found = self._parts()
            together = _equal(found)
            if together is None:
                return found
            self.joined.join(*together)

    def _let_go_of_inner(self) -> None:
        """Forget the inner cuts: what arrives there is not told apart."""
        while inner := self._inner():
            for node in self.order:
                for key in inner.intersection(self.below[node]):
                    self.joined.join(node, key[0])
            for key in inner:
                del self.cuts[key]

    def _parts(self) -> list[_Part]:
        parts: dict[Any, _Part] = {}
        of = self.joined.of
        for at, root in enumerate(self.roots):
            node = of(root.node)
            parts.setdefault(node, _Part(node, [], set(), set())).starts.append(at)
        for node in self.order:
            part = parts.setdefault(of(node), _Part(of(node), [], set(), set()))
            for key in self.below[node]:
                if key in self.ends:
                    part.histories.update(() if self.leaf[self.ends[key]] else (self.ends[key],))
                elif key in self.cuts and of(key[0]) is not part.node:
                    part.behind.add(self.cuts[key])
        return list(parts.values())


def _equal(parts: Sequence[_Part]) -> tuple[Any, Any] | None:
    """Two parts that can't be told from one: they lead to the same histories and results, and nothing leads to them."""
    taken = {start for part in parts for start in part.behind}
    for at, first in enumerate(parts):
        for second in parts[:at]:
            same = first.behind == second.behind and first.histories == second.histories
            if same and not taken.intersection((*first.starts, *second.starts)):
                return first.node, second.node
    return None


def _sorted(parts: Sequence[_Part]) -> list[list[int]] | None:
    """The starts of the parts, each behind those that it leads to; None where they lead to each other in a circle."""
    found: list[list[int]] = []
    there: set[int] = set()
    left = list(parts)
    while left:
        ready = next((part for part in left if part.behind <= there), None)
        if ready is None:
            return None
        left.remove(ready)
        there.update(ready.starts)
        found.append(ready.starts)
    return found
