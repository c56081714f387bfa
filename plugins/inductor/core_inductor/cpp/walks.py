"""Folding kernels whose columns are contiguous: rows shared among threads, each row walked while it is in cache.

A value of one walk that a later walk needs is computed again when that is cheap, read back from an output that holds
it, or
kept in a scratch row on the stack. Kernels with few rows and long columns share the columns instead (print_split).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import expr
from ..ir.expr import Index
from ..sched.kernel import COLUMN, ROW, size_of
from .blocks import FOLD_LANES, LANE_RUN, LaneFolds, Range, fold_lanes, is_multiple, print_blocks
from .context import KernelPrinter, expr_atom
from .evaluate import needed, vectorisable
from .halves import VECTOR, HalfRows
from .ops import C_TYPES, EXPENSIVE
from .reductions import RUN, Accumulator
from .text import Source

SCRATCH_BYTES = 128 * 1024
"""Stack that one row's saved values may take; threads of OpenMP have 2 MB at least."""


class Walks:
    """What each walk over the columns folds, stores, saves and reads back."""

    def __init__(self, printer: KernelPrinter, *, lanes: int = 1, lane: str = "") -> None:
        self.printer = printer
        self.kernel = printer.kernel
        self.lanes = lanes
        self.lane = lane
        values = self.kernel.values
        self.count = self.kernel.walks
        self.folds: list[list[int]] = [[] for _ in range(self.count)]
        for k, value in enumerate(values):
            if value.name == "reduce":
                self.folds[value.attr[1]].append(k)
        self.stores = [[s for s in self.kernel.stores if s.level == COLUMN and s.stage == w] for w in range(self.count)]
        self.scratch: dict[int, str] = {}
        self.readback: dict[int, str] = {}
        self.saved_in: dict[int, int] = {}
        self._choose_saved()

    def _choose_saved(self) -> None:
        """Decide for each walk which values of earlier walks are kept."""
        values = self.kernel.values
        budget = SCRATCH_BYTES
        cols = self.printer.extent(self.kernel.cols)
        for walk in range(1, self.count):
            pending = self.roots(walk)
            seen: set[int] = set()
            while pending:
                k = pending.pop()
                if k in seen or values[k].level == ROW or self.is_saved(k):
                    continue
                seen.add(k)
                if values[k].stage < walk and self._expensive(k):
                    store = self._identity_store(k)
                    width = 8 if values[k].dtype in ("float64", "int64") else 4
                    if store is not None:
                        self.readback[k] = store
                        self.saved_in[k] = values[k].stage
                        continue
                    if isinstance(cols, int) and cols * width * self.lanes <= budget:
                        budget -= cols * width * self.lanes
                        self.scratch[k] = f"row{k}"
                        self.saved_in[k] = values[k].stage
                        continue
                pending.extend(values[k].args)

    def is_saved(self, k: int) -> bool:
        """Whether the value is kept across walks."""
        return k in self.scratch or k in self.readback

    def _expensive(self, k: int) -> bool:
        """Whether computing the value again costs more than reading it back."""
        values = self.kernel.values
        pending, seen, loads = [k], set(), 0
        while pending:
            j = pending.pop()
            if j in seen or values[j].level == ROW:
                continue
            seen.add(j)
            if values[j].name in EXPENSIVE or values[j].name.startswith("round_"):
                return True
            loads += values[j].name in ("load", "masked_load")
            pending.extend(values[j].args)
        return loads > 2 or len(seen) > 12

    def _identity_store(self, k: int) -> str | None:
        """The buffer element that holds exactly this value after its walk."""
        for store in self.kernel.stores:
            same = store.buffer.dtype == self.kernel.values[k].dtype
            if store.value == k and store.level == COLUMN and same:
                return f"{self.printer.pointers[store.buffer]}[{self.printer.body.index(store.offset, {})}]"
        return None

    def roots(self, walk: int) -> list[int]:
        """Values that the walk folds or stores."""
        found = [a for f in self.folds[walk] for a in self.kernel.values[f].args]
        return found + [s.value for s in self.stores[walk]]

    def saves(self, walk: int) -> list[int]:
        """Values that the walk writes to scratch rows."""
        return [k for k in self.scratch if self.saved_in[k] == walk]

    def is_empty(self, walk: int) -> bool:
        """Whether nothing happens in the walk."""
        return not self.folds[walk] and not self.stores[walk] and not self.saves(walk)

    def scratch_index(self) -> str:
        """The position of the current column in a scratch row."""
        cols = self.kernel.cols
        at = self.printer.body.index(expr.linear(cols, expr.row_major([size_of(c) for c in cols])), {})
        return f"({at}) * {self.lanes} + {self.lane}" if self.lane else at

    def known_texts(self, walk: int) -> dict[int, str]:
        """Expressions of values kept by earlier walks."""
        at = self.scratch_index()
        texts = {k: f"{name}[{at}]" for k, name in self.scratch.items() if self.saved_in[k] < walk}
        texts.update({k: text for k, text in self.readback.items() if self.saved_in[k] < walk})
        return texts

    def accumulators(self, walk: int, cascade: bool, at: str = "") -> dict[int, Accumulator]:
        """The accumulator of each fold of a walk."""
        values = self.kernel.values
        return {
            f: Accumulator(values[f].attr[0], values[values[f].args[0]].dtype, f"acc{f}", cascade=cascade, at=at)
            for f in self.folds[walk]
        }


