"""Views and copies: index maps, never data movement.

A copy that only rearranges (clone, flip, repeat) is a map too, marked `fresh`: whoever needs a real tensor of its own
makes one when the strides ask for it or the storage belongs to somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ..ir import expr
from ..ir.body import variable_map
from ..ir.expr import Index
from ..ir.nodes import Scalar, View, dense_strides, loop_vars
from .creation import filled
from .pointwise import convert
from .promotion import dtype_name
from .registry import lowers


def compose(view: View, sizes: Sequence[Index], index: Sequence[Index], *, fresh: bool = False) -> View:
    """The view of `sizes` whose element at its loop variables is `view` at `index`."""
    values = variable_map(loop_vars(view.sizes), index)
    mapped = tuple(expr.substitute(i, values) for i in view.index)
    return View(view.node, tuple(sizes), mapped, view.dtype, fresh=fresh or view.fresh)


def reshape(view: View, sizes: tuple[Index, ...]) -> View:
    """The same elements in row-major order under another shape."""
    if sizes == view.sizes:
        return compose(view, sizes, loop_vars(sizes))
    position = expr.linear(loop_vars(sizes), expr.row_major(sizes))
    return compose(view, sizes, expr.delinearize(position, view.sizes))


def integer(value: Any) -> Index | None:
    """A dimension index or size given as a number or symbol, None when its value is not an index expression."""
    if isinstance(value, Scalar):
        return value.expr
    return value if isinstance(value, int) else None


@lowers("view", "_unsafe_view", "reshape", "view_copy", "_reshape_copy", "prims::view_of", "flatten.using_ints")
def view(lowering: Any, node: fx.Node, x: View, *rest: Any, **kwargs: Any) -> Any:
    """Another shape."""
    fake = node.meta["val"]
    if dtype_name(fake.dtype) != x.dtype:
        return NotImplemented
    return reshape(x, lowering.sizes(fake))


@lowers("alias", "detach", "lift_fresh", "contiguous", "clone", "alias_copy", "detach_copy", "lift_fresh_copy", "lift")
def identity(lowering: Any, node: fx.Node, x: View, **kwargs: Any) -> View:
    """The same elements; whether it is a tensor of its own is in `fresh`."""
    fresh = x.fresh or node.target._schema.name in ("aten::clone", "aten::lift_fresh_copy", "aten::lift_fresh")
    return View(x.node, x.sizes, x.index, x.dtype, fresh=fresh)


@lowers("_to_copy")
def to_copy(lowering: Any, node: fx.Node, x: Any, **kwargs: Any) -> Any:
    """A copy, possibly of another type; of a number, which vmap puts in a tensor's place, a tensor."""
    if not isinstance(x, View):
        return filled(lowering, node, x)
    if x.dtype == dtype_name(node.meta["val"].dtype):
        return View(x.node, x.sizes, x.index, x.dtype, fresh=True)
    return convert(lowering, node, x)


@lowers("permute", "permute_copy")
def permute(lowering: Any, node: fx.Node, x: View, dims: Sequence[int]) -> View:
    """Dimensions in another order."""
    rank = len(x.sizes)
    return _permuted(x, [d % rank for d in dims])


def _permuted(x: View, dims: Sequence[int]) -> View:
    sizes = tuple(x.sizes[d] for d in dims)
    variables = loop_vars(sizes)
    index = [variables[dims.index(k)] for k in range(len(dims))]
    return compose(x, sizes, index)


@lowers("t", "numpy_T")
def t(lowering: Any, node: fx.Node, x: View) -> View:
    """Dimensions reversed."""
    return _permuted(x, list(range(len(x.sizes)))[::-1])


@lowers("transpose.int", "transpose_copy.int")
def transpose(lowering: Any, node: fx.Node, x: View, first: int, second: int) -> View:
    """Two dimensions swapped."""
    dims = list(range(len(x.sizes)))
    if dims:
        first, second = first % len(dims), second % len(dims)
        dims[first], dims[second] = dims[second], dims[first]
    return _permuted(x, dims)


@lowers("unsqueeze", "unsqueeze_copy")
def unsqueeze(lowering: Any, node: fx.Node, x: View, dim: int) -> View:
    """A dimension of size 1 inserted."""
    dim %= len(x.sizes) + 1
    sizes = x.sizes[:dim] + (1,) + x.sizes[dim:]
    variables = loop_vars(sizes)
    return compose(x, sizes, variables[:dim] + variables[dim + 1 :])


