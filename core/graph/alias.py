"""Store and Alias: the memory model of the functionalisation.

A Store is one piece of memory. Its root Alias has a node for the whole; every other Alias is a view of a parent Alias.
A write gives the root a new node and the Store a new version; views of older versions are taken again when read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx

from .emitter import NodeEmitter
from .geometry import hint, is_contiguous, overlaps, same_geometry
from .inverse import Refused, as_strided_in, inverse

STRIDE_SENSITIVE = frozenset(
    ("aten::view", "aten::view.dtype", "aten::view_as_complex", "aten::view_as_real", "aten::_reshape_alias")
)


@dataclass(eq=False)
class Store:
    """One piece of memory. input: the graph input it belongs to; offset: the root's recorded storage offset."""

    root: Alias = field(init=False)
    version: int = 0
    input: int | None = None
    offset: Any = 0


@dataclass(eq=False)
class Alias:
    """A tensor of the recorded program: a view of `parent`, or the root of its store.

    op, args, kwargs, item: how the view is taken; `hole` is the position of the base among args. args hold nodes for
    symbolic ints, never for tensors. node gives the value of version `version`. val: the recorded geometry; fake: the
    recorded tensor itself, which later calls may have changed. recorded_args: args as recorded, grad: the grad mode of
    the view.
    """

    store: Store
    val: Any
    node: fx.Node
    version: int = 0
    parent: Alias | None = None
    op: Any = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    item: int | None = None
    recorded_args: tuple[Any, ...] = ()
    grad: bool = True
    hole: int = 0
    fake: Any = None

    @property
    def is_root(self) -> bool:
        return self.parent is None

    def chain(self) -> list[Alias]:
        """From just below the root down to this alias."""
        links: list[Alias] = []
        at: Alias | None = self
        while at is not None and at.parent is not None:
            links.append(at)
            at = at.parent
        return links[::-1]


class Memory:
    """Reads and writes aliases, emitting nodes."""

    def __init__(self, emitter: NodeEmitter, number: Callable[[Any], Any], static: bool) -> None:
        self.emitter = emitter
        self._number = number  # the node or plain number for a symbolic number
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
            sizes = [self._number(size) for size in alias.val.shape]
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
        extent: Any = 1
        for size, stride in zip(want.shape, want.stride()):
            extent = extent + (size - 1) * stride
        size = [self._number(item) for item in want.shape]
        stride = [self._number(item) for item in want.stride()]
        memory = self.emitter.emit(aten.new_zeros.default, (node, [self._number(extent)]))
        memory = self.emitter.emit(aten.as_strided_scatter.default, (memory, node, size, stride, 0))
        return self.emitter.emit(aten.as_strided.default, (memory, size, stride, 0))


def _sensitive(op: Any) -> bool:
    name = op._schema.name
    return name in STRIDE_SENSITIVE


def view_parent(node: fx.Node) -> fx.Node | None:
    """The operand that a node's result is a view of, None for a result of its own."""
    import operator

    target = node.target
    if target is operator.getitem:
        producer = node.args[0]
        assert isinstance(producer, fx.Node)
        return view_parent(producer)
    schema = getattr(target, "_schema", None)
    if schema is None:
        return None
    if not any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns):
        return None
    for argument, value in zip(schema.arguments, node.args):
        if argument.alias_info is not None and isinstance(value, fx.Node):
            return value
    return None


def memory_of(node: fx.Node) -> Any:
    """What tells whose memory a node's result lies in: the node that made it, or the placeholder or constant."""
    while node.op == "call_function":
        parent = view_parent(node)
        if parent is None:
            return node
        node = parent
    return node


def owns_memory(node: fx.Node) -> bool:
    """True when the node's result lies in memory that the node made."""
    return node.op == "call_function" and memory_of(node) is node
