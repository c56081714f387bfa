"""Views and copies that move values: reshapes, permutations, slices, joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..builder import ModelBuilder, Value
from ..errors import ConversionError
from ..registry import CONVERTERS, converts
from .operands import operand

_FAR = 2**63 - 1


@converts("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten._reshape_copy.default")
def view(b: ModelBuilder, x: Value, size: Sequence[Any]) -> Value:
    return b.reshape(x, _known_sizes(b, size))


def _known_sizes(b: ModelBuilder, size: Sequence[Any]) -> list[Any]:
    """The sizes asked for; -1 is replaced by the known one, since Reshape can't infer beside a 0."""
    given = list(size)
    for at, wanted in enumerate(given):
        known = b.result.shape[at]
        if isinstance(wanted, int) and wanted == -1 and isinstance(known, int):
            given[at] = known
    return given


@converts("aten.permute.default")
def permute(b: ModelBuilder, x: Value, dims: Sequence[int]) -> Value:
    if not x.rank:
        return b.node("Identity", x)
    return b.node("Transpose", x, perm=[dim % x.rank for dim in dims])


@converts("aten.transpose.int")
def transpose(b: ModelBuilder, x: Value, first: int, second: int) -> Value:
    order = list(range(x.rank))
    if order:
        order[first], order[second] = order[second], order[first]
    return permute(b, x, order)


@converts("aten.t.default")
def t(b: ModelBuilder, x: Value) -> Value:
    return b.node("Transpose", x, perm=[1, 0]) if x.rank == 2 else b.node("Identity", x)


@converts("aten.unsqueeze.default")
def unsqueeze(b: ModelBuilder, x: Value, dim: int) -> Value:
    return b.node("Unsqueeze", x, b.ints([dim % (x.rank + 1)]))


@converts("aten.squeeze.dim", "aten.squeeze.dims")
def squeeze(b: ModelBuilder, x: Value, dims: Any) -> Value:
    given = dims if isinstance(dims, (list, tuple)) else [dims]
    axes = [dim % x.rank for dim in given] if x.rank else []
    single = sorted({axis for axis in axes if isinstance(x.shape[axis], int) and x.shape[axis] == 1})
    return b.node("Squeeze", x, b.ints(single)) if single else b.node("Identity", x)


@converts("aten.squeeze.default")
def squeeze_all(b: ModelBuilder, x: Value) -> Value:
    return squeeze(b, x, list(range(x.rank)))


@converts("aten.expand.default")
def expand(b: ModelBuilder, x: Value, size: Sequence[Any], implicit: bool = False) -> Value:
    missing = len(size) - x.rank
    wanted: list[Any] = []
    for at, given in enumerate(size):
        keep = isinstance(given, int) and given == -1
        wanted.append(b.size_of(x, at - missing) if keep and at >= missing else given)
    known = [
        part if not isinstance(part, Value) or not isinstance(s, int) else s for part, s in zip(wanted, b.result.shape)
    ]
    return b.node("Expand", x, b.shape_vector(known)) if size else b.node("Identity", x)