@lowers("squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims")
def squeeze(lowering: Any, node: fx.Node, x: View, dims: Any = None) -> View:
    """Dimensions of size 1 removed."""
    rank = len(x.sizes)
    chosen = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    removed = {d % rank for d in chosen if rank and x.sizes[d % rank] == 1}
    sizes = tuple(s for k, s in enumerate(x.sizes) if k not in removed)
    variables = iter(loop_vars(sizes))
    return compose(x, sizes, [0 if k in removed else next(variables) for k in range(rank)])


@lowers("expand", "expand_copy", "expand_as", "broadcast_to")
def expand(lowering: Any, node: fx.Node, x: View, *rest: Any, **kwargs: Any) -> View:
    """Dimensions of size 1 repeated."""
    sizes = lowering.sizes(node.meta["val"])
    variables = loop_vars(sizes)
    skip = len(sizes) - len(x.sizes)
    return compose(x, sizes, [0 if s == 1 else variables[skip + k] for k, s in enumerate(x.sizes)])


@lowers("repeat")
def repeat(lowering: Any, node: fx.Node, x: View, repeats: Sequence[Any]) -> View:
    """The tensor tiled."""
    sizes = lowering.sizes(node.meta["val"])
    variables = loop_vars(sizes)
    skip = len(sizes) - len(x.sizes)
    index = [
        0 if s == 1 else v if s == sizes[skip + k] else expr.mod(v, s)
        for k, (s, v) in enumerate(zip(x.sizes, variables[skip:]))
    ]
    return compose(x, sizes, index, fresh=True)


def bounded_start(start: Any, size: Index) -> Index | None:
    """A slice start brought into range(size + 1), None when that can't be decided before running."""
    start = 0 if start is None else integer(start)
    if start is None:
        return None
    if isinstance(start, int):
        if start == 0:
            return 0
        if isinstance(size, int):
            return min(max(start + size if start < 0 else start, 0), size)
        if start < 0 and expr.nonnegative(expr.add(size, start)):
            return expr.add(size, start)
    return start if expr.below(start, expr.add(size, 1)) else None


