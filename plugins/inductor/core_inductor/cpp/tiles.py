"""Pointwise kernels that read some operands across memory: tiles are turned over in L1.

Enters: a pointwise kernel whose innermost loop strides through an operand that another loop walks contiguously. Each
tile of such an operand is first copied, along its own memory, into a small turned array; the body then reads that.
Without it every element costs a line of cache.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import expr
from ..ir.dtypes import ITEM_BYTES
from ..ir.expr import Index
from ..sched.kernel import Kernel, size_of
from .context import KernelPrinter, expr_atom
from .evaluate import needed, vectorisable
from .ops import MEMORY_TYPES

ACROSS = 16
ALONG = 64
TURNED_BYTES = {2: "turn8_short", 4: "turn8"}
"""Functions that turn a block of 8x8 elements over in registers, by the bytes of an element."""
"""Tile extents: one line of the operand across, four lines of the result along."""


@dataclass
class Tile:
    """across: the loop that walks the turned operands' memory; along: the innermost loop; loads: the turned
    operands."""

    across: int
    along: int
    loads: list[int]


def tile_of(kernel: Kernel) -> Tile | None:
    """The tile of a kernel that needs one."""
    rows = kernel.rows
    if len(rows) < 2 or any(v.name == "index_below" for v in kernel.values):
        return None
    along = len(rows) - 1
    if expr.hint(size_of(rows[along])) < 16:
        return None
    atoms = [expr_atom(v) for v in rows]
    turned: dict[int, list[int]] = {}
    for k, value in enumerate(kernel.values):
        if value.name != "load" or value.args:
            continue
        split = expr.affine(value.attr[1], atoms)
        if split is None or split[0][along] in (0, 1):
            continue
        across = next((d for d in range(along) if split[0][d] == 1), None)
        if across is not None and expr.hint(size_of(rows[across])) >= 8:
            turned.setdefault(across, []).append(k)
    if not turned:
        return None
    across, loads = max(turned.items(), key=lambda item: len(item[1]))
    return Tile(across, along, loads)


def print_tiled(printer: KernelPrinter, tile: Tile) -> None:
    """Loops over tiles (and the remaining dimensions), shared among threads; copy, then compute."""
    kernel, source = printer.kernel, printer.source
    rows = kernel.rows
    across, along = rows[tile.across], rows[tile.along]
    others = [v for k, v in enumerate(rows) if k not in (tile.across, tile.along)]
    pragma = printer.threads(len(others) + 2)

    def nest(depth: int) -> None:
        if depth < len(others):
            v = others[depth]
            with source.loop(expr_atom(v).name, "0", printer.size(v), pragma=pragma if depth == 0 else ""):
                nest(depth + 1)
            return
        first = pragma if not others else ""
        with source.loop("across", "0", printer.size(across), str(ACROSS), pragma=first):
            with source.loop("along", "0", printer.size(along), str(ALONG)):
                _tile(printer, tile, across, along)

    nest(0)


def _tile(printer: KernelPrinter, tile: Tile, across: Index, along: Index) -> None:
    kernel, source = printer.kernel, printer.source
    a, b = expr_atom(across).name, expr_atom(along).name
    for name, variable, step in (("across", across, ACROSS), ("along", along, ALONG)):
        size = printer.size(variable)
        source.line(f"const long {name}_end = {name} + {step} < {size} ? {name} + {step} : {size};")
        source.line(f"const long {name}_blocks = {name} + ({name}_end - {name}) / 8 * 8;")
    names: dict[int, str] = {}
    for k in tile.loads:
        node, offset = kernel.values[k].attr
        source.line(f"{MEMORY_TYPES[node.dtype]} turned{k}[{ACROSS}][{ALONG}];")
        _copy(printer, k, across, along)
        names[k] = printer.expressions.load(f"turned{k}[{a} - across]", f"{b} - along", node.dtype)
        printer.turned[k] = f"turned{k}[{a} - across][{b} - along]"
    order = needed(kernel, [s.value for s in kernel.stores], lambda k: k in names)
    with source.loop(a, "across", "across_end"):
        vector = vectorisable(kernel, order)
        with source.loop(b, "along", "along_end", pragma="omp simd" if vector else ""):
            local = dict(names)
            printer.body.print_values(source, order, local)
            for store in kernel.stores:
                printer.store(store, local)


def _copy(printer: KernelPrinter, k: int, across: Index, along: Index) -> None:
    """One tile of an operand into turned[across][along]: 8x8 blocks in registers where they fit, the rest by
    elements."""
    source = printer.source
    node, offset = printer.kernel.values[k].attr
    a, b = expr_atom(across), expr_atom(along)
    element = f"{printer.pointers[node]}[{printer.body.index(offset, {})}]"
    target = f"turned{k}[{a.name} - across][{b.name} - along]"

    def elements(begin: str) -> None:
        with source.loop(a.name, begin, "across_end"):
            source.line(f"{target} = {element};")

    if ITEM_BYTES[node.dtype] not in TURNED_BYTES:
        with source.loop(b.name, "along", "along_end"):
            elements("across")
        return
    split = expr.affine(offset, [b])
    assert split is not None
    stride = printer.body.index(split[0][0], {})
    turn = TURNED_BYTES[ITEM_BYTES[node.dtype]]
    with source.loop(b.name, "along", "along_blocks", "8"):
        with source.loop(a.name, "across", "across_blocks", "8"):
            source.line(printer.expressions.call(turn, f"&{element}", stride, f"&{target}", str(ALONG)) + ";")
    with source.loop(b.name, "along", "along_end"):
        elements(f"{b.name} < along_blocks ? across_blocks : across")
