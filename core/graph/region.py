"""Region: a part of a graph that becomes a graph of its own, called by one node.

Enters: calls made while the region is open. Leaves: an fx.GraphModule whose inputs are the values from outside that its
calls used (in the order of first use) and the region's own inputs. Bodies of `autograd.Function`, of checkpoints, of
function transforms and of control flow are regions. This file must not know what a region is for.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ..errors import Unsupported


class Region:
    """One open or closed region.

    siblings: closed regions whose inner values this one may use: whoever calls both passes them over.
    captured: values from outside, by id, with their placeholders; own_inputs: values that the region's caller makes;
    values: all of these and those made inside, kept alive.
    """

    def __init__(self, name: str, outer: Region | None, siblings: tuple[Region, ...] = ()) -> None:
        self.name = name
        self.outer = outer
        self.siblings = siblings
        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        self.constants: dict[int, str] = {}
        self.captured: dict[int, tuple[Any, fx.Node]] = {}
        self.values: list[Any] = []
        self.own_inputs: tuple[Any, ...] = ()
        self.open_layouts = False  # of its own inputs
        self.transform = False  # run under a transform of torch.func
        self.elementwise = False  # run for many places at once: an index that is a tensor differs between them
        self._nodes: dict[int, fx.Node] = {}
        self._last_placeholder: fx.Node | None = None

    def node_of(self, value: Any) -> fx.Node:
        """The newest node of a value inside; a value from outside becomes an input of the region."""
        node = self._nodes.get(id(value))
        if node is None:
            if not self._reaches(value.region):
                raise escaped(value)
            node = self.add_input(value)
            self.captured[id(value)] = (value, node)
        return node

    def add_input(self, value: Any) -> fx.Node:
        """A placeholder for `value`."""
        after = self._last_placeholder
        first = next(iter(self.graph.nodes), self.graph._root)
        with self.graph.inserting_after(after) if after is not None else self.graph.inserting_before(first):
            node = self.graph.placeholder(f"{self.name}_input_{len(self._nodes)}")
        node.meta["fake"] = node.meta["val"] = value.fake
        self._last_placeholder = self._nodes[id(value)] = node
        self.values.append(value)
        return node

    def set_node(self, value: Any, node: fx.Node) -> None:
        """`node` returned `value` again, after a change in place."""
        self.node_of(value)
        self._nodes[id(value)] = node

    def own(self, value: Any) -> None:
        """`value` was made inside, by its node."""
        self._nodes[id(value)] = value.node
        self.values.append(value)

    def _reaches(self, home: Region | None) -> bool:
        region = self.outer
        while region is not None and region is not home:
            region = region.outer
        return region is home or home in self.siblings

    def arrange(self, values: list[Any]) -> None:
        """Make these values from outside, in this order, the inputs behind the region's own; all it uses are there."""
        for value in values:
            self.node_of(value)
        self.captured = {id(value): self.captured[id(value)] for value in values}
        anchor = self._nodes[id(self.own_inputs[-1])] if self.own_inputs else self.graph._root
        for _, node in self.captured.values():
            anchor.append(node)
            anchor = node

    def close(self, outputs: list[Any] | Any) -> fx.GraphModule:
        """The graph of the region: it returns a tuple, one element an output, or the output that is no list.

        The region may be closed once.
        """
        if isinstance(outputs, list):
            self.graph.output(tuple(self.node_of(value) for value in outputs))
        else:
            self.graph.output(self.node_of(outputs))
        return fx.GraphModule(self.root, self.graph, self.name)

    def inside_elementwise(self) -> bool:
        """True when this region or one around it is run for many places at once."""
        return self.elementwise or (self.outer is not None and self.outer.inside_elementwise())

    def inside_transform(self) -> bool:
        """True when this region or one around it runs under a transform of torch.func."""
        return self.transform or (self.outer is not None and self.outer.inside_transform())

    def inputs(self) -> list[Any]:
        """The values of the placeholders that come from outside, in the order of `captured`."""
        return [value for value, _ in self.captured.values()]


def escaped(value: Any) -> Unsupported:
    """The refusal of a value that is used outside the region that made it."""
    name = value.region.name if value.region is not None else "a region"
    return Unsupported(
        f"a tensor made inside {name} is used outside of it",
        remedy="return the tensor from the function that makes it, in place of storing it elsewhere",
    )
