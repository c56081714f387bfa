"""BodyBuilder: appends operations to a body, folding constants and sharing equal ones.

Enters: operations of one element. Leaves: a list of `Op`. Loads name (node, index) pairs; a view is composed into the
index before it gets here. This file must not know ATen.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

from .dtypes import FLOATING, HALF, compute_type
from .expr import Atom, Index, Indirect, LoopVar, atoms_of, indirect, substitute
from .nodes import Loops, Node, Op, View, loop_vars


def variable_map(variables: Sequence[Index], index: Sequence[Index]) -> dict[Atom, Index]:
    """The substitution that sends loop variables to an index. Variables of size-1 dimensions are the constant 0."""
    return {_atom(variable): i for variable, i in zip(variables, index) if not isinstance(variable, int)}


def _atom(variable: Index) -> Atom:
    ((atom,),) = variable.terms  # type: ignore[union-attr]
    return atom


def shift_slots(e: Index, by: int) -> Index:
    """`e` with every Indirect slot moved up."""
    if by == 0 or isinstance(e, int):
        return e
    moved = {a: indirect(a.slot + by, a.size) for a in atoms_of(e) if isinstance(a, Indirect)}
    return substitute(e, moved) if moved else e


class BodyBuilder:
    """Builds one body. Every method returns the position of a value."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._seen: dict[tuple, int] = {}

    def emit(self, name: str, args: tuple[int, ...], dtype: str, attr: Any = None) -> int:
        """Append an operation, or find an equal one."""
        key = (name, args, dtype, attr) if name != "const" else (name, dtype, type(attr), repr(attr))
        position = self._seen.get(key)
        if position is None:
            position = len(self.ops)
            self.ops.append(Op(name, args, dtype, attr))
            self._seen[key] = position
        return position

    def dtype(self, value: int) -> str:
        """Compute type of a value."""
        return self.ops[value].dtype

    def const(self, value: bool | int | float, dtype: str) -> int:
        """A literal of a compute type."""
        dtype = compute_type(dtype)
        if dtype in FLOATING:
            # A float32 literal is rounded here, so that folding a later cast to float64 sees what the program would.
            value = float(value) if dtype == "float64" else ctypes.c_float(value).value
        elif dtype == "bool":
            value = bool(value)
        else:
            value = int(value)
        return self.emit("const", (), dtype, value)

    def index(self, e: Index, slots: tuple[int, ...] = ()) -> int:
        """An index expression as an int64 value."""
        if isinstance(e, int):
            return self.const(e, "int64")
        return self.emit("index", slots, "int64", e)

    def load(self, node: Node, index: tuple[Index, ...], slots: tuple[int, ...] = ()) -> int:
        """The element of `node` at `index`, widened to its compute type."""
        return self.emit("load", slots, compute_type(node.dtype), (node, index))

    def load_view(self, view: View, index: Sequence[Index] | None = None, slots: tuple[int, ...] = ()) -> int:
        """The element of a view at `index` (its own loop variables when omitted)."""
        if index is None:
            return self.load(view.node, view.index, slots)
        values = variable_map(loop_vars(view.sizes), index)
        return self.load(view.node, tuple(substitute(i, values) for i in view.index), slots)

    def cast(self, value: int, dtype: str) -> int:
        """Convert as `Tensor.to` does; a 16-bit float type rounds and stays float32."""
        source = self.ops[value]
        target = compute_type(dtype)
        if source.name == "const" and _folds(source.attr, source.dtype, target):
            value = self.const(source.attr, target)
        elif source.dtype != target:
            value = self.emit("cast", (value,), target)
        return self.round(value, dtype) if dtype in HALF else value

    def round(self, value: int, dtype: str) -> int:
        """Round a float32 value to the nearest value of a 16-bit type."""
        op = self.ops[value]
        if op.name == f"round_{dtype}" or op.name == "load" and op.attr[0].dtype == dtype:
            return value
        if op.name == "const" and (not math.isfinite(op.attr) or op.attr in (0.0, 1.0, -1.0, 0.5, 2.0)):
            return value
        return self.emit(f"round_{dtype}", (value,), "float32")

    def widen(self, value: int, dtype: str) -> int:
        """Convert to the compute type of `dtype` without rounding to `dtype` itself."""
        return self.cast(value, compute_type(dtype))

    def op(self, name: str, *args: int, dtype: str | None = None) -> int:
        """An operation whose result has the type of its last operand, or `dtype`."""
        return self.emit(name, args, dtype or self.ops[args[-1]].dtype)

    def compare(self, name: str, left: int, right: int) -> int:
        """A comparison of two values of one type."""
        return self.emit(name, (left, right), "bool")

    def where(self, condition: int, left: int, right: int) -> int:
        """left where condition holds, else right."""
        op = self.ops[condition]
        if op.name == "const":
            return left if op.attr else right
        return left if left == right else self.emit("where", (condition, left, right), self.ops[left].dtype)

    def index_below(self, e: Index, bound: Index) -> int:
        """Whether an index expression lies below a bound, as a bool that printers may decide on a range of the loop."""
        if isinstance(e, int) and isinstance(bound, int):
            return self.const(e < bound, "bool")
        return self.emit("index_below", (), "bool", (e, bound))

    def inline(
        self,
        node: Loops,
        index: Sequence[Index],
        variables: Sequence[Index],
        slots: tuple[int, ...] = (),
        mask: int | None = None,
    ) -> int:
        """Append the body of `node` evaluated at `index`; under `mask`, its loads happen only where the mask holds."""
        values = variable_map(variables, index)
        positions: list[int] = []
        for op in node.body:
            positions.append(self._inlined(op, values, positions, slots, mask))
        return positions[node.result]

    def _inlined(
        self, op: Op, values: Mapping[Atom, Index], positions: list[int], slots: tuple[int, ...], mask: int | None
    ) -> int:
        args = tuple(positions[a] for a in op.args)
        if op.name in ("load", "masked_load"):
            node, index = op.attr
            own = len(args) - (2 if op.name == "masked_load" else 0)
            moved = {atom: shift_slots(e, own) for atom, e in values.items()} if slots else values
            index = tuple(substitute(i, moved) for i in index)
            used = slots if any(isinstance(a, Indirect) and a.slot >= own for i in index for a in atoms_of(i)) else ()
            if op.name == "masked_load":
                inner = args[0] if mask is None else self.emit("bitwise_and", (mask, args[0]), "bool")
                return self.emit("masked_load", (inner, args[1], *args[2:], *used), op.dtype, (node, index))
            if mask is not None:
                zero = self.const(0, op.dtype)
                return self.emit("masked_load", (mask, zero, *args, *used), op.dtype, (node, index))
            return self.emit("load", args + used, op.dtype, (node, index))
        if op.name == "index":
            own = len(args)
            moved = {atom: shift_slots(e, own) for atom, e in values.items()} if slots else values
            return self.index(substitute(op.attr, moved), args + slots)
        if op.name == "index_below":
            return self._inlined_bound(op, values, slots)
        if op.name == "const":
            return self.const(op.attr, op.dtype)
        return self.emit(op.name, args, op.dtype, op.attr)

    def _inlined_bound(self, op: Op, values: Mapping[Atom, Index], slots: tuple[int, ...]) -> int:
        e, bound = op.attr
        e = substitute(e, values)
        if any(isinstance(atom, Indirect) for atom in atoms_of(e)):
            return self.compare("lt", self.index(e, slots), self.index(bound))
        return self.index_below(e, bound)


def _folds(value: Any, source: str, target: str) -> bool:
    """Whether a literal may be converted at compile time with the result the running program would have."""
    if target in FLOATING or target == "bool" or source == "bool":
        return True
    if source in FLOATING:
        return math.isfinite(value) and abs(value) < 2**31 and target in ("int32", "int64")
    return target == "int64" or (target == "int32" and abs(value) < 2**31)


def free_variables(ops: Sequence[Op]) -> set[LoopVar]:
    """The loop variables that the index maps of a body mention."""
    found: set[Atom] = set()
    for op in ops:
        if op.name in ("load", "masked_load"):
            for i in op.attr[1]:
                atoms_of(i, found)
        elif op.name == "index":
            atoms_of(op.attr, found)
        elif op.name == "index_below":
            atoms_of(op.attr[0], found)
    return {atom for atom in found if isinstance(atom, LoopVar)}
