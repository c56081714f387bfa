"""Other shapes, orders and parts of the same values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import tirx

from ..arithmetic import Num, guarded, number
from ..kernel import Kernel, Value
from ..registry import Refused, converts


def axis_of(dim: int, rank: int) -> int:
    """A dimension as a non-negative axis; 0 of a number's."""
    return dim % rank if rank else 0


def is_empty(x: Value) -> bool:
    """Whether a tensor is known to have no elements."""
    return any(isinstance(size, int) and size == 0 for size in x.shape)


def linear(places: Sequence[Any], sizes: Sequence[Any], zero: Any) -> Any:
    """The position of an element among all, in order."""
    found = zero
    for place, size in zip(places, sizes):
        found = found * size + place
    return found


def places_of(position: Any, sizes: Sequence[Any]) -> list[Any]:
    """The indices of the element at a position."""
    found = []
    for size in reversed(sizes[1:]):
        found.append(tirx.floormod(position, size))
        position = tirx.floordiv(position, size)
    return [position, *reversed(found)] if sizes else []


@converts("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default", "aten._reshape_copy.default")
def view(k: Kernel, x: Value, shape: Any) -> Value:
    """The same values in the same order."""
    own, new = k.sizes(x.shape), k.sizes(k.result.shape)
    return k.compute(lambda *places: x.at(places_of(linear(places, new, k.size(0)), own)), name="T_reshape")


@converts("aten.flatten.using_ints", "aten.unflatten.int")
def flatten(k: Kernel, x: Value, *args: Any) -> Value:
    return view(k, x, None)


@converts("aten.permute.default")
def permute(k: Kernel, x: Value, dims: Sequence[int]) -> Value:
    order = [axis_of(dim, x.rank) for dim in dims]

    def element(*places: Any) -> Num:
        own = [places[order.index(axis)] for axis in range(x.rank)]
        return x.at(own)

    return k.compute(element)


@converts("aten.transpose.int")
def transpose(k: Kernel, x: Value, one: int, two: int) -> Value:
    order = list(range(x.rank))
    if order:
        a, b = axis_of(one, x.rank), axis_of(two, x.rank)
        order[a], order[b] = order[b], order[a]
    return permute(k, x, order)


@converts("aten.t.default")
def t(k: Kernel, x: Value) -> Value:
    return permute(k, x, list(reversed(range(x.rank))))


@converts("aten.expand.default")
def expand(k: Kernel, x: Value, shape: Any, implicit: bool = False) -> Value:
    return k.compute(lambda *places: k.broadcast(x, places, x.dtype))


@converts("aten.unsqueeze.default")
def unsqueeze(k: Kernel, x: Value, dim: int) -> Value:
    at = dim % (x.rank + 1)
    return k.compute(lambda *places: x.at((*places[:at], *places[at + 1 :])))


