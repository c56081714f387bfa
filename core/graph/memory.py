"""Memory: reads and writes the aliases of a recorded program by writing nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from .alias import Alias
from .emitter import NodeEmitter
from .geometry import hint, is_contiguous, overlaps, same_geometry
from .inverse import Refused, as_strided_in, inverse

STRIDE_SENSITIVE = frozenset(("aten::view", "aten::view_as_complex", "aten::view_as_real", "aten::_reshape_alias"))


class Memory:
    """Reads and writes aliases, emitting nodes."""

    def __init__(self, emitter: NodeEmitter, number: Callable[[Any], Any], static: bool) -> None:
        self.emitter = emitter
        self.number = number  # the node or plain number for a symbolic number
        self._static = static
        self._pieces: dict[tuple[fx.Node, int], fx.Node] = {}  # (base, one recorded call) -> that call on that base

    def read(self, alias: Alias) -> fx.Node:
        """The node with the present value of `alias`."""
        if alias.version != alias.store.version:
            assert alias.parent is not None, "the root of a store is always current"
            base = self.read(alias.parent)
            alias.node = self.take_view(alias, base)
            alias.version = alias.store.version
        return alias.node

    def take_view(self, alias: Alias, base: fx.Node) -> fx.Node:
        """Apply the view of `alias` to `base`, which has the value of its parent."""
        assert alias.parent is not None
        if alias.op is torch.ops.aten.as_strided.default:
            root = alias.store.root
            return as_strided_in(self, root, self.restride(self.read(root), root.val), alias)
        loose = not same_geometry(base.meta["val"], alias.parent.val)
        args = (*alias.args[: alias.hole], base, *alias.args[alias.hole + 1 :])
        if loose and _sensitive(alias.op):
            base = self._viewable(alias, base, args)
            args = (*alias.args[: alias.hole], base, *alias.args[alias.hole + 1 :])
            loose = not same_geometry(base.meta["val"], alias.parent.val)
        if alias.item is None:
            return self.emitter.emit(alias.op, args, alias.kwargs, val=None if loose else alias.val)
        key = (base, id(alias.recorded_args))
        pieces = self._pieces.get(key)
        if pieces is None:
            pieces = self._pieces[key] = self.emitter.emit(alias.op, args, alias.kwargs)
        return self.emitter.item(pieces, alias.item)

    def _viewable(self, alias: Alias, base: fx.Node, args: tuple[Any, ...]) -> fx.Node:
        """`base`, restrided unless the view is possible as it is. With symbolic sizes trying would need guards."""
        assert alias.parent is not None
        if self._static:
            try:
                self.emitter.run(alias.op, args, alias.kwargs)
            except (RuntimeError, ValueError):
                return self.restride(base, alias.parent.val)
            return base
        return self.restride(base, alias.parent.val)

    def write(self, alias: Alias, new: fx.Node) -> None:
        """Give `alias` the value of `new`. Nodes are values: that another alias has the same node does no harm, as the
        plan of the outputs keeps the memory of results apart.
        """
        self._store_into(alias, self._fitted(alias, new))

    def _fitted(self, alias: Alias, new: fx.Node) -> fx.Node:
        val = new.meta["val"]
        if val.dtype != alias.val.dtype:
            new = self.emitter.emit(torch.ops.aten._to_copy.default, (new,), {"dtype": alias.val.dtype})
        if [str(size) for size in val.shape] != [str(size) for size in alias.val.shape]:
            sizes = [self.number(size) for size in alias.val.shape]
            new = self.emitter.emit(torch.ops.aten.expand.default, (new, sizes))
        return new

    def _store_into(self, alias: Alias, new: fx.Node) -> None:
        store = alias.store
        if alias.is_root:
            alias.node = new
            store.version += 1
            alias.version = store.version
            return
        if alias.op is torch.ops.aten.as_strided.default:
            parent = store.root
        else:
            assert alias.parent is not None
            parent = alias.parent
        self._store_into(parent, inverse(self, alias, self.read(parent), new))
        if same_geometry(new.meta["val"], alias.val):
            alias.node = new
            alias.version = store.version

    def restride(self, node: fx.Node, want: Any) -> fx.Node:
        """A node with the value of `node` and the strides of the fake `want`."""
        if same_geometry(node.meta["val"], want):
            return node
        aten = torch.ops.aten
        if is_contiguous(want):
            return self.emitter.emit(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})
        if overlaps(want):
            raise Refused("a written tensor has elements that share memory")
        order = sorted(range(want.ndim), key=lambda dim: -hint(want.stride(dim)))
        packed = self.emitter.emit(aten.permute.default, (node, order))
        packed = self.emitter.emit(aten.clone.default, (packed,), {"memory_format": torch.contiguous_format})
        back = [order.index(dim) for dim in range(want.ndim)]
        result = self.emitter.emit(aten.permute.default, (packed, back))
        if same_geometry(result.meta["val"], want):
            return result
        return self._with_gaps(node, want)

    def _with_gaps(self, node: fx.Node, want: Any) -> fx.Node:
        """Memory with gaps between the elements, as the recorded tensor has."""
        aten = torch.ops.aten
        extent: Any = 0 if 0 in want.shape else 1
        if extent:
            for size, stride in zip(want.shape, want.stride()):
                extent = extent + (size - 1) * stride
        size = [self.number(item) for item in want.shape]
        stride = [self.number(item) for item in want.stride()]
        memory = self.emitter.emit(aten.new_zeros.default, (node, [self.number(extent)]))
        memory = self.emitter.emit(aten.as_strided_scatter.default, (memory, node, size, stride, 0))
        return self.emitter.emit(aten.as_strided.default, (memory, size, stride, 0))


def _sensitive(op: Any) -> bool:
    name = op._schema.name
    return name in STRIDE_SENSITIVE
