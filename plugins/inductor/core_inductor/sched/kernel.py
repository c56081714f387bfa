"""Kernels: a group of nodes as one list of operations over one loop nest, still structured.

Enters: a Group, and which of its nodes must be stored. Leaves: a `Kernel`: loop dimensions (rows, reduced columns), a
list of operations in SSA form over the loop variables, each with its level and stage, and the stores. Printers (C++,
Triton) read this and nothing before it. Two members' equal loads and operations are one here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..ir import expr
from ..ir.dtypes import HALF
from ..ir.expr import Index, Indirect, LoopVar, SizeVar
from ..ir.nodes import Loops, Node, Op, Reduce
from .fuse import Group
from .space import Map, loop_atoms

ROW, COLUMN = 0, 1
"""Levels: once a row (loops over `rows` only), or at every point."""


@dataclass
class Value:
    """One operation of a kernel; args are positions in `Kernel.values`.

    attr by name: "load", "masked_load": (buffer node, offset in elements); "reduce": (kind, walk); the rest as in `Op`.
    level: ROW or COLUMN. stage of a COLUMN value: the first walk over the columns in which it can be computed; of a
    ROW value: the number of walks that must be over.
    """

    name: str
    args: tuple[int, ...]
    dtype: str
    attr: Any
    level: int
    stage: int


@dataclass
class Store:
    """Write values[value] to buffer[offset], at the value's level, in walk `stage` (ROW: after `stage` walks)."""

    value: int
    buffer: Node
    offset: Index
    level: int
    stage: int


@dataclass
class Kernel:
    """One loop nest. rows: outer loop variables; cols: reduced ones; kind: see `loops.kind_of`.

    In a kernel without reductions every loop variable is in `rows` and every value is at level ROW.
    """

    name: str
    rows: list[Index]
    cols: list[Index]
    values: list[Value] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    origins: list[Any] = field(default_factory=list)
    kind: str = "pointwise"

    @property
    def reduces(self) -> bool:
        """True when it folds something."""
        return any(v.name == "reduce" for v in self.values)

    @property
    def walks(self) -> int:
        """The number of walks over the columns."""
        stages = [v.stage - 1 for v in self.values if v.name == "reduce"]
        stages += [v.stage for v in self.values if v.level == COLUMN]
        stages += [s.stage for s in self.stores if s.level == COLUMN]
        return 1 + max(stages, default=-1)

    def offsets(self) -> Iterable[tuple[Node, Index]]:
        """(buffer, offset) of every load and store."""
        for value in self.values:
            if value.name in ("load", "masked_load"):
                yield value.attr
        for store in self.stores:
            yield store.buffer, store.offset

    def expressions(self) -> Iterable[Index]:
        """Every index expression of the kernel."""
        for value in self.values:
            if value.name in ("load", "masked_load"):
                yield value.attr[1]
            elif value.name == "index":
                yield value.attr
            elif value.name == "index_below":
                yield from value.attr
        for store in self.stores:
            yield store.offset

    def size_names(self) -> list[str]:
        """Names of the size symbols it needs, sorted."""
        found: set[expr.Atom] = set()
        for e in self.expressions():
            expr.atoms_of(e, found)
        for v in (*self.rows, *self.cols):
            expr.atoms_of(size_of(v), found)
        for atom in list(found):
            if isinstance(atom, LoopVar):
                expr.atoms_of(atom.size, found)
        return sorted(a.name for a in found if isinstance(a, SizeVar))

    def float_names(self) -> list[str]:
        """Names of the float scalars it needs, in order of first use."""
        return list(dict.fromkeys(v.attr for v in self.values if v.name == "scalar"))


def size_of(variable: Index) -> Index:
    """The size of a loop variable."""
    assert isinstance(variable, expr.Expr)
    ((monomial, _),) = variable.terms.items()
    return monomial[0].size  # type: ignore[attr-defined]


