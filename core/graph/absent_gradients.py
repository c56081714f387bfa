"""The backward for those of the incoming gradients that arrive: what the others alone lead to is left out.

Zeros in their place would not do. Eager doesn't run those parts: 0 times infinity is NaN, a hook there adds what it
adds, and what they saved may be gone or written to.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from .geometry import is_static
from .partition import is_impure
from .symbols import expression


@dataclass(frozen=True)
class PartialBackward:
    """module: saved values, then tangents -> gradients, None for those that nothing reaches; saved, tangents: which of
    the whole backward's its placeholders are."""

    module: fx.GraphModule
    saved: tuple[int, ...]
    tangents: tuple[int, ...]


def partial_backward(
    whole: fx.GraphModule, saved: int, absent: Collection[int], reached: Collection[int]
) -> PartialBackward | None:
    """`whole` without the tangents at `absent`, for the gradients at `reached`. saved: how many of its placeholders are
    saved values.

    None where a part needs zeros of a size that no placeholder tells.
    """
    placeholders = [node for node in whole.graph.nodes if node.op == "placeholder"]
    writer = _Writer(whole)
    for at, node in enumerate(placeholders):
        writer.copy(node)
        if at >= saved:
            (writer.gone if at - saved in absent else writer.live).add(node)
    for node in whole.graph.nodes:
        if node.op == "output":
            results = [writer.result(value) if at in reached else None for at, value in enumerate(node.args[0])]
        elif node.op != "placeholder":
            writer.write(node)
    if writer.failed:
        return None
    writer.graph.output(tuple(results))
    kept = writer.tidy(placeholders)
    return PartialBackward(
        fx.GraphModule(whole, writer.graph, "BackwardGraph"),
        tuple(at for at in kept if at < saved),
        tuple(at - saved for at in kept if at >= saved),
    )


def group_backward(
    whole: fx.GraphModule, saved: int, starts: Sequence[int], cuts: Mapping[int, int], wanted: Sequence[int]
) -> PartialBackward | None:
    """The part of `whole` that takes the gradients of the tangents `starts`, for the results at `wanted`.

    cuts: of each tangent at which the backward is cut, the position of the result that stands for the whole gradient
    there; the part takes that for one of its starts, and none of the others. tangents of the result: as `starts`.
    """
    placeholders = [node for node in whole.graph.nodes if node.op == "placeholder"]
    outputs = next(node for node in reversed(whole.graph.nodes) if node.op == "output").args[0]
    totals = {outputs[position]: tangent for tangent, position in cuts.items()}
    writer = _Writer(whole)
    for node in placeholders[:saved]:
        writer.copy(node)
    taken: dict[fx.Node, fx.Node] = {}
    for tangent in starts:
        if tangent in cuts:
            whole_gradient = outputs[cuts[tangent]]
            taken[whole_gradient] = writer.input(f"cut_{whole_gradient.name}", whole_gradient)
        else:
            node = placeholders[saved + tangent]
            writer.copy(node)
            writer.live.add(node)
    for node in placeholders[saved:]:
        if node not in writer.live:
            writer.gone.add(node)
    for node in whole.graph.nodes:
        if node in totals:
            writer.replace(node, taken.get(node))
        elif node.op not in ("placeholder", "output"):
            writer.write(node)
    results = [writer.result(outputs[at]) for at in wanted]
    if writer.failed:
        return None
    writer.graph.output(tuple(results))
    kept = writer.tidy(placeholders[:saved], keep=len(starts))
    return PartialBackward(fx.GraphModule(whole, writer.graph, "BackwardGraph"), tuple(kept), tuple(starts))


