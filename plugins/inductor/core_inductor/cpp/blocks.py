"""The innermost loop in blocks of a fixed number of elements, and what is left of the row.

Enters: the range of a loop, what one point of it prints. Leaves: a loop over blocks around a loop over lanes, and a
loop over the rest where the length may be no multiple. A loop over a known number of lanes has no remainder of its own,
its arrays stay in registers, and folds that keep one partial result a lane don't wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..ir import expr
from ..ir.expr import Index
from ..sched.kernel import Kernel, size_of
from .context import KernelPrinter, expr_atom
from .halves import VECTOR, HalfRows
from .ops import EXPENSIVE
from .reductions import Accumulator
from .text import Source

Point = Callable[[Mapping[int, str], str], None]
"""Prints one point: the names of converted values, the text that indexes an array by the lane ("" where there are no
lanes)."""

FOLD_LANES = 64
"""Partial results of a fold along a row: so many that additions overlap, so few that they stay in registers."""

SHORTEST_FOLD = 256
"""Elements of a row below which merging the lanes costs more than they save."""

LANE_RUN = 64
"""Elements that a lane sums up in single precision."""


@dataclass
class Range:
    """Part of a row: texts of its ends, and whether its length is known to be a multiple of the lanes."""

    begin: str
    end: str
    exact: bool


def is_multiple(size: Index, lanes: int) -> bool:
    """Whether a length is known to be made of whole blocks."""
    return isinstance(size, int) and size % lanes == 0


def fold_lanes(kernel: Kernel, variable: Index, order: Iterable[int], halves: HalfRows) -> int:
    """Lanes of a fold along `variable`; 0 where a loop with one result is as good."""
    size = size_of(variable)
    cheap = expr.hint(size) >= SHORTEST_FOLD and not any(kernel.values[k].name in EXPENSIVE for k in order)
    for lanes in (FOLD_LANES, FOLD_LANES // 2) if cheap else ():
        if is_multiple(size, lanes):
            return lanes
    if not halves:
        return 0
    return FOLD_LANES if cheap and not is_multiple(size, VECTOR) else VECTOR


def print_blocks(
    printer: KernelPrinter,
    variable: Index,
    halves: HalfRows,
    part: Range,
    lanes: int,
    point: Point,
    *,
    pragma: str = "omp simd",
    rest_pragma: str = "omp simd",
    share: str = "",
    after: Callable[[], None] = lambda: None,
) -> None:
    """The loop over a part of a row. share: pragma of the loop over blocks; after: prints what follows it, before the
    rest of the row."""
    source, name = printer.source, expr_atom(variable).name

    def blocks(end: str) -> None:
        with source.loop("piece", part.begin, end, str(lanes), pragma=share):
            with halves.converted("piece", str(lanes), lanes, "lane"):
                with source.loop("lane", "0", str(lanes), pragma=pragma):
                    source.line(f"const long {name} = piece + lane;")
                    point(halves.names(), "[lane]")
        after()

    if part.exact:
        blocks(part.end)
        return
    with source.block():
        source.line(f"const long whole = {part.begin} + ({part.end} - ({part.begin})) / {lanes} * {lanes};")
        blocks("whole")
        with halves.converted("whole", f"{part.end} - whole", lanes, f"{name} - whole"):
            with source.loop(name, "whole", part.end, pragma=rest_pragma):
                point(halves.names(), "")


class LaneFolds:
    """Partial results of folds, one a lane, beside the folds' own accumulators."""

    def __init__(self, accumulators: Mapping[int, Accumulator], lanes: int) -> None:
        self.scalars = accumulators
        self.lanes = lanes
        self.arrays = {f: a.of_lanes() for f, a in accumulators.items()}

    def declare(self, source: Source) -> None:
        """The arrays with their first values."""
        variables = [v for a in self.arrays.values() for v in a.variables()]
        for v in variables:
            source.line(f"{v.ctype} {v.name}[{self.lanes}];")
        with source.loop("lane", "0", str(self.lanes), pragma="omp simd"):
            source.extend([f"{v.name}[lane] = {v.first};" for v in variables])

    def merge(self, source: Source) -> None:
        """Fold the lanes into the accumulators."""
        clauses = " ".join(c for a in self.scalars.values() for c in a.clauses())
        with source.loop("lane", "0", str(self.lanes), pragma=f"omp simd {clauses}"):
            for f, a in self.scalars.items():
                source.extend(a.merge_lane(self.arrays[f]))

    def at(self, lane: str) -> Mapping[int, Accumulator]:
        """What a point folds into."""
        return self.arrays if lane else self.scalars
