"""Inverse views: the new value of a view's base, given a new value of the view."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.fx as fx

from ..errors import RecorderRefused
from .alias import Alias
from .emitter import NodeEmitter
from .geometry import extent, hint, is_contiguous, overlaps
from .node_memory import owns_memory
from .symbols import expression

aten = torch.ops.aten
_SAME_ELEMENTS = frozenset(
    "aten::view aten::squeeze aten::unsqueeze aten::_reshape_alias aten::_unsafe_view aten::reshape "
    "aten::expand".split()
)
_IDENTITY = frozenset("aten::detach aten::alias aten::lift_fresh".split())
_PART_OF_A_LIST = frozenset("aten::split aten::split_with_sizes aten::unbind aten::chunk aten::tensor_split".split())


class Memory(Protocol):
    """What inverse views need of the memory model."""

    emitter: NodeEmitter

    def number(self, value: Any) -> Any:
        """The node or plain number for a symbolic number."""

    def restride(self, node: fx.Node, want: Any) -> fx.Node:
        """A node with the value of `node` and the strides of the fake `want`."""


class Refused(RecorderRefused):
    """The functionalisation met a program that it does not handle."""


def inverse(memory: Memory, alias: Alias, base: fx.Node, new: fx.Node) -> fx.Node:
    """The value of the base (`base` before) after its view `alias` took the value `new`."""
    name = alias.op._schema.name
    emit = memory.emitter.emit
    rest = alias.args[alias.hole + 1 :]
    if name in _IDENTITY:
        return new
    if name == "aten::slice":
        return emit(aten.slice_scatter.default, (base, new, *rest), alias.kwargs)
    if name == "aten::select":
        return emit(aten.select_scatter.default, (base, new, *rest), alias.kwargs)
    if name == "aten::diagonal":
        return emit(aten.diagonal_scatter.default, (base, new, *rest), alias.kwargs)
    if name.replace("unsafe_", "") in ("aten::split", "aten::split_with_sizes"):
        return _piece(memory, alias, base, new)
    if name == "aten::unbind":
        dim = rest[0] if rest else alias.kwargs.get("dim", 0)
        return emit(aten.select_scatter.default, (base, new, dim, alias.item))
    if name in ("aten::t", "aten::transpose"):
        return emit(alias.op, (new, *rest), alias.kwargs)
    if name == "aten::permute":
        return emit(aten.permute.default, (new, _inverse_permutation(rest[0])))
    if name == "aten::view" and alias.op._overloadname == "dtype":
        return emit(aten.view.dtype, (_plain(memory, new), _parent_val(alias).dtype))
    if name in ("aten::_conj", "aten::_neg_view"):
        return emit(alias.op, (new,))
    if name == "aten::view_as_real":
        return emit(aten.view_as_complex.default, (_plain(memory, new),))
    if name == "aten::view_as_complex":
        return emit(aten.view_as_real.default, (new,))
    if name in _SAME_ELEMENTS and _same_count(alias):
        return reshape(memory, new, _parent_val(alias))
    return _scatter_into_root_geometry(memory, alias, base, new)


def _parent_val(alias: Alias) -> Any:
    assert alias.parent is not None
    return alias.parent.val


def _same_count(alias: Alias) -> bool:
    if alias.op._schema.name != "aten::expand":
        return True
    return bool(expression(alias.val.numel()) == expression(_parent_val(alias).numel()))


def _plain(memory: Memory, node: fx.Node) -> fx.Node:
    """`node` with contiguous memory: what reinterpreting the elements' bytes needs."""
    if is_contiguous(node.meta["val"]):
        return node
    return memory.emitter.emit(aten.clone.default, (node,), {"memory_format": torch.contiguous_format})


def reshape(memory: Memory, node: fx.Node, like: Any) -> fx.Node:
    """The elements of `node` in order, in the shape of `like`."""
    sizes = [memory.number(size) for size in like.shape]
    return memory.emitter.emit(aten.view.default, (_plain(memory, node), sizes))


def _inverse_permutation(dims: Any) -> list[int]:
    order = [dim % len(dims) for dim in dims]
    return [order.index(dim) for dim in range(len(order))]


def _piece(memory: Memory, alias: Alias, base: fx.Node, new: fx.Node) -> fx.Node:
    """Element `item` of a split is a slice of the base."""
    recorded = alias.recorded_args
    dim = recorded[2] if len(recorded) > 2 else alias.kwargs.get("dim", 0)
    sizes = recorded[1]
    assert alias.item is not None
    start = sum(sizes[: alias.item]) if isinstance(sizes, (list, tuple)) else sizes * alias.item
    end = start + alias.val.shape[dim]
    return memory.emitter.emit(
        aten.slice_scatter.default, (base, new, dim, memory.number(start), memory.number(end), 1)
    )


def _scatter_into_root_geometry(memory: Memory, alias: Alias, base: fx.Node, new: fx.Node) -> fx.Node:
    """Any other view, by the addresses that its recorded strides name."""
    if overlaps(alias.val):
        raise Refused(f"{alias.op} was written to, although its elements share memory")
    is_strided = alias.op is aten.as_strided.default
    like = alias.store.root.val if is_strided else _parent_val(alias)
    origin = alias.store.offset if is_strided else like.storage_offset()
    base = memory.restride(at_origin(memory, base), like)
    offset = alias.val.storage_offset() - origin
    check_reach(alias.val, offset, like)
    size, stride = _geometry(memory, alias.val)
    written = memory.emitter.emit(aten.as_strided_scatter.default, (base, new, size, stride, memory.number(offset)))
    return written


def at_origin(memory: Memory, node: fx.Node) -> fx.Node:
    """`node` in memory of its own: strided views count from the beginning of the memory, wherever their base begins."""
    return node if owns_memory(node) else memory.emitter.emit(aten.clone.default, (node,))


def as_strided_in(memory: Memory, root: Alias, node: fx.Node, alias: Alias) -> fx.Node:
    """as_strided is relative to the storage, so it is always taken from the root."""
    if alias.val.dtype is not root.val.dtype:
        raise Refused("as_strided is taken of a view that reads its memory as another dtype")
    size, stride = _geometry(memory, alias.val)
    offset = alias.val.storage_offset()
    if node.op != "placeholder" or root.store.version:
        # memory of the graph's own begins with the root's first element
        node = memory.restride(at_origin(memory, node), root.val)
        offset = offset - root.store.offset
        check_reach(alias.val, offset, root.val)
    return memory.emitter.emit(aten.as_strided.default, (node, size, stride, memory.number(offset)))


def _geometry(memory: Memory, val: Any) -> tuple[list[Any], list[Any]]:
    return [memory.number(size) for size in val.shape], [memory.number(stride) for stride in val.stride()]


def check_reach(view: Any, offset: Any, root: Any) -> None:
    """Refuse a view whose elements are not all within the root's own extent."""
    if extent(view) == 0:
        return
    first = hint(offset)
    if first < 0 or first + extent(view) > extent(root):
        raise Refused("a view reaches memory outside of the tensor that was written to")
    if hint(root.numel()) != extent(root):
        raise Refused("a view by strides of a tensor with gaps between its elements, which was written to")
