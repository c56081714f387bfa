"""SymbolNodes: nodes that compute the symbolic sizes of a functional graph from its inputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..torch_compat.assumptions import unknown_number
from .emitter import NodeEmitter
from .inverse import Refused
from .symbols import expression

_READ = {
    "size": torch.ops.aten.sym_size.int,
    "stride": torch.ops.aten.sym_stride.int,
    "offset": torch.ops.aten.sym_storage_offset.default,
}


class SymbolNodes:
    """Binds each symbol to the first place where it is read and writes the rest as arithmetic, each expression once."""

    def __init__(self, emitter: NodeEmitter) -> None:
        self._emitter = emitter
        self._places: dict[Any, tuple[str, fx.Node, int]] = {}
        self._nodes: dict[Any, fx.Node] = {}

    def bind_number(self, node: fx.Node, value: Any) -> None:
        """`node` gives the symbolic number `value`."""
        self._nodes.setdefault(expression(value), node)
        self._nodes.setdefault(torch_compat.original_expression(value), node)

    def condition(self, value: Any) -> Any:
        """The node for a condition as it was made: what was concluded from it says that it holds."""
        expr = torch_compat.original_expression(value)
        symbols = {symbol: self._as_computed(symbol, value) for symbol in expr.free_symbols}
        mark = self._emitter.graph._root.prev
        node = torch_compat.write_expression(self._emitter.graph, expr, symbols)
        self._value_new_nodes(mark)
        return node

    def _as_computed(self, symbol: Any, of: Any) -> fx.Node:
        """The node that gives a symbol; one that passes for a constant by now is written anew, as a new number."""
        node = self._symbol_node(symbol)
        value = node.meta["val"]
        if isinstance(value, torch.SymInt) and not expression(value).free_symbols:
            fresh = unknown_number(of)
            node = self._emitter.emit(node.target, node.args, node.kwargs, val=fresh)
        return node

    def bind_tensor(self, node: fx.Node, fake: Any) -> None:
        """Sizes (else strides, else the offset) of `node` are places to read the symbols they consist of."""
        for dim, size in enumerate(fake.shape):
            self._bind(size, "size", node, dim)
        for dim, stride in enumerate(fake.stride()):
            self._bind(stride, "stride", node, dim)
        self._bind(fake.storage_offset(), "offset", node, 0)

    def _bind(self, value: Any, kind: str, node: fx.Node, dim: int) -> None:
        if isinstance(value, torch.SymInt):
            for expr in (torch_compat.original_expression(value), expression(value)):
                if expr.is_Symbol:
                    self._places.setdefault(expr, (kind, node, dim))

    def node(self, value: Any) -> Any:
        """The node (or the plain number) for a symbolic number."""
        expr = expression(value)
        if not getattr(expr, "free_symbols", ()):
            return _number(value, expr)
        known = self._nodes.get(expr)
        if known is not None:
            return known
        if expr.is_Symbol:
            node = self._read(expr, value)
        else:
            symbols = {symbol: self._symbol_node(symbol) for symbol in expr.free_symbols}
            mark = self._emitter.graph._root.prev
            node = torch_compat.write_expression(self._emitter.graph, expr, symbols)
            self._value_new_nodes(mark)
        self._nodes[expr] = node
        return node

    def _symbol_node(self, symbol: Any) -> fx.Node:
        known = self._nodes.get(symbol)
        if known is None:
            known = self._nodes[symbol] = self._read(symbol, None)
        return known

    def _read(self, symbol: Any, value: Any) -> fx.Node:
        if symbol not in self._places:
            raise Refused("a size of the tensor that an input is a view of, which the graph is not given")
        kind, node, dim = self._places[symbol]
        args = (node,) if kind == "offset" else (node, dim)
        if value is None:
            fake = node.meta["val"]
            value = {"size": fake.shape, "stride": fake.stride(), "offset": {0: fake.storage_offset()}}[kind][dim]
        return self._emitter.emit(_READ[kind], args, val=value)

    def _value_new_nodes(self, mark: fx.Node) -> None:
        """Arithmetic nodes get the symbolic number they compute as their value."""
        node = mark.next
        while node is not self._emitter.graph._root:
            if "val" not in node.meta:
                assert callable(node.target)
                node.meta["val"] = self._emitter.run(node.target, node.args, node.kwargs)
                node.meta.update(self._emitter.provenance)
            node = node.next


def _number(value: Any, expr: Any) -> Any:
    if isinstance(value, torch.SymBool):
        return bool(expr)
    return torch_compat.calculated(expr) if isinstance(value, torch.SymFloat) else int(expr)