class _Writer:
    """live: nodes that are made of a tangent that arrives; gone: those that are made of absent ones alone."""

    def __init__(self, whole: fx.GraphModule) -> None:
        self.graph = fx.Graph()
        self.live: set[fx.Node] = set()
        self.gone: set[fx.Node] = set()
        self.failed = False
        self._copies: dict[fx.Node, fx.Node] = {}

    def copy(self, node: fx.Node) -> None:
        """The node as it is."""
        self._copies[node] = self.graph.node_copy(node, self._copies.__getitem__)

    def input(self, name: str, like: fx.Node) -> fx.Node:
        """A placeholder in the place of a node."""
        node = self.graph.placeholder(name)
        node.meta.update(like.meta)
        self._copies[node] = node
        return node

    def replace(self, node: fx.Node, by: fx.Node | None) -> None:
        """Another node in the place of one, or none."""
        if by is None:
            self.gone.add(node)
        else:
            self.live.add(node)
            self._copies[node] = by

    def write(self, node: fx.Node) -> None:
        """The node as far as it is there without what is gone."""
        if self.failed:
            return  # what it is made of may be missing
        operands = node.all_input_nodes
        missing = [operand for operand in operands if operand in self.gone]
        if any(operand in self.live for operand in operands):
            self.live.add(node)
        elif missing:
            self.gone.add(node)
            return
        if not missing:
            self.copy(node)
            return
        rest = _other_summand(node, missing)
        if rest is not None:
            self._copies[node] = self._copies[rest]
            return
        for operand in missing:
            if operand not in self._copies:
                self._copies[operand] = self._zeros(operand)
        if not self.failed:
            self.copy(node)

    def result(self, node: Any) -> Any:
        """What stands for a gradient that is reached: zeros where no tangent is in it."""
        if not isinstance(node, fx.Node):
            return node
        if node in self.gone and node not in self._copies:
            self._copies[node] = self._zeros(node)
        return self._copies.get(node)

    def _zeros(self, node: fx.Node) -> Any:
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
            self.failed = True
            return None
        order = list(range(fake.dim()))
        if is_static(fake):
            order.sort(key=lambda dim: (-fake.stride(dim), dim))
        sizes = [self._size(node, fake.shape[dim]) for dim in order]
        if self.failed:
            return None
        made = self._call(
            node, torch.ops.aten.full.default, (sizes, 0), {"dtype": fake.dtype, "device": fake.device}, fake
        )
        if order == sorted(order):
            return made
        back = [order.index(dim) for dim in range(fake.dim())]
        return self._call(node, torch.ops.aten.permute.default, (made, back), {}, fake)

    def _size(self, place: fx.Node, size: Any) -> Any:
        """A size as an argument: a number, or the node that gives it."""
        if isinstance(size, int):
            return size
        wanted = expression(size)
        for original, node in self._copies.items():
            value = original.meta.get("val")
            if isinstance(value, torch.SymInt) and expression(value) == wanted:
                return node
            if isinstance(value, torch.Tensor) and value.layout is torch.strided and original.op == "placeholder":
                for dim, there in enumerate(value.shape):
                    if isinstance(there, torch.SymInt) and expression(there) == wanted:
                        return self._call(place, torch.ops.aten.sym_size.int, (node, dim), {}, value)
        self.failed = True
        return None

    def _call(self, place: fx.Node, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any], like: Any) -> fx.Node:
        node = self.graph.call_function(op, tuple(args), dict(kwargs))
        node.meta.update({key: place.meta[key] for key in ("torch_node", "user_line") if key in place.meta})
        with like.fake_mode, torch.no_grad():
            values, options = fx.node.map_arg((tuple(args), dict(kwargs)), lambda arg: arg.meta["val"])
            node.meta.update(val=op(*values, **options), original_aten=op, backward=True)
        return node

    def tidy(self, placeholders: Sequence[fx.Node], keep: int = 0) -> list[int]:
        """Erase what nothing uses, but for `keep` placeholders behind these; the positions of those that are left."""
        others = [node for node in self.graph.nodes if node.op == "placeholder"][len(placeholders) :]
        # Numbers stay: a backend may read a symbol off them that sizes are made of.
        numbers = {self._copies[node] for node in placeholders if not isinstance(node.meta.get("val"), torch.Tensor)}
        stay = numbers.union(others[:keep])
        for node in reversed(self.graph.nodes):
            if node.op != "output" and not node.users and not is_impure(node) and node not in stay:
                self.graph.erase_node(node)
        left = set(self.graph.nodes)
        return [at for at, node in enumerate(placeholders) if self._copies[node] in left]


def _other_summand(node: fx.Node, missing: Sequence[fx.Node]) -> fx.Node | None:
    """Of two gradients that are added up, the one that is there, if the sum lies in memory as it does."""
    if node.target not in (torch.ops.aten.add.Tensor, operator.add) or node.kwargs or len(node.args) != 2:
        return None
    rest = [operand for operand in node.args if operand not in missing]
    if len(rest) != 1 or not isinstance(rest[0], fx.Node):
        return None
    mine, its = node.meta.get("val"), rest[0].meta.get("val")
    if not isinstance(mine, torch.Tensor) or not isinstance(its, torch.Tensor):
        return None
    same = mine.dtype == its.dtype and mine.shape == its.shape and mine.stride() == its.stride()
    return rest[0] if same else None
