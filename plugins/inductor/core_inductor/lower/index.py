"""Gathers, concatenation and padding: reads at computed positions, and reads that happen only where a mask holds.

Positions that come from tensors are checked in the kernel: it reads element 0 in place of a bad one and reports the
failure, so that no kernel reads outside its tensors and the caller gets eager's exception class.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from torch import fx

from ..ir import expr
from ..ir.body import BodyBuilder
from ..ir.expr import Index
from ..ir.nodes import View, dense_strides
from ..ir.symbols import may_be_zero
from .pointwise import broadcast_index, is_number, operand
from .promotion import dtype_name
from .registry import lowers
from .view import bounded_position, bounded_start

EMBEDDING, ADVANCED, GATHER = 1, 2, 3
"""Failure codes of the kernel ABI."""

INDEX_TYPES = frozenset({"int64", "int32", "int16", "int8", "uint8"})


def position_of(body: BodyBuilder, value: int, size: Index, code: int, *, wrap: bool) -> int:
    """A value as a checked position in range(size); negative values count from the end where `wrap`."""
    value = body.widen(value, "int64")
    bound = body.index(size)
    if wrap:
        negative = body.compare("lt", value, body.const(0, "int64"))
        value = body.where(negative, body.op("add", value, bound), value)
    return body.emit("check_index", (value, bound), "int64", code)


def _load_at(body: BodyBuilder, view: View, index: Sequence[Index], slots: tuple[int, ...]) -> int:
    return body.load_view(view, index, slots)


@lowers("embedding")
def embedding(
    lowering: Any,
    node: fx.Node,
    weight: View,
    indices: View,
    padding_idx: Any = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of `weight`."""
    if weight.sizes[0] == 0 or indices.dtype not in INDEX_TYPES:
        return NotImplemented
    return _rows(lowering, node, weight, indices, 0, EMBEDDING)


def _rows(lowering: Any, node: fx.Node, x: View, indices: View, dim: int, code: int) -> View:
    rank = len(indices.sizes)
    size = x.sizes[dim]

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        at = body.load_view(indices, variables[dim : dim + rank])
        slot = position_of(body, at, size, code, wrap=False)
        index = (*variables[:dim], expr.indirect(0, size), *variables[dim + rank :])
        return _load_at(body, x, index, (slot,))

    return lowering.pointwise(node.meta["val"], build, origin=node)


@lowers("index_select")
def index_select(lowering: Any, node: fx.Node, x: View, dim: int, index: View) -> Any:
    """Slices of one dimension."""
    if not x.sizes or len(index.sizes) != 1:
        return NotImplemented
    dim %= len(x.sizes)
    if x.sizes[dim] == 0:
        return NotImplemented
    return _rows(lowering, node, x, index, dim, EMBEDDING)


@lowers("gather")
def gather(lowering: Any, node: fx.Node, x: View, dim: int, index: View, sparse_grad: bool = False) -> Any:
    """x read along one dimension at the positions of `index`."""
    if not x.sizes or not index.sizes:
        return NotImplemented
    dim %= len(x.sizes)
    size = x.sizes[dim]
    if size == 0:
        return NotImplemented

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        slot = position_of(body, body.load_view(index, variables), size, GATHER, wrap=False)
        at = list(variables)
        at[dim] = expr.indirect(0, size)
        # A dimension where x has one element is indexed by 0 only.
        at = [0 if s == 1 and k != dim else i for k, (s, i) in enumerate(zip(x.sizes, at))]
        return _load_at(body, x, at, (slot,))

    return lowering.pointwise(node.meta["val"], build, origin=node)


@lowers("index.Tensor", "_unsafe_index.Tensor")
def index_tensor(lowering: Any, node: fx.Node, x: View, indices: Sequence[View | None]) -> Any:
    """x[i, j, :, ...] with integer tensors."""
    given = [k for k, i in enumerate(indices) if i is not None]
    views = [indices[k] for k in given]
    if not given or any(v.dtype not in INDEX_TYPES or v.dtype == "uint8" for v in views):
        return NotImplemented
    if any(x.sizes[k] == 0 for k in given):
        return NotImplemented
    sizes = lowering.sizes(node.meta["val"])
    rank = max(len(v.sizes) for v in views)
    adjacent = given[-1] - given[0] + 1 == len(given)
    begin = given[0] if adjacent else 0

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        shared = variables[begin : begin + rank]
        plain = iter(variables[:begin] + variables[begin + rank :])
        slots: list[int] = []
        at: list[Index] = []
        for k, size in enumerate(x.sizes):
            if k in given:
                value = body.load_view(indices[k], broadcast_index(indices[k].sizes, shared))
                at.append(expr.indirect(len(slots), size))
                slots.append(position_of(body, value, size, ADVANCED, wrap=True))
            else:
                at.append(next(plain))
        return _load_at(body, x, at, tuple(slots))

    assert len(sizes) == rank + len(x.sizes) - len(given)
    return lowering.pointwise(node.meta["val"], build, origin=node)