@converts("aten.slice.Tensor")
def slice_(b: ModelBuilder, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    first = b.shape_vector([0 if start is None else start])
    last = b.shape_vector([_FAR if end is None else end])
    return b.node("Slice", x, first, last, b.ints([dim % x.rank]), b.ints([step]))


@converts("aten.select.int")
def select(b: ModelBuilder, x: Value, dim: int, index: Any) -> Value:
    return b.node("Gather", x, operand(b, index, torch.int64), axis=dim % x.rank)


@converts("aten.narrow.default", "aten.narrow_copy.default")
def narrow(b: ModelBuilder, x: Value, dim: int, start: Any, length: Any) -> Value:
    first = operand(b, start, torch.int64)
    last = b.node("Add", first, operand(b, length, torch.int64))
    return slice_(b, x, dim, first, last)


def _split(b: ModelBuilder, x: Value, sizes: Sequence[Any], dim: int) -> tuple[Value, ...]:
    if len(sizes) == 1:
        return (b.node("Identity", x),)
    return b.nodes_of("Split", len(sizes), x, b.shape_vector(sizes), axis=dim % x.rank)


@converts("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default", "aten.split_copy.Tensor")
def split(b: ModelBuilder, x: Value, size: Any, dim: int = 0) -> tuple[Value, ...]:
    parts = [part.shape[dim % x.rank] for part in b.result]
    if not all(isinstance(part, int) for part in parts):
        if not isinstance(size, (list, tuple)):
            raise ConversionError("a split of a symbolic size into equal parts")
        parts = list(size)
    return _split(b, x, parts, dim)


@converts("aten.unbind.int")
def unbind(b: ModelBuilder, x: Value, dim: int = 0) -> tuple[Value, ...]:
    axis = dim % x.rank
    return tuple(b.node("Gather", x, b.scalar(at, torch.int64), axis=axis) for at in range(len(b.result)))


@converts("aten.cat.default")
def cat(b: ModelBuilder, tensors: Sequence[Value], dim: int = 0) -> Value:
    dtype = b.result.dtype
    # torch skips tensors of shape (0,) whatever the others' rank
    kept = [b.cast(one, dtype) for one in tensors if not (one.shape == (0,) and b.result.dim() != 1)]
    if not kept:
        return b.node("Identity", b.cast(tensors[0], dtype))
    return b.node("Concat", *kept, axis=dim % b.result.dim()) if len(kept) > 1 else b.node("Identity", kept[0])


@converts("aten.stack.default")
def stack(b: ModelBuilder, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = b.ints([dim % b.result.dim()])
    lifted = [b.node("Unsqueeze", b.cast(one, b.result.dtype), axis) for one in tensors]
    return b.node("Concat", *lifted, axis=dim % b.result.dim())


@converts("aten.repeat.default")
def repeat(b: ModelBuilder, x: Value, repeats: Sequence[Any]) -> Value:
    missing = len(repeats) - x.rank
    value = x
    if missing:
        value = b.node("Unsqueeze", x, b.ints(range(missing)))
    return b.node("Tile", value, b.shape_vector(repeats)) if repeats else b.node("Identity", x)


@converts("aten.flip.default", "prims.rev.default")
def flip(b: ModelBuilder, x: Value, dims: Sequence[int]) -> Value:
    axes = [dim % x.rank for dim in dims] if x.rank else []
    if not axes:
        return b.node("Identity", x)
    count = len(axes)
    return b.node("Slice", x, b.ints([-1] * count), b.ints([-_FAR] * count), b.ints(axes), b.ints([-1] * count))


@converts("aten.roll.default")
def roll(b: ModelBuilder, x: Value, shifts: Any, dims: Any = ()) -> Value:
    moves = list(shifts) if isinstance(shifts, (list, tuple)) else [shifts]
    axes = list(dims) if isinstance(dims, (list, tuple)) else [dims]
    if not all(isinstance(size, int) for size in x.shape):
        raise ConversionError("rolling a symbolic size")
    value = x
    if not axes:
        value, axes = b.reshape(x, [-1]), [0]
    for move, dim in zip(moves, axes):
        axis = dim % max(x.rank, 1) if dims else 0
        size = x.shape[axis] if dims else x.fake.numel()
        offset = move % size if size else 0
        if offset:
            tail = slice_axis(b, value, axis, size - offset, size)
            value = b.node("Concat", tail, slice_axis(b, value, axis, 0, size - offset), axis=axis)
    return value if dims else b.reshape(value, list(x.shape))


def slice_axis(b: ModelBuilder, x: Value, axis: int, first: int, last: int) -> Value:
    """x[first:last] along one axis."""
    return b.node("Slice", x, b.ints([first]), b.ints([last]), b.ints([axis]))


@converts("aten.constant_pad_nd.default")
def constant_pad(b: ModelBuilder, x: Value, pad: Sequence[int], value: Any = 0) -> Value:
    if any(isinstance(width, Value) for width in pad):
        raise ConversionError("padding by a symbolic width")
    before, after = [0] * x.rank, [0] * x.rank
    for at in range(len(pad) // 2):
        before[x.rank - 1 - at], after[x.rank - 1 - at] = pad[2 * at], pad[2 * at + 1]
    widths = b.ints([*before, *after])
    if min(*before, *after, 0) < 0:
        x, widths = _cropped(b, x, before, after)
    return b.node("Pad", x, widths, operand(b, value, x.dtype), mode="constant")


def _cropped(b: ModelBuilder, x: Value, before: list[int], after: list[int]) -> tuple[Value, Value]:
    value = x
    for axis in range(len(before)):
        first, last = -min(before[axis], 0), min(after[axis], 0)
        if first or last:
            value = b.node("Slice", value, b.ints([first]), b.ints([last or _FAR]), b.ints([axis]))
    return value, b.ints([max(width, 0) for width in (*before, *after)])


def _triangle(upper: int) -> Any:
    def convert(b: ModelBuilder, x: Value, diagonal: Any = 0) -> Value:
        if x.dtype is torch.bool:
            return b.cast(
                b.node("Trilu", b.cast(x, torch.int64), operand(b, diagonal, torch.int64), upper=upper), x.dtype
            )
        return b.node("Trilu", x, operand(b, diagonal, torch.int64), upper=upper)

    return convert


CONVERTERS["aten.tril.default"] = _triangle(0)
CONVERTERS["aten.triu.default"] = _triangle(1)


@converts("aten.slice_scatter.default")
def slice_scatter(
    b: ModelBuilder, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = dim % x.rank
    size = x.shape[axis]
    if not isinstance(size, int) or any(isinstance(bound, Value) for bound in (start, end)):
        raise ConversionError("writing to a slice of a symbolic size")
    places = list(range(size)[slice(start, end, step)])
    return scatter_at(b, x, b.cast(source, x.dtype), axis, places)


@converts("aten.select_scatter.default")
def select_scatter(b: ModelBuilder, x: Value, source: Value, dim: int, index: Any) -> Value:
    axis = dim % x.rank
    if not isinstance(x.shape[axis], int) or isinstance(index, Value):
        raise ConversionError("writing to a place of a symbolic size")
    value = b.node("Unsqueeze", b.cast(source, x.dtype), b.ints([axis]))
    return scatter_at(b, x, value, axis, [index % x.shape[axis]])


def scatter_at(b: ModelBuilder, x: Value, source: Value, axis: int, places: list[int]) -> Value:
    """`x` with the rows `places` of `axis` replaced: contiguous parts are joined, others chosen by a mask."""
    size = x.shape[axis]
    if not places:
        return b.node("Identity", x)
    if places == list(range(places[0], places[-1] + 1)):
        parts = []
        if places[0] > 0:
            parts.append(slice_axis(b, x, axis, 0, places[0]))
        parts.append(source)
        if places[-1] + 1 < size:
            parts.append(slice_axis(b, x, axis, places[-1] + 1, size))
        return b.node("Concat", *parts, axis=axis) if len(parts) > 1 else b.node("Identity", source)
    row = {place: at for at, place in enumerate(places)}
    spread = b.node("Gather", source, b.ints([row.get(at, 0) for at in range(size)]), axis=axis)
    sizes = [size if at == axis else 1 for at in range(x.rank)]
    mask = b.constant([at in row for at in range(size)], torch.bool, sizes)
    return b.node("Where", mask, spread, x)


@converts("aten.diagonal.default", "aten.as_strided.default", "aten.unfold.default")
def strided(b: ModelBuilder, x: Value, *args: Any, **kwargs: Any) -> Value:
    raise ConversionError("values are taken by their place in memory, which a model has not")
