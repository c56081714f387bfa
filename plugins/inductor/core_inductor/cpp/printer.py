"""The printer of kernels: one C++ function for each.

Enters: a scheduled kernel, the order of its pointers, in-place pairs. Leaves: the function's text behind its head
(equal kernels of a graph share one function, see functions.py) and whether it uses threads.
"""

from __future__ import annotations

from ..sched.kernel import Kernel
from . import columns, tiles, walks
from .context import KernelPrinter, Signature
from .ops import Expressions
from .pointwise import Pointwise


def print_kernel(kernel: Kernel, signature: Signature, expressions: Expressions) -> tuple[str, bool]:
    """(the function's body, which finds its outputs at `outs`, with the closing brace; whether it uses threads)."""
    printer = KernelPrinter(kernel, signature, expressions)
    source = printer.source
    source.depth = 1
    printer.prologue()
    if kernel.kind == "pointwise":
        tile = tiles.tile_of(kernel)
        if tile is None:
            Pointwise(printer).print()
        else:
            tiles.print_tiled(printer, tile)
    elif kernel.kind == "column":
        columns.print_columns(printer)
    elif kernel.kind == "split":
        walks.print_split(printer)
    else:
        walks.print_rows(printer)
    source.line("return status;" if printer.checks else "return 0;")
    source.depth = 0
    source.line("}")
    return source.text(), printer.parallel