# --- masked reads ----------------------------------------------------------------------------------------------------


class Range:
    """The part begin <= e < end of an index expression's range, as a mask."""

    def __init__(self, e: Index, begin: Index, end: Index, size: Index) -> None:
        self.e, self.begin, self.end, self.size = e, begin, end, size

    def mask(self, body: BodyBuilder) -> int:
        """A bool value: inside the range."""
        inside = None
        if self.end != self.size:
            inside = body.index_below(self.e, self.end)
        if self.begin != 0:
            after = body.op("logical_not", body.index_below(self.e, self.begin))
            inside = after if inside is None else body.op("bitwise_and", inside, after)
        return body.const(True, "bool") if inside is None else inside


def masked_load(
    body: BodyBuilder, view: View, index: Sequence[Index], mask: int, other: int, slots: tuple[int, ...] = ()
) -> int:
    """view[index] where mask holds, else `other`."""
    plain = body.ops[mask]
    if plain.name == "const":
        return body.load_view(view, index, slots) if plain.attr else other
    at = BodyBuilder()
    at.load_view(view, index)
    op = at.ops[-1]
    return body.emit("masked_load", (mask, other, *slots), op.dtype, op.attr)


@lowers("cat")
def cat(lowering: Any, node: fx.Node, tensors: Sequence[View], dim: int = 0) -> Any:
    """Tensors one after the other: each element reads the one it falls into."""
    fake = node.meta["val"]
    sizes = lowering.sizes(fake)
    # A 1-D tensor without elements is allowed beside tensors of any rank.
    parts = [t for t in tensors if not (len(t.sizes) == 1 and t.sizes[0] == 0)]
    if len(parts) > 8 or not parts or any(len(t.sizes) != len(sizes) for t in parts):
        return NotImplemented
    dtype = dtype_name(fake.dtype)
    dim %= len(sizes)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        pieces = []
        begin: Index = 0
        for part in parts:
            end = expr.add(begin, part.sizes[dim])
            within = Range(variables[dim], begin, end, sizes[dim])
            at = list(variables)
            at[dim] = expr.sub(variables[dim], begin) if part.sizes[dim] != 1 else 0
            pieces.append((part, at, within, end))
            begin = end
        value = None
        for part, at, within, end in reversed(pieces):
            zero = body.const(0, part.dtype)
            read = body.widen(masked_load(body, part, at, within.mask(body), zero), dtype)
            value = read if value is None else body.where(body.index_below(variables[dim], end), read, value)
        assert value is not None
        return value

    return lowering.pointwise(fake, build, origin=node)


