"""NodeEmitter: writes nodes of a functional graph, each with a fake value that tells the truth about its strides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..errors import RecorderRefused
from .constants import has_text, writable
from .kernel_layouts import as_kernels_do
from .tree import leaves, map_tree


class NodeEmitter:
    """Appends call nodes to `graph`; `attributes` holds the constants that get_attr nodes name.

    provenance is merged into the meta of each node written, so that its owner sets it once for each recorded call.
    """

    def __init__(self, fake_mode: Any, shape_env: Any) -> None:
        self.graph = fx.Graph()
        self.attributes: dict[str, Any] = {}
        self.provenance: dict[str, Any] = {}
        self._mode = fake_mode
        self._shape_env = shape_env
        self._attribute_of: dict[int, str] = {}

    def placeholder(self, name: str, val: Any) -> fx.Node:
        """The next input of the graph."""
        node = self.graph.placeholder(name)
        node.meta["val"] = val
        return node

    def emit(self, target: Callable[..., Any], args: Any, kwargs: Any = None, *, val: Any = None) -> fx.Node:
        """A call of `target` on trees of nodes and constants. Without `val` the call is run on the operands' fakes."""
        kwargs = kwargs or {}
        if val is None:
            try:
                val = self.run(target, args, kwargs)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                raise RecorderRefused(f"{target} can't be written into the functional graph: {error}") from error
        if not has_text(target):
            raise RecorderRefused(f"no code can be generated that calls {target}", instead="the graph runs as captured")
        args, kwargs = map_tree(self._constant, (tuple(args), dict(kwargs)))
        node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = val
        node.meta.update(self.provenance)
        return node

    def item(self, node: fx.Node, *path: int) -> fx.Node:
        """The element of a tuple- or list-valued node at `path`."""
        import operator

        for at in path:
            val = node.meta["val"][at]
            node = self.emit(operator.getitem, (node, at), val=val)
        return node

    def run(self, target: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The result of `target` on the fakes of its operands: no guards, no gradients, no record."""
        fakes, fake_kwargs = map_tree(
            lambda leaf: leaf.meta["val"] if isinstance(leaf, fx.Node) else leaf, (args, kwargs)
        )
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(torch_compat.without_autocast())
            if self._shape_env is not None:
                stack.enter_context(self._shape_env.suppress_guards())
            stack.enter_context(self._mode)
            result = target(*fakes, **fake_kwargs)
            if isinstance(target, torch_compat.OpOverload):
                result = as_kernels_do(self._mode, target, fakes, fake_kwargs, result)
            return result

    def attribute(self, value: Any) -> fx.Node:
        """A get_attr node for an object that no source text can stand for."""
        name = self._attribute_of.get(id(value))
        if name is None:
            name = self._attribute_of[id(value)] = f"constant_{len(self.attributes)}"
            self.attributes[name] = value
        node = self.graph.get_attr(name)
        node.meta.update(self.provenance)
        return node

    def _constant(self, leaf: Any) -> Any:
        return leaf if isinstance(leaf, fx.Node) or callable(leaf) or writable(leaf) else self.attribute(leaf)

    def module(self, name: str) -> fx.GraphModule:
        """The finished graph."""
        root = torch.nn.Module()
        for attribute, value in self.attributes.items():
            setattr(root, attribute, value)
        return fx.GraphModule(root, self.graph, name)


def tensor_nodes(tree: Any) -> list[fx.Node]:
    """The nodes among the leaves of a tree whose value is a tensor."""
    return [
        leaf for leaf in leaves(tree) if isinstance(leaf, fx.Node) and isinstance(leaf.meta.get("val"), torch.Tensor)
    ]