@converts("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(k: Kernel, x: Value, dims: Any = None) -> Value:
    given = range(x.rank) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {axis_of(dim, x.rank) for dim in given if x.rank and x.shape[axis_of(dim, x.rank)] == 1}

    def element(*places: Any) -> Num:
        left = iter(places)
        return x.at([k.size(0) if axis in gone else next(left) for axis in range(x.rank)])

    return k.compute(element)


def bounded(k: Kernel, place: Any, size: Any, default: Any) -> Any:
    """A bound of a slice within 0..size, as TVM's expression."""
    if place is None:
        return k.size(default)
    if isinstance(place, int) and isinstance(size, int):
        return k.size(min(max(place + size if place < 0 else place, 0), size))
    extent = k.size(size)
    if isinstance(place, int):
        return tirx.min(k.size(place), extent) if place >= 0 else tirx.max(extent + k.size(place), k.size(0))
    expression = k.size(place)
    counted = tirx.Select(tirx.LT(expression, k.size(0)), expression + extent, expression)
    return tirx.max(tirx.min(counted, extent), k.size(0))


def moved(places: Sequence[Any], axis: int, place: Any) -> list[Any]:
    """The indices with another one along an axis."""
    return [*places[:axis], place, *places[axis + 1 :]]


@converts("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(k: Kernel, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = axis_of(dim, x.rank)
    first = bounded(k, start, x.shape[axis], 0)
    stride = k.size(step)
    return k.compute(lambda *places: x.at(moved(places, axis, first + places[axis] * stride)))


@converts("aten.narrow.default", "aten.narrow_copy.default")
def narrow(k: Kernel, x: Value, dim: int, start: Any, length: Any) -> Value:
    return slice_(k, x, dim, start)


@converts("aten.select.int", "aten.select_copy.int")
def select(k: Kernel, x: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, x.rank)
    place = k.size(index)
    if not isinstance(index, int) or index < 0:
        place = tirx.Select(tirx.LT(place, k.size(0)), place + k.size(x.shape[axis]), place)
    return k.compute(lambda *places: x.at((*places[:axis], place, *places[axis:])))


@converts("aten.slice_scatter.default")
def slice_scatter(
    k: Kernel, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = axis_of(dim, x.rank)
    first, stride, count = bounded(k, start, x.shape[axis], 0), k.size(step), k.size(source.shape[axis])

    def element(*places: Any) -> Num:
        away = places[axis] - first
        place = tirx.floordiv(away, stride)
        inside = tirx.And(tirx.GE(away, k.size(0)), tirx.LT(place, count))
        inside = tirx.And(inside, tirx.EQ(tirx.floormod(away, stride), k.size(0)))
        written = k.broadcast(source, moved(places, axis, place), source.dtype).to(x.dtype)
        return guarded(Num(inside, torch.bool), written, x.at(places).to(x.dtype))

    return k.compute(element)


@converts("aten.select_scatter.default")
def select_scatter(k: Kernel, x: Value, source: Value, dim: int, index: Any) -> Value:
    axis = axis_of(dim, x.rank)
    at = k.size(index)
    if not isinstance(index, int) or index < 0:
        at = tirx.Select(tirx.LT(at, k.size(0)), at + k.size(x.shape[axis]), at)

    def element(*places: Any) -> Num:
        written = k.broadcast(source, (*places[:axis], *places[axis + 1 :]), x.dtype)
        return guarded(Num(tirx.EQ(places[axis], at), torch.bool), written, x.at(places).to(x.dtype))

    return k.compute(element)


@converts("aten.cat.default")
def cat(k: Kernel, tensors: Sequence[Value], dim: int = 0) -> Value:
    kind = k.result.dtype
    kept = [one for one in tensors if one.rank == len(k.result.shape)]
    kept = [one for one in kept if not is_empty(one)]
    axis = axis_of(dim, len(k.result.shape))

    def element(*places: Any) -> Num:
        starts = [k.size(0)]
        for one in kept[:-1]:
            starts.append(starts[-1] + k.size(one.shape[axis]))
        found = kept[-1].at(moved(places, axis, places[axis] - starts[-1])).to(kind)
        for one, start, following in reversed(list(zip(kept[:-1], starts, starts[1:]))):
            value = one.at(moved(places, axis, places[axis] - start)).to(kind)
            found = guarded(Num(tirx.LT(places[axis], following), torch.bool), value, found)
        return found

    return k.compute(element)


@converts("aten.stack.default")
def stack(k: Kernel, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % len(k.result.shape)

    def element(*places: Any) -> Num:
        own = (*places[:axis], *places[axis + 1 :])
        found = tensors[-1].at(own).to(k.result.dtype)
        for at, one in reversed(list(enumerate(tensors[:-1]))):
            here = Num(tirx.EQ(places[axis], k.size(at)), torch.bool)
            found = guarded(here, one.at(own).to(k.result.dtype), found)
        return found

    return k.compute(element)


@converts("aten.split.Tensor", "aten.split_with_sizes.default", "aten.split_with_sizes_copy.default")
@converts("aten.split_copy.Tensor", "aten.chunk.default")
def split(k: Kernel, x: Value, sizes: Any, dim: int = 0) -> tuple[Value | None, ...]:
    axis = axis_of(dim, x.rank)
    start = k.size(0)
    parts: list[Value | None] = []
    for at, fake in enumerate(k.result):
        first = start

        def element(*places: Any, _first: Any = first) -> Num:
            return x.at(moved(places, axis, _first + places[axis]))

        parts.append(k.compute(element, at) if k.wanted(at) else None)
        start = start + k.size(fake.shape[axis])
    return tuple(parts)


@converts("aten.unbind.int")
def unbind(k: Kernel, x: Value, dim: int = 0) -> tuple[Value | None, ...]:
    axis = axis_of(dim, x.rank)

    def element(at: int) -> Callable[..., Num]:
        return lambda *places: x.at((*places[:axis], k.size(at), *places[axis:]))

    return tuple(k.compute(element(at), at) if k.wanted(at) else None for at in range(len(k.result)))


@converts("aten.flip.default", "prims.rev.default")
def flip(k: Kernel, x: Value, dims: Sequence[int]) -> Value:
    turned = {axis_of(dim, x.rank) for dim in dims} if x.rank else set()

    def element(*places: Any) -> Num:
        return x.at([k.size(x.shape[a]) - 1 - place if a in turned else place for a, place in enumerate(places)])

    return k.compute(element)


@converts("aten.roll.default")
def roll(k: Kernel, x: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not x.rank:
        return k.compute(lambda: x.at(()))
    if not dims:
        sizes, total = k.sizes(x.shape), k.count(x.shape)

        def flat(*places: Any) -> Num:
            position = tirx.floormod(linear(places, sizes, k.size(0)) - k.size(shifts[0]), total)
            return x.at(places_of(position, sizes))

        return k.compute(flat)

    def element(*places: Any) -> Num:
        own = list(places)
        for shift, dim in zip(shifts, dims):
            axis = axis_of(dim, x.rank)
            own[axis] = tirx.floormod(own[axis] - k.size(shift), k.size(x.shape[axis]))
        return x.at(own)

    return k.compute(element)


@converts("aten.repeat.default")
def repeat(k: Kernel, x: Value, repeats: Any) -> Value:
    def element(*places: Any) -> Num:
        own = places[len(places) - x.rank :] if x.rank else ()
        return x.at([tirx.floormod(place, k.size(size)) for place, size in zip(own, x.shape)])

    return k.compute(element)


@converts("aten.constant_pad_nd.default")
def constant_pad(k: Kernel, x: Value, pad: Sequence[Any], value: Any = 0) -> Value:
    before = [k.size(0)] * x.rank
    for at in range(len(pad) // 2):
        before[x.rank - 1 - at] = k.size(pad[2 * at])
    touched = {x.rank - 1 - at for at in range(len(pad) // 2)}

    def element(*places: Any) -> Num:
        own = [place - first for place, first in zip(places, before)]
        inside: Any = tirx.const(True, "bool")
        for axis in sorted(touched):
            within = tirx.And(tirx.GE(own[axis], k.size(0)), tirx.LT(own[axis], k.size(x.shape[axis])))
            inside = tirx.And(inside, within)
        return guarded(Num(inside, torch.bool), x.at(own).to(x.dtype), number(value, x.dtype))

    return k.compute(element)


@converts("aten.reflection_pad1d.default", "aten.reflection_pad2d.default", "aten.reflection_pad3d.default")
def reflection_pad(k: Kernel, x: Value, pad: Sequence[Any]) -> Value:
    def inner(place: Any, size: Any) -> Any:
        place = tirx.Select(tirx.LT(place, k.size(0)), -place, place)
        return tirx.Select(tirx.GE(place, size), (size - 1) * 2 - place, place)

    return _padded(k, x, pad, inner)


@converts("aten.replication_pad1d.default", "aten.replication_pad2d.default", "aten.replication_pad3d.default")
def replication_pad(k: Kernel, x: Value, pad: Sequence[Any]) -> Value:
    return _padded(k, x, pad, lambda place, size: tirx.max(tirx.min(place, size - 1), k.size(0)))


def _padded(k: Kernel, x: Value, pad: Sequence[Any], inner: Callable[[Any, Any], Any]) -> Value:
    def element(*places: Any) -> Num:
        own = list(places)
        for at in range(len(pad) // 2):
            axis = x.rank - 1 - at
            own[axis] = inner(own[axis] - k.size(pad[2 * at]), k.size(x.shape[axis]))
        return x.at(own)

    return k.compute(element)


@converts("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(k: Kernel, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    one, two = axis_of(dim1, x.rank), axis_of(dim2, x.rank)

    def element(*places: Any) -> Num:
        left, along = iter(places[:-1]), places[-1]
        at = {one: along + max(-offset, 0), two: along + max(offset, 0)}
        return x.at([at[axis] if axis in at else next(left) for axis in range(x.rank)])

    return k.compute(element)


@converts("aten.unfold.default")
def unfold(k: Kernel, x: Value, dim: int, size: int, step: int) -> Value:
    axis = axis_of(dim, x.rank)

    def element(*places: Any) -> Num:
        if not x.rank:
            return x.at(())
        return x.at(moved(places[:-1], axis, places[axis] * k.size(step) + places[-1]))

    return k.compute(element)


@converts("aten.as_strided.default", "aten.as_strided_copy.default")
def as_strided(k: Kernel, x: Value, size: Any, stride: Sequence[Any], offset: Any = None) -> Value:
    if offset is None:
        offset = x.fake.storage_offset()
    if not x.fake.is_contiguous() or isinstance(x.fake.storage_offset(), torch.SymInt) or x.fake.storage_offset():
        raise Refused("places in memory of a tensor that does not lie there in order")
    total = math.prod(x.shape) if all(isinstance(one, int) for one in x.shape) else None
    if total is None or not all(isinstance(one, int) for one in (*k.result.shape, *stride, offset)):
        raise Refused("places in memory that are known only at run time")
    reach = offset + sum((one - 1) * step for one, step in zip(k.result.shape, stride))
    if reach >= total:
        raise Refused("places in memory beyond the tensor's own")
    sizes = k.sizes(x.shape)

    def element(*places: Any) -> Num:
        position = k.size(offset)
        for place, step in zip(places, stride):
            position = position + place * k.size(step)
        return x.at(places_of(position, sizes))

    return k.compute(element)


@converts("aten.tril.default")
def tril(k: Kernel, x: Value, diagonal: Any = 0) -> Value:
    return _triangle(k, x, lambda row, column: tirx.LE(column, row + k.size(diagonal)))


@converts("aten.triu.default")
def triu(k: Kernel, x: Value, diagonal: Any = 0) -> Value:
    return _triangle(k, x, lambda row, column: tirx.GE(column, row + k.size(diagonal)))


def _triangle(k: Kernel, x: Value, inside: Callable[[Any, Any], Any]) -> Value:
    def element(*places: Any) -> Num:
        kept = Num(inside(places[-2], places[-1]), torch.bool)
        return guarded(kept, x.at(places).to(x.dtype), number(0, x.dtype))

    return k.compute(element)


@converts("aten.pixel_shuffle.default")
def pixel_shuffle(k: Kernel, x: Value, factor: int) -> Value:
    def element(*places: Any) -> Num:
        *lead, channel, row, column = places
        r = k.size(factor)
        inner = tirx.floormod(row, r) * r + tirx.floormod(column, r)
        return x.at((*lead, channel * r * r + inner, tirx.floordiv(row, r), tirx.floordiv(column, r)))

    return k.compute(element)


@converts("aten.view.dtype")
def view_dtype(k: Kernel, x: Value, dtype: torch.dtype) -> Value:
    from ..arithmetic import type_name

    if x.dtype.itemsize != dtype.itemsize or torch.bool in (x.dtype, dtype):
        raise Refused("the bits of a dtype of another size")

    def element(*places: Any) -> Num:
        raw = x.tensor(*places)
        same = type_name(dtype) == type_name(x.dtype)
        return Num(raw if same else tirx.reinterpret(type_name(dtype), raw), dtype)

    return k.compute(element)
