"""loops: the order of a kernel's loops, and loops that are one loop in memory joined.

Enters: a Kernel with loop variables in graph order. Leaves: the same kernel with `kind` decided, dimensions sorted so
that the innermost one walks memory, adjacent ones collapsed where every access allows it, and variables renamed by
position (so that equal kernels print equal text).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir import expr
from ..ir.expr import Atom, Index
from .kernel import COLUMN, Kernel, Value, size_of
from .space import atom_of

SPLIT_ROWS = 16
SPLIT_COLS = 8192
"""With few rows and long columns the columns, not the rows, are what threads share."""


def order_loops(kernel: Kernel) -> None:
    """Sort, collapse and rename the loops of a kernel in place."""
    primary = primary_strides(kernel)
    kernel.kind = kind_of(kernel, primary)
    kernel.rows.sort(key=lambda v: -primary.get(atom_of(v), 0))
    kernel.cols.sort(key=lambda v: -primary.get(atom_of(v), 0))
    kernel.rows = collapse(kernel, kernel.rows)
    kernel.cols = collapse(kernel, kernel.cols)
    rename(kernel)


def strides_of(offset: Index, atoms: Sequence[Atom]) -> dict[Atom, int] | None:
    """Example value of each variable's coefficient in an affine offset."""
    split = expr.affine(offset, atoms)
    if split is None:
        return None
    return {a: expr.hint(c) for a, c in zip(atoms, split[0])}


def primary_strides(kernel: Kernel) -> dict[Atom, int]:
    """Strides of the access that decides the loop order: the largest store, or in a reduction the largest load."""
    atoms = [atom_of(v) for v in (*kernel.rows, *kernel.cols)]
    best: dict[Atom, int] = {}
    score = (-1, -1)
    for store in kernel.stores:
        found = strides_of(store.offset, atoms)
        reach = sum(1 for c in (found or {}).values() if c)
        if found is not None and not kernel.cols and (reach, 0) > score:
            best, score = found, (reach, 0)
    if best:
        return best
    for value in kernel.values:
        if value.name not in ("load", "masked_load") or (kernel.cols and value.level != COLUMN):
            continue
        node, offset = value.attr
        found = strides_of(offset, atoms)
        if found is None:
            continue
        reach = sum(1 for c in found.values() if c)
        if (reach, expr.hint(node.numel)) > score:
            best, score = found, (reach, expr.hint(node.numel))
    return best


def kind_of(kernel: Kernel, primary: dict[Atom, int]) -> str:
    """pointwise; row (columns contiguous); column (a row variable contiguous); split (few rows, long columns)."""
    if not kernel.cols:
        return "pointwise"
    rows = expr.hint(expr.product(size_of(v) for v in kernel.rows))
    cols = expr.hint(expr.product(size_of(v) for v in kernel.cols))
    nearest_row = min((primary.get(atom_of(v), 0) or 1 << 60 for v in kernel.rows), default=1 << 60)
    nearest_col = min((primary.get(atom_of(v), 0) or 1 << 60 for v in kernel.cols), default=1 << 60)
    if nearest_row < nearest_col:
        return "column"
    if kernel.walks == 1 and rows <= SPLIT_ROWS and cols >= SPLIT_COLS:
        return "split"
    return "row"


def collapse(kernel: Kernel, variables: list[Index]) -> list[Index]:
    """Join neighbouring loops whose pair is one walk through memory for every access."""
    result = list(variables)
    k = len(result) - 2
    while k >= 0:
        outer, inner = result[k], result[k + 1]
        width = size_of(inner)
        if all(_joint(e, outer, inner, width) for e in kernel.expressions()):
            joined = expr.loop_var(f"{atom_of(outer).name}_", expr.mul(size_of(outer), width))  # type: ignore[attr-defined]
            substitute_kernel(kernel, {atom_of(outer): 0, atom_of(inner): joined})
            result[k : k + 2] = [joined]
        k -= 1
    return result


def _joint(e: Index, outer: Index, inner: Index, width: Index) -> bool:
    if isinstance(e, int):
        return True
    atoms = expr.atoms_of(e)
    if atom_of(outer) not in atoms and atom_of(inner) not in atoms:
        return True
    split = expr.affine(e, [atom_of(outer), atom_of(inner)])
    return split is not None and split[0][0] == expr.mul(split[0][1], width)


def substitute_kernel(kernel: Kernel, mapping: dict[Atom, Index]) -> None:
    """Replace loop variables in every expression."""
    for value in kernel.values:
        value.attr = _moved_attr(value, mapping)
    for store in kernel.stores:
        store.offset = expr.substitute(store.offset, mapping)


def _moved_attr(value: Value, mapping: dict[Atom, Index]) -> object:
    if value.name in ("load", "masked_load"):
        node, offset = value.attr
        return (node, expr.substitute(offset, mapping))
    if value.name == "index":
        return expr.substitute(value.attr, mapping)
    if value.name == "index_below":
        return (expr.substitute(value.attr[0], mapping), expr.substitute(value.attr[1], mapping))
    return value.attr


def rename(kernel: Kernel) -> None:
    """Name rows i0, i1, ... and columns r0, r1, ... by position."""
    rows = [expr.loop_var(f"i{k}", size_of(v)) for k, v in enumerate(kernel.rows)]
    cols = [expr.loop_var(f"r{k}", size_of(v)) for k, v in enumerate(kernel.cols)]
    mapping = {atom_of(v): new for v, new in zip((*kernel.rows, *kernel.cols), (*rows, *cols))}
    substitute_kernel(kernel, mapping)
    kernel.rows, kernel.cols = rows, cols