def print_rows(printer: KernelPrinter) -> None:
    """A loop over rows; for each, its walks with the row's own values between them."""
    walks = Walks(printer)
    rows = printer.kernel.rows
    pragma = printer.threads(len(rows)) if rows else ""

    def nest(depth: int) -> None:
        if depth == len(rows):
            _row(printer, walks)
            return
        with printer.source.loop(
            expr_atom(rows[depth]).name, "0", printer.size(rows[depth]), pragma=pragma if depth == 0 else ""
        ):
            nest(depth + 1)

    nest(0)


def _row(printer: KernelPrinter, walks: Walks) -> None:
    source = printer.source
    names: dict[int, str] = {}
    values = printer.kernel.values
    for k, name in walks.scratch.items():
        source.line(
            f"{C_TYPES[values[k].dtype]} {name}[{printer.body.index(printer.extent(printer.kernel.cols), {})}];"
        )
    for walk in range(walks.count):
        row_values(printer, walks, walk, names)
        if not walks.is_empty(walk):
            print_walk(printer, walks, walk, names)
    row_values(printer, walks, walks.count, names)


def row_values(printer: KernelPrinter, walks: Walks, walk: int, names: dict[int, str]) -> None:
    """Values and stores of the row that are due before `walk` (after the one before it)."""
    kernel = printer.kernel
    stores = [s for s in kernel.stores if s.level == ROW and s.stage == walk]
    roots = [s.value for s in stores]
    if walk < walks.count:
        inside = needed(kernel, walks.roots(walk) + walks.saves(walk), lambda k: k in names)
        roots += [k for k in inside if kernel.values[k].level == ROW and kernel.values[k].stage <= walk]
    order = [k for k in needed(kernel, roots, lambda k: k in names) if kernel.values[k].level == ROW]
    printer.body.print_values(printer.source, order, names)
    for store in stores:
        printer.store(store, names)


def print_walk(
    printer: KernelPrinter,
    walks: Walks,
    walk: int,
    names: dict[int, str],
    *,
    first: tuple[str, str] | None = None,
    results: bool = True,
) -> dict[int, Accumulator]:
    """Loops over the columns. first: range of the outermost column loop, where it is not the whole."""
    source, kernel = printer.source, printer.kernel
    cols = kernel.cols
    extent = printer.extent(cols)
    cascade = not isinstance(extent, int) or extent > RUN
    accumulators = walks.accumulators(walk, cascade)
    runs = bool(accumulators) and (cascade or len(cols) > 1)
    inner_size = size_of(cols[-1])
    local = {k: n for k, n in names.items()}
    order = walk_order(walks, walk, local)
    vector = vectorisable(kernel, order) and all(a.vectorises for a in accumulators.values())
    halves = walked_halves(printer, walks, walk, cols[-1], order if vector else ())
    lanes = fold_lanes(kernel, cols[-1], order, halves) if vector and accumulators else VECTOR if halves else 0
    run = LANE_RUN * lanes or RUN
    blocked = runs and cascade and (not isinstance(inner_size, int) or inner_size > run)
    pragma = ""
    if vector:
        pragma = " ".join(["omp simd", *(c for a in accumulators.values() for c in a.clauses())])
    if runs:
        declare(source, [v for a in accumulators.values() for v in a.totals()])

    def innermost(begin: str, end: str) -> None:
        declare(source, [v for a in accumulators.values() for v in a.variables()])
        if lanes:
            part = Range(begin, end, is_multiple(inner_size, lanes))
            _in_blocks(printer, walks, walk, halves, part, lanes, local, order, accumulators, pragma)
        else:
            with source.loop(expr_atom(cols[-1]).name, begin, end, pragma=pragma):
                column_body(printer, walks, walk, dict(local), order, accumulators)
        if runs:
            for a in accumulators.values():
                source.extend(a.merge("", ""))

    def nest(depth: int) -> None:
        begin, end = ("0", printer.size(cols[depth])) if depth or first is None else first
        if depth < len(cols) - 1:
            with source.loop(expr_atom(cols[depth]).name, begin, end):
                nest(depth + 1)
        elif blocked:
            with source.loop("run", begin, end, str(run)):
                source.line(f"const long run_end = run + {run} < {end} ? run + {run} : {end};")
                innermost("run", "run_end")
        elif runs:
            with source.block():
                innermost(begin, end)
        else:
            innermost(begin, end)

    nest(0)
    if results:
        for f, a in accumulators.items():
            source.line(f"const {C_TYPES[kernel.values[f].dtype]} v{f} = {a.result(total=runs)};")
            names[f] = f"v{f}"
    return accumulators


