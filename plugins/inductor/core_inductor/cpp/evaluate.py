"""What a loop body has to compute: the operations that its roots need, printed once each in order.

Enters: a kernel's values, the roots of one loop body, what is already known there (locals of outer loops, rows saved
from earlier walks, masks decided on a part of the loop). Leaves: statements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..ir import expr
from ..ir.dtypes import FLOATING
from ..ir.expr import Indirect
from ..ir.nodes import Node
from ..sched.kernel import Kernel, Value
from .ops import C_TYPES, CALLED_WITH_VECTORS, SERIAL, Expressions, literal
from .text import Source


class Body:
    """Prints values of one kernel. `names` holds the C++ name of every value that is a local variable now."""

    def __init__(self, kernel: Kernel, expressions: Expressions, pointers: Mapping[Node, str]) -> None:
        self.kernel = kernel
        self.expressions = expressions
        self.pointers = pointers

    def index(self, e: expr.Index, names: Mapping[int, str], slots: Iterable[int] = ()) -> str:
        """An index expression as text; Indirect slots are the named values."""
        if isinstance(e, int):
            return str(e)
        values = list(slots)
        table = {a: names[values[a.slot]] for a in expr.atoms_of(e) if isinstance(a, Indirect)} if values else None
        text = expr.text(e, table, divide="/")
        for name in ("floor_quotient", "floor_remainder"):
            if name in text:
                self.expressions.used.add(name)
        return text

    def expression(self, value: Value, names: Mapping[int, str]) -> str:
        """The right-hand side of one value."""
        if value.name == "load":
            node, offset = value.attr
            return self.expressions.load(self.pointers[node], self.index(offset, names, value.args), node.dtype)
        if value.name == "masked_load":
            node, offset = value.attr
            read = self.expressions.load(self.pointers[node], self.index(offset, names, value.args[2:]), node.dtype)
            return f"{names[value.args[0]]} ? {read} : {names[value.args[1]]}"
        if value.name == "index":
            return self.index(value.attr, names, value.args)
        if value.name == "index_below":
            e, bound = value.attr
            return f"{self.index(e, names)} < {self.index(bound, names)}"
        if value.name == "scalar":
            return self.float_names[value.attr]
        if value.name == "cast" and self._was_float(value):
            # GCC makes trunc(x) of (float)(int)x, which keeps the sign of what becomes 0
            zero, made = literal(0.0, value.dtype), self.expressions.cast(names[value.args[0]], "", value.dtype)
            return f"{names[value.args[0]]} == 0 ? {zero} : {made}"
        types = [self.kernel.values[a].dtype for a in value.args]
        return self.expressions.operation(value.name, [names[a] for a in value.args], types, value.dtype, value.attr)

    def _was_float(self, value: Value) -> bool:
        """Whether a cast to a floating type is of an integer that was one."""
        source = self.kernel.values[value.args[0]]
        if value.dtype not in FLOATING or source.name != "cast" or source.dtype not in ("int32", "int64"):
            return False
        return self.kernel.values[source.args[0]].dtype in FLOATING

    float_names: Mapping[str, str] = {}

    def print_values(self, source: Source, order: Iterable[int], names: dict[int, str], suffix: str = "") -> None:
        """Declare the values in order. Constants become literals in place."""
        for k in order:
            if k in names:
                continue
            value = self.kernel.values[k]
            text = self.expression(value, names)
            if value.name == "const":
                names[k] = text if not text.startswith("-") else f"({text})"
                continue
            name = f"v{k}{suffix}"
            source.line(f"const {C_TYPES[value.dtype]} {name} = {text};")
            names[k] = name


def needed(kernel: Kernel, roots: Iterable[int], known: Callable[[int], bool]) -> list[int]:
    """Positions that the roots need and that are not known yet, in order."""
    found: set[int] = set()
    pending = [r for r in roots if not known(r)]
    while pending:
        k = pending.pop()
        if k in found:
            continue
        found.add(k)
        pending.extend(a for a in kernel.values[k].args if a not in found and not known(a))
    return sorted(found)


def vectorisable(kernel: Kernel, order: Iterable[int]) -> bool:
    """True when no operation among `order` calls a function that works one element at a time."""
    for k in order:
        value = kernel.values[k]
        if value.name not in SERIAL or value.dtype == "float32" and value.name in CALLED_WITH_VECTORS:
            continue
        if value.name == "check_index" or value.dtype in ("float32", "float64"):
            return False
    return True