class KernelBuilder:
    """Builds the kernel of one group."""

    def __init__(self, name: str, group: Group, stored: Iterable[Node]) -> None:
        self.group = group
        self.kernel = Kernel(name, group.space.rows, group.space.cols)
        self.stored = set(stored)
        self.held: dict[Node, int] = {}
        self.seen: dict[tuple, int] = {}
        self.columns = {atom for v in group.space.cols for atom in loop_atoms(v)}

    def build(self) -> Kernel:
        """The kernel with all members' operations and the stores of those that others need."""
        kernel = self.kernel
        for node in self.group.nodes:
            self._member(node)
            if node.origin is not None:
                kernel.origins.append(node.origin)
        kernel.inputs = list(dict.fromkeys(n for n, _ in kernel.offsets() if n not in self.held))
        kernel.outputs = [n for n in self.group.nodes if n in self.stored]
        return kernel

    def _member(self, node: Loops) -> None:
        mapping = self.group.maps[node]
        positions: list[int] = []
        for op in node.body:
            positions.append(self._op(op, mapping, positions))
        value = positions[node.result]
        if isinstance(node, Reduce):
            value = self._reduce(node, value, mapping)
            if node.dtype in HALF and node.kind == "sum":
                value = self._value(f"round_{node.dtype}", (value,), "float32", None)
        self.held[node] = value
        if node in self.stored:
            self._store(node, value, mapping)

    def _reduce(self, node: Reduce, value: int, mapping: Map) -> int:
        source = self.kernel.values[value]
        walk = source.stage
        folded = {a for v in node.variables[len(node.sizes) :] for a in loop_atoms(expr.substitute(v, mapping))}
        if folded != self.columns:
            raise AssertionError(f"{node.name} folds {folded}, its kernel {self.columns}")
        args: tuple[int, ...] = (value,)
        dtype = source.dtype
        if node.kind in ("argmax", "argmin"):
            inner = [v for v in node.variables[len(node.sizes) :]]
            position = expr.linear([expr.substitute(v, mapping) for v in inner], expr.row_major(node.reduced))
            args = (value, self._value("index", (), "int64", position))
            dtype = "int64"
        # A fold has its own level: its operand may be constant along the columns, the result is a row's in any case.
        return self._emit("reduce", args, dtype, (node.kind, walk), ROW, walk + 1)

    def _store(self, node: Loops, value: int, mapping: Map) -> None:
        if isinstance(node, Reduce):
            index = [expr.substitute(v, mapping) for v in node.variables[: len(node.sizes)]]
        else:
            index = [expr.substitute(v, mapping) for v in node.variables]
        offset = expr.linear(index, node.strides)
        level = COLUMN if self._touches_columns(offset) else ROW
        if self.kernel.values[value].name == f"round_{node.dtype}":
            (value,) = self.kernel.values[value].args  # the store rounds
        self.kernel.stores.append(Store(value, node, offset, level, self.kernel.values[value].stage))

    def _touches_columns(self, e: Index) -> bool:
        return bool(self.columns) and not self.columns.isdisjoint(expr.atoms_of(e))

    def _op(self, op: Op, mapping: Map, positions: list[int]) -> int:
        args = tuple(positions[a] for a in op.args)
        if op.name in ("load", "masked_load"):
            return self._load(op, mapping, args)
        if op.name == "index":
            return self._value("index", args, op.dtype, expr.substitute(op.attr, mapping))
        if op.name == "index_below":
            e, bound = op.attr
            return self._value("index_below", args, op.dtype, (expr.substitute(e, mapping), bound))
        return self._value(op.name, args, op.dtype, op.attr)

    def _load(self, op: Op, mapping: Map, args: tuple[int, ...]) -> int:
        node, index = op.attr
        held = self.held.get(node)
        if held is not None:
            # Fusion proved that the load asks for what is computed at this very point.
            if op.name == "load":
                return held
            return self._value("where", (args[0], held, args[1]), op.dtype, None)
        offset = expr.linear([expr.substitute(i, mapping) for i in index], node.strides)
        return self._value(op.name, args, op.dtype, (node, offset))

    def _value(self, name: str, args: tuple[int, ...], dtype: str, attr: Any) -> int:
        level, stage = ROW, 0
        if name in ("load", "masked_load", "index", "index_below"):
            touched = attr[1] if name in ("load", "masked_load") else attr if name == "index" else attr[0]
            level = COLUMN if self._touches_columns(touched) else ROW
        for a in args:
            value = self.kernel.values[a]
            level = max(level, value.level)
            stage = max(stage, value.stage)
        return self._emit(name, args, dtype, attr, level, stage)

    def _emit(self, name: str, args: tuple[int, ...], dtype: str, attr: Any, level: int, stage: int) -> int:
        key = (name, args, dtype, repr(attr) if name == "const" else attr)
        known = self.seen.get(key)
        if known is None:
            known = self.seen[key] = len(self.kernel.values)
            self.kernel.values.append(Value(name, args, dtype, attr, level, stage))
        return known


def has_indirect(e: Index) -> bool:
    """True when an offset depends on values read from tensors."""
    return any(isinstance(a, Indirect) for a in expr.atoms_of(e))