@lowers("slice_scatter")
def slice_scatter(
    lowering: Any, node: fx.Node, x: View, source: View, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """x with x[..., start:end, ...] replaced."""
    dim %= len(x.sizes)
    begin = bounded_start(start, x.sizes[dim])
    if begin is None or step != 1:
        return NotImplemented
    return _replaced(lowering, node, x, source, dim, begin, source.sizes[dim], drop=False)


@lowers("select_scatter")
def select_scatter(lowering: Any, node: fx.Node, x: View, source: View, dim: int, index: Any) -> Any:
    """x with x[..., index, ...] replaced."""
    dim %= len(x.sizes)
    position = bounded_position(index, x.sizes[dim])
    if position is None:
        return NotImplemented
    return _replaced(lowering, node, x, source, dim, position, 1, drop=True)


def _replaced(
    lowering: Any, node: fx.Node, x: View, source: View, dim: int, begin: Index, length: Index, *, drop: bool
) -> View:
    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        within = Range(variables[dim], begin, expr.add(begin, length), x.sizes[dim])
        at = list(variables)
        if drop:
            del at[dim]
        else:
            at[dim] = expr.sub(variables[dim], begin) if length != 1 else 0
        mask = within.mask(body)
        new = body.widen(masked_load(body, source, at, mask, body.const(0, source.dtype)), x.dtype)
        return body.where(mask, new, body.load_view(x, variables))

    return lowering.pointwise(node.meta["val"], build, origin=node)


@lowers("scatter.value", "scatter.src")
def scatter(lowering: Any, node: fx.Node, x: View, dim: int, index: View, source: Any) -> Any:
    """x with one element of each row of its last dimension replaced (a one-hot row): each element knows whether it is
    the one."""
    last = len(x.sizes) - 1
    if last < 0 or dim % len(x.sizes) != last or index.sizes != (*x.sizes[:-1], 1) or may_be_zero(x.sizes[last]):
        return NotImplemented
    if index.dtype not in INDEX_TYPES or not (isinstance(source, View) or is_number(source)):
        return NotImplemented
    if isinstance(source, View) and len(source.sizes) != len(x.sizes):
        return NotImplemented

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        at = (*variables[:-1], 0)
        chosen = position_of(body, body.load_view(index, at), x.sizes[last], GATHER, wrap=False)
        new = body.load_view(source, at) if isinstance(source, View) else operand(body, source, variables, x.dtype)
        here = body.compare("eq", body.index(variables[last]), chosen)
        return body.where(here, new, body.load_view(x, variables))

    return lowering.pointwise(node.meta["val"], build, origin=node)


@lowers("as_strided_scatter")
def as_strided_scatter(
    lowering: Any, node: fx.Node, x: View, source: View, size: Any, stride: Any, storage_offset: Any = None
) -> Any:
    """x with the positions of its storage replaced that a view by strides reads. For numbers only, where each position
    is read at most once."""
    fake = node.args[0].meta["val"]
    sizes, recorded = lowering.geometry(fake)
    begin = storage_offset if storage_offset is not None else fake.storage_offset()
    numbers = (*size, *stride, begin, fake.storage_offset(), *sizes, *recorded)
    if not all(isinstance(n, int) for n in numbers) or not dense_strides(sizes, recorded) or 0 in sizes or 0 in size:
        return NotImplemented
    begin -= fake.storage_offset()
    dims = sorted((k for k in range(len(size)) if size[k] != 1), key=lambda k: -stride[k])
    reach = [*(stride[k] * size[k] for k in dims[1:]), 1]
    if any(stride[k] < least for k, least in zip(dims, reach)) or begin < 0:
        return NotImplemented

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        at: list[Index] = [0] * len(size)
        outer = stride[dims[0]] if dims else expr.product(sizes)
        shift = -(-begin // outer)  # whole outer steps, so that no position is negative
        rest = expr.add(expr.linear(variables, recorded), shift * outer - begin)
        masks = []
        for position, k in enumerate(dims or (-1,)):
            step = stride[k] if dims else outer
            first, last = (shift, shift + (size[k] if dims else 1)) if position == 0 else (0, size[k])
            quotient, rest = expr.floordiv(rest, step), expr.mod(rest, step)
            masks.append(body.index_below(quotient, last))
            if first:
                masks.append(body.op("logical_not", body.index_below(quotient, first)))
            if dims:
                at[k] = expr.sub(quotient, first)
        masks.append(body.index_below(rest, 1))
        mask = functools.reduce(lambda a, b: body.op("bitwise_and", a, b), masks)
        new = body.widen(masked_load(body, source, at, mask, body.const(0, source.dtype)), x.dtype)
        return body.where(mask, new, body.load_view(x, variables))

    return lowering.pointwise(node.meta["val"], build, origin=node)


@lowers("constant_pad_nd")
def constant_pad_nd(lowering: Any, node: fx.Node, x: View, pad: Sequence[Any], value: Any = 0) -> Any:
    """x inside a border of `value`; negative padding cuts."""
    if not all(isinstance(p, int) for p in pad) or not is_number(value):
        return NotImplemented
    fake = node.meta["val"]
    sizes = lowering.sizes(fake)
    rank = len(sizes)

    def build(body: BodyBuilder, variables: tuple[Index, ...]) -> int:
        mask = body.const(True, "bool")
        at = list(variables)
        for k in range(len(pad) // 2):
            d = rank - 1 - k
            before = pad[2 * k]
            at[d] = expr.sub(variables[d], before) if x.sizes[d] != 1 else 0
            begin, end = max(before, 0), expr.add(before, x.sizes[d])
            if pad[2 * k + 1] <= 0:
                end = sizes[d]
            inside = Range(variables[d], begin, end, sizes[d]).mask(body)
            mask = inside if body.ops[mask].name == "const" else body.op("bitwise_and", mask, inside)
        return masked_load(body, x, at, mask, operand(body, value, variables, x.dtype))

    return lowering.pointwise(fake, build, origin=node)
