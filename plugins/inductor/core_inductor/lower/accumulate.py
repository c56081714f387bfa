"""Additions at positions that come from tensors, where several may be the same: a kernel of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from ..ir import expr
from ..ir.expr import Index
from ..ir.nodes import Accumulate, Extern, View, loop_vars, same_strides
from . import fallback
from .index import ADVANCED, EMBEDDING, GATHER
from .promotion import dtype_name
from .registry import lowers

ADDED = frozenset({"float32", "float64", "int32", "int64"})
"""Types of which a sum is one addition after the other; 16-bit floats are rounded in between."""

POSITIONS = frozenset({"int32", "int64"})


@lowers("index_add")
def index_add(lowering: Any, node: fx.Node, x: View, dim: int, index: View, source: View, *, alpha: Any = 1) -> Any:
    """x with slices of `source` added along one dimension."""
    if alpha != 1 or len(index.sizes) != 1 or not x.sizes or len(source.sizes) != len(x.sizes):
        return NotImplemented
    code = EMBEDDING if len(x.sizes) == 1 else GATHER  # eager takes slices with select, which has an error of its own
    return _accumulated(lowering, node, x, dim % len(x.sizes), index, source, code, shared=True)


@lowers("index_put")
def index_put(
    lowering: Any, node: fx.Node, x: View, indices: Sequence[View | None], values: View, accumulate: bool = False
) -> Any:
    """x with `values` added at the positions along one dimension, which count from the end where they are negative."""
    given = [k for k, i in enumerate(indices) if i is not None]
    if not accumulate or len(given) != 1 or len(indices[given[0]].sizes) != 1:
        return NotImplemented
    return _accumulated(lowering, node, x, given[0], indices[given[0]], values, ADVANCED, shared=True)


@lowers("scatter_add")
def scatter_add(lowering: Any, node: fx.Node, x: View, dim: int, index: View, source: View) -> Any:
    """x with each element of `source` added at a position along one dimension."""
    if not x.sizes or not index.sizes or index.sizes != source.sizes:
        return NotImplemented
    return _accumulated(lowering, node, x, dim % len(x.sizes), index, source, GATHER, shared=False)


def _accumulated(
    lowering: Any, node: fx.Node, x: View, dim: int, index: View, source: View, code: int, *, shared: bool
) -> Any:
    sizes, strides = lowering.geometry(node.meta["val"])
    numbers = (*sizes, *strides, *source.sizes, *index.sizes)
    if lowering.device != "cpu" or not all(isinstance(n, int) for n in numbers) or sizes[dim] == 0:
        return NotImplemented
    apart = source.sizes[:dim] + source.sizes[dim + 1 :]
    if apart != sizes[:dim] + sizes[dim + 1 :] or not same_strides(sizes, strides, expr.row_major(sizes)):
        return NotImplemented
    if not x.dtype == source.dtype == dtype_name(node.meta["val"].dtype) or x.dtype not in ADDED:
        return NotImplemented
    if index.dtype not in POSITIONS:
        return NotImplemented
    if shared and index.sizes[0] != source.sizes[dim]:
        return NotImplemented
    rows = index if shared else _rows(index, dim)
    what = Accumulate(
        outer=_product(sizes[:dim]),
        size=sizes[dim],
        inner=_product(sizes[dim + 1 :]),
        count=_product(source.sizes[dim : dim + 1]),
        dtype=x.dtype,
        index_dtype=index.dtype,
        shared=shared,
        elements=rows is None,
        wraps=code == ADVANCED,
        code=code,
    )
    operands = tuple(_in_order(view) for view in (x, rows or index, source))
    call = Extern(f"x{lowering._next()}", None, None, operands, {}, origin=node, kernel=what)
    lowering.graph.items.append(call)
    return fallback.results_of(lowering, call, node.meta["val"])


def _product(sizes: Sequence[Any]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _rows(index: View, dim: int) -> View | None:
    """The index without the dimensions behind `dim`, where it is the same along them (an expanded one)."""
    variables = loop_vars(index.sizes)
    behind = {a for v in variables[dim + 1 :] for a in expr.atoms_of(v)}
    if any(not behind.isdisjoint(expr.atoms_of(e)) for e in index.index):
        return None
    return View(index.node, index.sizes[: dim + 1], index.index, index.dtype)


def _in_order(view: View) -> View:
    """The view as a tensor whose elements lie in order."""
    sizes: tuple[Index, ...] = view.sizes
    return View(view.node, sizes, view.index, view.dtype, strides=expr.row_major(sizes))