def _in_blocks(
    printer: KernelPrinter,
    walks: Walks,
    walk: int,
    halves: HalfRows,
    part: Range,
    lanes: int,
    names: Mapping[int, str],
    order: list[int],
    accumulators: dict[int, Accumulator],
    pragma: str,
) -> None:
    """The innermost loop of a walk in blocks; each lane folds for itself."""
    folds = LaneFolds(accumulators, lanes)

    def point(converted: Mapping[int, str], lane: str) -> None:
        column_body(printer, walks, walk, {**names, **converted}, order, folds.at(lane))

    def merge() -> None:
        if accumulators:
            folds.merge(printer.source)

    with printer.source.block():
        if accumulators:
            folds.declare(printer.source)
        variable = printer.kernel.cols[-1]
        print_blocks(printer, variable, halves, part, lanes, point, rest_pragma=pragma, after=merge)


def walked_halves(printer: KernelPrinter, walks: Walks, walk: int, variable: Index, order: Sequence[int]) -> HalfRows:
    """The rows of 16-bit floats of a walk's innermost loop; of no order, none."""
    roots = [a for f in walks.folds[walk] for a in walks.kernel.values[f].args] + walks.saves(walk)
    return HalfRows(printer, variable, order, walks.stores[walk] if order else (), roots)


def declare(source: Source, variables: list) -> None:
    """Local variables with their first values."""
    for v in variables:
        source.line(f"{v.ctype} {v.name} = {v.first};")


def walk_order(walks: Walks, walk: int, names: dict[int, str]) -> list[int]:
    """Values that the walk's body computes, given the row's locals; kept ones are read, not computed."""
    kept = walks.known_texts(walk)
    roots = walks.roots(walk) + walks.saves(walk)
    return needed(walks.kernel, roots, lambda k: k in names or k in kept)


def column_body(
    printer: KernelPrinter,
    walks: Walks,
    walk: int,
    names: dict[int, str],
    order: list[int],
    accumulators: Mapping[int, Accumulator],
) -> None:
    """One point: kept values, operations, saves, folds, stores."""
    source, values = printer.source, printer.kernel.values
    kept = walks.known_texts(walk)
    used = {a for k in order for a in values[k].args} | set(walks.roots(walk))
    for k, text in kept.items():
        if k in used:
            source.line(f"const {C_TYPES[values[k].dtype]} v{k} = {text};")
            names[k] = f"v{k}"
    printer.body.print_values(source, order, names)
    for k in walks.saves(walk):
        source.line(f"{walks.scratch[k]}[{walks.scratch_index()}] = {names[k]};")
    for f, a in accumulators.items():
        args = values[f].args
        source.extend(a.update(names[args[0]], names[args[1]] if len(args) > 1 else ""))
    for store in walks.stores[walk]:
        printer.store(store, names)


CHUNKS = 64
"""Partial results of a split fold: a fixed number, so that results don't depend on the number of threads."""


def print_split(printer: KernelPrinter) -> None:
    """Rows one after the other; the outermost column loop in chunks shared among threads, partial results merged in
    order."""
    walks = Walks(printer)
    source, kernel = printer.source, printer.kernel
    rows = kernel.rows

    def nest(depth: int) -> None:
        if depth == len(rows):
            _split_row(printer, walks)
            return
        with source.loop(expr_atom(rows[depth]).name, "0", printer.size(rows[depth])):
            nest(depth + 1)

    nest(0)


def _split_row(printer: KernelPrinter, walks: Walks) -> None:
    source, kernel = printer.source, printer.kernel
    names: dict[int, str] = {}
    row_values(printer, walks, 0, names)
    accumulators = walks.accumulators(0, True)
    size = printer.size(kernel.cols[0])
    with source.block():
        # of whole lanes, so that no chunk has a rest where the whole has none
        chunk = f"(length + {CHUNKS * FOLD_LANES - 1}) / {CHUNKS * FOLD_LANES} * {FOLD_LANES}"
        source.line(f"const long length = {size}, chunk = {chunk};")
        for a in accumulators.values():
            for v in a.totals():
                source.line(f"{v.ctype} {v.name}_part[{CHUNKS}];")
        with source.loop("c", "0", str(CHUNKS), pragma=printer.threads()):
            source.line("const long begin = c * chunk < length ? c * chunk : length;")
            source.line("const long end = begin + chunk < length ? begin + chunk : length;")
            _chunk(printer, walks, names)
            for a in accumulators.values():
                for v in a.totals():
                    source.line(f"{v.name}_part[c] = {v.name};")
        _merge_parts(printer, accumulators)
        for f, a in accumulators.items():
            source.line(f"const {C_TYPES[kernel.values[f].dtype]} v{f} = {a.result(total=True)};")
            names[f] = f"v{f}"
        row_values(printer, walks, 1, names)


def _chunk(printer: KernelPrinter, walks: Walks, names: dict[int, str]) -> None:
    print_walk(printer, walks, 0, dict(names), first=("begin", "end"), results=False)


def _merge_parts(printer: KernelPrinter, accumulators: dict[int, Accumulator]) -> None:
    source = printer.source
    declare(source, [v for a in accumulators.values() for v in a.totals()])
    with source.loop("c", "0", str(CHUNKS)):
        for a in accumulators.values():
            source.extend(a.merge_totals("_part[c]"))
