"""Folding kernels whose rows are contiguous: blocks of neighbouring rows ("lanes") are folded side by side.

Every fold is an array of one block; the inner loop runs over the lanes and vectorises. Float sums are added up in
runs and then in double, as in walks.py.
"""

from __future__ import annotations

from ..sched.kernel import ROW, size_of
from .blocks import is_multiple
from .context import KernelPrinter, expr_atom
from .evaluate import needed, vectorisable
from .ops import C_TYPES
from .walks import Walks, column_body, walk_order, walked_halves

LANES = 64
"""Neighbouring rows of one block: 4 lines of cache in float32, few enough for accumulators to stay in L1."""

COLUMN_RUN = 64
"""Columns summed in single precision before the block is added to the double totals."""


def print_columns(printer: KernelPrinter) -> None:
    """Blocks of lanes shared among threads; in each, walks over the columns with a loop over the lanes inside."""
    source, kernel = printer.source, printer.kernel
    outer, lane = kernel.rows[:-1], kernel.rows[-1]
    walks = Walks(printer, lanes=LANES, lane=f"{expr_atom(lane).name} - block")
    pragma = printer.threads(len(outer) + 1)

    def nest(depth: int) -> None:
        if depth < len(outer):
            with source.loop(
                expr_atom(outer[depth]).name, "0", printer.size(outer[depth]), pragma=pragma if depth == 0 else ""
            ):
                nest(depth + 1)
            return
        size = printer.size(lane)
        with source.loop("block", "0", size, str(LANES), pragma=pragma if not outer else ""):
            whole = is_multiple(size_of(lane), LANES)
            end = "" if whole else f" < {size} ? block + {LANES} : {size}"
            source.line(f"const long block_end = block + {LANES}{end};")
            _block(printer, walks)

    nest(0)


class _Lanes:
    """The loop over the lanes of the current block."""

    def __init__(self, printer: KernelPrinter) -> None:
        self.printer = printer
        self.name = expr_atom(printer.kernel.rows[-1]).name
        self.at = f"[{self.name} - block]"
        whole = is_multiple(size_of(printer.kernel.rows[-1]), LANES)
        self.count = str(LANES) if whole else "block_end - block"

    def loop(self, vector: bool):  # noqa: ANN201
        return self.printer.source.loop(self.name, "block", "block_end", pragma="omp simd" if vector else "")


def _block(printer: KernelPrinter, walks: Walks) -> None:
    source, values = printer.source, printer.kernel.values
    lanes = _Lanes(printer)
    for k, name in walks.scratch.items():
        count = printer.body.index(printer.extent(printer.kernel.cols), {})
        source.line(f"{C_TYPES[values[k].dtype]} {name}[{count} * {LANES}];")
    arrays: dict[int, str] = {}
    for walk in range(walks.count):
        _row_values(printer, walks, walk, lanes, arrays)
        if not walks.is_empty(walk):
            _walk(printer, walks, walk, lanes, arrays)
    _row_values(printer, walks, walks.count, lanes, arrays)


def _row_values(printer: KernelPrinter, walks: Walks, walk: int, lanes: _Lanes, arrays: dict[int, str]) -> None:
    """Row stores due now, and arrays of the row values that the next walk uses."""
    kernel, source = printer.kernel, printer.source
    values = kernel.values
    stores = [s for s in kernel.stores if s.level == ROW and s.stage == walk]
    keep: list[int] = []
    if walk < walks.count:
        order = walk_order(walks, walk, {})
        used = {a for k in order if values[k].level != ROW for a in values[k].args} | set(walks.roots(walk))
        keep = sorted(k for k in used if values[k].level == ROW and k not in arrays and not _trivial(values[k].name))
    if not stores and not keep:
        return
    for k in keep:
        source.line(f"{C_TYPES[values[k].dtype]} w{k}[{LANES}];")
    names = {k: f"{name}{lanes.at}" for k, name in arrays.items()}
    order = needed(kernel, [s.value for s in stores] + keep, lambda k: k in names)
    with lanes.loop(vectorisable(kernel, order)):
        printer.body.print_values(source, order, names)
        for k in keep:
            source.line(f"w{k}{lanes.at} = {names[k]};")
        for store in stores:
            printer.store(store, names)
    arrays.update({k: f"w{k}" for k in keep})


def _trivial(name: str) -> bool:
    return name in ("const", "load", "index", "scalar")


def _walk(printer: KernelPrinter, walks: Walks, walk: int, lanes: _Lanes, arrays: dict[int, str]) -> None:
    source, kernel = printer.source, printer.kernel
    cols = kernel.cols
    extent = printer.extent(cols)
    cascade = not isinstance(extent, int) or extent > COLUMN_RUN
    accumulators = walks.accumulators(walk, cascade, lanes.at)
    runs = bool(accumulators) and cascade
    names = {k: f"{name}{lanes.at}" for k, name in arrays.items()}
    order = walk_order(walks, walk, names)
    vector = vectorisable(kernel, order) and all(a.vectorises for a in accumulators.values())
    variables = [v for a in accumulators.values() for v in a.variables()]
    totals = [v for a in accumulators.values() for v in a.totals()] if runs else []
    _declare(printer, [*variables, *totals])

    def body() -> None:
        halves = walked_halves(printer, walks, walk, kernel.rows[-1], order if vector else ())
        with halves.converted("block", lanes.count, LANES, f"{lanes.name} - block"), lanes.loop(vector):
            column_body(printer, walks, walk, {**names, **halves.names()}, order, accumulators)

    def flush() -> None:
        with source.loop("lane", "0", "block_end - block", pragma="omp simd"):
            for a in accumulators.values():
                source.extend(a.merge("[lane]", "[lane]"))
                source.extend(f"{v.name}[lane] = {v.first};" for v in a.variables())

    def nest(depth: int) -> None:
        name, size = expr_atom(cols[depth]).name, printer.size(cols[depth])
        if depth < len(cols) - 1:
            with source.loop(name, "0", size):
                nest(depth + 1)
        elif not runs:
            with source.loop(name, "0", size):
                body()
        else:
            with source.loop("run", "0", size, str(COLUMN_RUN)):
                source.line(f"const long run_end = run + {COLUMN_RUN} < {size} ? run + {COLUMN_RUN} : {size};")
                with source.loop(name, "run", "run_end"):
                    body()
                flush()

    nest(0)
    if not accumulators:
        return
    for f in accumulators:
        source.line(f"{C_TYPES[kernel.values[f].dtype]} w{f}[{LANES}];")
    with source.loop("lane", "0", "block_end - block"):
        for f, a in accumulators.items():
            source.line(f"w{f}[lane] = {a.result(total=runs, at='[lane]')};")
    arrays.update({f: f"w{f}" for f in accumulators})


def _declare(printer: KernelPrinter, variables: list) -> None:
    source = printer.source
    if not variables:
        return
    for v in variables:
        source.line(f"{v.ctype} {v.name}[{LANES}];")
    with source.loop("lane", "0", str(LANES)):
        source.extend([f"{v.name}[lane] = {v.first};" for v in variables])
