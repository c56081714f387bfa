"""The kernel of an addition at computed positions: a copy of the base, then additions one after the other.

Every element of the result is added to in the order of the index, as eager does, so that it has eager's bits. Threads
share what no two of them add to: outer dimensions, or else columns.
"""

from __future__ import annotations

from ..ir.dtypes import ITEM_BYTES
from ..ir.nodes import Accumulate
from .context import PARALLEL_WORK
from .functions import PARAMETERS
from .ops import C_TYPES, UNSIGNED, Expressions
from .text import Source

SHARED_COLUMNS = 128
"""Columns that threads share; of fewer they would write to the same lines of cache."""


def print_accumulate(what: Accumulate, expressions: Expressions) -> tuple[str, bool]:
    """(the function from its parameter list on, whether it uses threads)."""
    source = Source()
    kind, position = C_TYPES[what.dtype], C_TYPES[what.index_dtype]
    large = what.outer * what.count * what.inner >= PARALLEL_WORK
    by_columns = large and what.outer == 1 and what.inner >= SHARED_COLUMNS
    parallel = by_columns or large and what.outer > 1
    pragma = "omp parallel for num_threads(nthreads) schedule(static)" if parallel else ""
    source.line(PARAMETERS)
    source.depth = 1
    source.line(f"const {kind} *__restrict__ base = (const {kind} *)ptrs[0];")
    source.line(f"const {position} *__restrict__ index = (const {position} *)ptrs[1];")
    source.line(f"const {kind} *__restrict__ source = (const {kind} *)ptrs[2];")
    source.line(f"{kind} *__restrict__ out = ({kind} *)ptrs[3];")
    source.line("int status = 0;")
    source.line(f"__builtin_memcpy(out, base, {what.outer * what.size * what.inner * ITEM_BYTES[what.dtype]}L);")
    if by_columns:
        share = f"({what.inner} + nthreads - 1) / nthreads"
        source.line(f"const long columns = nthreads > 1 ? ({share} + 15) / 16 * 16 : {what.inner};")
        with source.loop("begin", "0", str(what.inner), "columns", pragma):
            source.line(f"const long end = begin + columns < {what.inner} ? begin + columns : {what.inner};")
            with source.loop("i", "0", str(what.count)):
                _additions(source, what, expressions, "0", ("begin", "end"))
    else:
        with source.loop("o", "0", str(what.outer), pragma=pragma):
            with source.loop("i", "0", str(what.count)):
                _additions(source, what, expressions, "o", ("0", str(what.inner)))
    source.line("return status;")
    source.depth = 0
    source.line("}")
    return source.text(), parallel


def _additions(
    source: Source, what: Accumulate, expressions: Expressions, outer: str, columns: tuple[str, str]
) -> None:
    """Those of one position of the index, or of one row of positions."""
    row = f"({outer} * {what.count} + i)"
    shared = "i" if what.shared else row
    if not what.elements:
        source.line(f"const long at = {_position(what, f'index[{shared}]', expressions)};")
    with source.loop("j", *columns, pragma="" if what.elements else "omp simd"):
        if what.elements:
            source.line(f"const long at = {_position(what, f'index[{row} * {what.inner} + j]', expressions)};")
        target = f"out[({outer} * {what.size} + at) * {what.inner} + j]"
        value = f"source[{row} * {what.inner} + j]"
        wide = UNSIGNED.get(what.dtype)
        total = f"({C_TYPES[what.dtype]})(({wide}){target} + ({wide}){value})" if wide else f"{target} + {value}"
        source.line(f"{target} = {total};")


def _position(what: Accumulate, element: str, expressions: Expressions) -> str:
    given = f"(long){element}"
    if what.wraps:
        given = f"{given} + ({element} < 0 ? {what.size} : 0)"
    return expressions.call("checked_index", given, str(what.size), str(what.code), "&status")