@lowers("slice.Tensor", "slice_copy.Tensor")
def slice_(
    lowering: Any, node: fx.Node, x: View, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Any:
    """x[..., start:end:step, ...]."""
    dim %= len(x.sizes)
    sizes = lowering.sizes(node.meta["val"])
    begin = bounded_start(start, x.sizes[dim])
    if begin is None or not isinstance(step, int):
        return NotImplemented
    variables = list(loop_vars(sizes))
    variables[dim] = expr.add(expr.mul(variables[dim], step), begin)
    return compose(x, sizes, variables)


def narrow(x: View, dim: int, begin: Index, length: Index) -> View:
    """x[..., begin:begin+length, ...]."""
    sizes = x.sizes[:dim] + (length,) + x.sizes[dim + 1 :]
    variables = list(loop_vars(sizes))
    variables[dim] = expr.add(variables[dim], begin)
    return compose(x, sizes, variables)


def selected(x: View, dim: int, position: Index) -> View:
    """x[..., position, ...]."""
    sizes = x.sizes[:dim] + x.sizes[dim + 1 :]
    variables = list(loop_vars(sizes))
    variables.insert(dim, position)
    return compose(x, sizes, variables)


def bounded_position(position: Any, size: Index) -> Index | None:
    """An element position brought into range(size), None when that can't be decided before running."""
    found = integer(position)
    if found is None:
        return None
    if isinstance(found, int) and found < 0:
        found = expr.add(size, found)
        return found if not isinstance(found, int) or found >= 0 else None
    if isinstance(found, int) and not isinstance(size, int):
        return found
    return found if expr.below(found, size) else None


@lowers("select.int", "select_copy.int")
def select(lowering: Any, node: fx.Node, x: View, dim: int, index: Any) -> Any:
    """One element of a dimension."""
    dim %= len(x.sizes)
    position = bounded_position(index, x.sizes[dim])
    return NotImplemented if position is None else selected(x, dim, position)


@lowers("split.Tensor", "split_with_sizes", "unsafe_split.Tensor", "unsafe_split_with_sizes", "split_with_sizes_copy")
def split(lowering: Any, node: fx.Node, x: View, parts: Any, dim: int = 0) -> tuple[View, ...]:
    """Consecutive pieces of a dimension."""
    dim %= len(x.sizes)
    begin: Index = 0
    views = []
    for fake in node.meta["val"]:
        length = lowering.sizes(fake)[dim]
        views.append(narrow(x, dim, begin, length))
        begin = expr.add(begin, length)
    return tuple(views)


@lowers("unbind.int")
def unbind(lowering: Any, node: fx.Node, x: View, dim: int = 0) -> tuple[View, ...]:
    """Every element of a dimension."""
    dim %= len(x.sizes)
    return tuple(selected(x, dim, k) for k in range(len(node.meta["val"])))


@lowers("flip")
def flip(lowering: Any, node: fx.Node, x: View, dims: Sequence[int]) -> View:
    """Dimensions read backwards."""
    flipped = {d % len(x.sizes) for d in dims} if x.sizes else set()
    variables = [
        expr.sub(expr.sub(s, 1), v) if k in flipped else v for k, (s, v) in enumerate(zip(x.sizes, loop_vars(x.sizes)))
    ]
    return compose(x, x.sizes, variables, fresh=True)


@lowers("roll")
def roll(lowering: Any, node: fx.Node, x: View, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    """Dimensions rotated."""
    if not dims or not all(isinstance(s, int) for s in shifts) or not all(isinstance(s, int) for s in x.sizes):
        return NotImplemented
    variables = list(loop_vars(x.sizes))
    for shift, dim in zip(shifts, dims):
        size = x.sizes[dim]
        assert isinstance(size, int)
        if size:
            variables[dim] = expr.mod(expr.add(variables[dim], -shift % size), size)
    return compose(x, x.sizes, variables, fresh=True)


@lowers("diagonal", "diagonal_copy")
def diagonal(lowering: Any, node: fx.Node, x: View, offset: int = 0, dim1: int = 0, dim2: int = 1) -> View:
    """The elements whose two indices differ by `offset`, as the last dimension."""
    sizes = lowering.sizes(node.meta["val"])
    rank = len(x.sizes)
    dim1, dim2 = dim1 % rank, dim2 % rank
    variables = loop_vars(sizes)
    rest = iter(variables[:-1])
    along = variables[-1]
    index = [
        expr.add(along, max(-offset, 0)) if k == dim1 else expr.add(along, max(offset, 0)) if k == dim2 else next(rest)
        for k in range(rank)
    ]
    return compose(x, sizes, index)


@lowers("as_strided", "as_strided_copy")
def as_strided(
    lowering: Any, node: fx.Node, x: View, size: Any, stride: Sequence[Any], storage_offset: Any = None
) -> Any:
    """Positions of the storage of a dense tensor, as positions of the tensor."""
    source = node.args[0].meta["val"]
    sizes, recorded = lowering.geometry(source)
    steps = [integer(s) for s in stride]
    begin = integer(storage_offset) if storage_offset is not None else source.storage_offset()
    numel = expr.product(sizes)
    if begin is None or None in steps or not isinstance(source.storage_offset(), int):
        return NotImplemented
    target = lowering.sizes(node.meta["val"])
    position = expr.add(expr.total(expr.mul(v, s) for v, s in zip(loop_vars(target), steps)), begin)
    position = expr.sub(position, source.storage_offset())
    if not dense_strides(sizes, recorded) or not all(isinstance(s, int) for s in sizes):
        return NotImplemented
    if not expr.below(position, numel):
        return NotImplemented
    order = sorted((k for k in range(len(sizes)) if sizes[k] != 1), key=lambda k: -recorded[k])
    inner = expr.delinearize(position, [sizes[k] for k in order])
    index: list[Index] = [0] * len(sizes)
    for k, i in zip(order, inner):
        index[k] = i
    return compose(x, target, index, fresh=node.target._schema.name.endswith("_copy"))


@lowers("unfold")
def unfold(lowering: Any, node: fx.Node, x: View, dim: int, size: Any, step: Any) -> Any:
    """Overlapping windows of a dimension, window elements last."""
    if not isinstance(size, int) or not isinstance(step, int) or not x.sizes:
        return NotImplemented
    dim %= len(x.sizes)
    sizes = lowering.sizes(node.meta["val"])
    variables = list(loop_vars(sizes))
    within = variables.pop()
    variables[dim] = expr.add(expr.mul(variables[dim], step), within)
    return compose(x, sizes, variables)
