"""realize: every tensor that must really exist gets a node whose storage holds it.

Enters: extern arguments and outputs as index maps. Leaves: `Strided` references in their place; where the map is not a
strided view with the recorded strides, a copy node (which later absorbs its producer).
"""

from __future__ import annotations

from typing import Any

from ..ir import expr
from ..ir.body import BodyBuilder
from ..ir.graph import LoopGraph
from ..ir.nodes import (
    Extern,
    Input,
    Node,
    Pointwise,
    Strided,
    View,
    loop_vars,
    same_strides,
    storage_strides,
)


def strided(view: View) -> Strided | None:
    """The view as a strided tensor on its node with the recorded strides, None when it is not one."""
    node = view.node
    if view.is_whole:
        wanted = node.strides if view.strides is None else view.strides
        return Strided(node, node.sizes, wanted, 0) if same_strides(view.sizes, wanted, node.strides) else None
    position = expr.linear(view.index, node.strides)
    variables = loop_vars(view.sizes)
    atoms = [next(iter(v.terms))[0] for v in variables if isinstance(v, expr.Expr)]
    split = expr.affine(position, atoms)
    if split is None:
        return None
    coefficients, offset = split
    found = iter(coefficients)
    strides = tuple(1 if isinstance(v, int) else next(found) for v in variables)
    if view.strides is not None and not same_strides(view.sizes, view.strides, strides):
        return None
    wanted = view.strides if view.strides is not None else strides
    return Strided(node, view.sizes, wanted, 0 if 0 in view.sizes else offset)  # no element: an end may lie before 0


class Realizer:
    """Turns the views of one graph into strided references, adding copies where needed."""

    def __init__(self, graph: LoopGraph) -> None:
        self.graph = graph
        self.copies: dict[tuple, Strided] = {}
        self.count = 0

    def run(self) -> None:
        """Rewrite extern arguments and outputs in place."""
        items: list[Any] = []
        for item in self.graph.items:
            if isinstance(item, Extern):
                item.args = self._rewrite(item.args, items)
                item.kwargs = self._rewrite(item.kwargs, items)
            items.append(item)
        self.graph.outputs = self._outputs(items)
        self.graph.items = items

    def _rewrite(self, value: Any, items: list[Any]) -> Any:
        if isinstance(value, View):
            return self.tensor(value, items)
        if isinstance(value, (list, tuple)):
            return type(value)([self._rewrite(v, items) for v in value])
        if isinstance(value, dict):
            return {k: self._rewrite(v, items) for k, v in value.items()}
        return value

    def tensor(self, view: View, items: list[Any], *, private: bool = False) -> Strided:
        """A real tensor equal to the view. `private`: nobody else may hold its storage."""
        found = None if private else strided(view)
        if found is not None:
            return found
        key = (id(view.node), view.sizes, view.index, view.strides)
        known = None if private else self.copies.get(key)
        if known is None:
            known = self.copy(view, items)
            self.copies[key] = known
        return known

    def copy(self, view: View, items: list[Any]) -> Strided:
        """A new node with the view's elements, in the recorded strides where those are dense."""
        body = BodyBuilder()
        value = body.load_view(view)
        strides = expr.row_major(view.sizes) if view.strides is None else view.strides
        made = Pointwise(
            f"copy{self.count}",
            view.sizes,
            storage_strides(view.sizes, strides),
            view.dtype,
            body=body.ops,
            result=value,
        )
        self.count += 1
        items.append(made)
        return Strided(made, made.sizes, made.strides, 0)

    def _outputs(self, items: list[Any]) -> list[Any]:
        owners: set[Node] = set()
        outputs: list[Any] = []
        for output in self.graph.outputs:
            if not isinstance(output, View):
                outputs.append(output)
                continue
            shared = isinstance(output.node, Input) or output.node in owners or not _owns(output.node)
            tensor = self.tensor(output, items, private=output.fresh and shared)
            owners.add(tensor.node)
            outputs.append(tensor)
        return outputs


def _owns(node: Node) -> bool:
    extern = getattr(node, "extern", None)
    return extern is None or extern.fresh
