"""The order of loops, by rules: what TVM makes of an expression is a loop nest as it was written, one value at a time.

Two things are changed. A tensor that is made element by element and read once for each element of the next is not kept
in memory; products stay, since LLVM would contract a product and a sum in one expression to a fused multiply-add, and
so does arithmetic on whole numbers, whose overflow is undefined within an expression. And in sums of products the loop
that runs through adjacent memory becomes the innermost, in tiles whose sums are held in registers.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import s_tir, tirx

WIDTHS = (64, 48, 32, 16, 8)
"""Elements of a tile along adjacent memory."""
HEIGHTS = (4, 3, 2)
"""Rows of a tile."""

Tile = tuple[int, int]
"""Width and height of a tile; 0 for what the rules say."""

_MAY_MERGE = ("float32", "float64", "bool")
"""Not 16-bit floats: TVM takes a cast to one and back for nothing."""


def scheduled(module: Any) -> Any:
    """The module with its functions' loops in order."""
    for variable, function in list(module.functions.items()):
        if isinstance(function, tirx.PrimFunc):
            module.update_func(variable, scheduled_function(function))
    return module


def scheduled_function(function: Any, tile: Tile | None = None) -> Any:
    """One function with its loops in order; its products in tiles of a size where that divides them."""
    schedule = s_tir.Schedule(function)
    root = schedule.get_sblock("root")
    for block in schedule.get_child_blocks(root):
        _inlined(schedule, block)
    for block in schedule.get_child_blocks(root):
        if schedule.get(block).name_hint.startswith("product"):
            _tiled(schedule, block, tile or (0, 0))
    return schedule.mod["main"].with_attrs(function.attrs)


def _inlined(schedule: Any, block: Any) -> None:
    made = schedule.get(block)
    consumers = schedule.get_consumers(block)
    if len(consumers) != 1 or made.init is not None or _stays(made.body):
        return
    reader = schedule.get(consumers[0])
    if reader.init is not None or _count(reader) != _count(made):
        return
    try:
        schedule.compute_inline(block)
    except s_tir.ScheduleError:
        return


def _stays(body: Any) -> bool:
    value = getattr(body, "value", None)
    return value is None or isinstance(value, (tirx.Mul, tirx.Div)) or str(value.ty) not in _MAY_MERGE


def _count(block: Any) -> int | None:
    extents = [axis.dom.extent for axis in block.iter_vars]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return math.prod(int(extent.value) for extent in extents)


def _tiled(schedule: Any, block: Any, tile: Tile) -> None:
    loops = schedule.get_loops(block)
    kinds = [axis.iter_type for axis in schedule.get(block).iter_vars]
    if len(loops) != len(kinds):
        return
    spatial = [loop for loop, kind in zip(loops, kinds) if kind == 0]
    reduced = [loop for loop, kind in zip(loops, kinds) if kind == 2]
    if not spatial or not reduced:
        return
    widths, heights = ((size,) if size else rule for size, rule in zip(tile, (WIDTHS, HEIGHTS)))
    width = _divisor(schedule.get(spatial[-1]).extent, widths)
    if width is None:
        schedule.reorder(*reduced, spatial[-1])
        schedule.decompose_reduction(block, reduced[0])
        return
    height = _divisor(schedule.get(spatial[-2]).extent, heights) if len(spatial) > 1 else None
    cached = schedule.cache_write(block, 0, "local")
    across, inner = schedule.split(spatial[-1], [None, width])
    outer, rows = list(spatial[:-1]), []
    if height is not None:
        down, row = schedule.split(spatial[-2], [None, height])
        outer[-1:], rows = [down], [row]
    schedule.reorder(*outer, across, *reduced, *rows, inner)
    schedule.reverse_compute_at(cached, across)
    schedule.vectorize(inner)
    for row in rows:
        schedule.unroll(row)
    schedule.decompose_reduction(block, reduced[0])


def _divisor(extent: Any, candidates: tuple[int, ...]) -> int | None:
    if not isinstance(extent, tirx.IntImm):
        return None
    return next((one for one in candidates if int(extent.value) % one == 0), None)
