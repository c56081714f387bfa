"""The Triton printer: one scheduled kernel becomes one Triton program.

Two shapes of program. *Flat*, without reductions: a program computes BLOCK consecutive points. *Rows*: a program
computes one row; its columns stay in registers up to MAX_BLOCK, and are walked in blocks beyond, once for each walk of
the kernel. A value is printed where it is first needed and once in each place that can see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ir import expr
from ..ir.dtypes import HALF
from ..ir.expr import Atom, Index, Indirect, atoms_of, combine, delinearize, loop_var, product, substitute
from ..ir.nodes import Node
from ..sched.kernel import COLUMN, ROW, Kernel, Store, Value, size_of
from .indexing import index_text
from .kernel import TritonKernel
from .operations import PRELUDE, TRITON_TYPES, literal, operation

FLAT_BLOCK = 1024
MAX_BLOCK = 8192  # rows up to this length stay in registers: 16 to 32 elements a thread
LOOP_BLOCK = 4096
NO_POSITION = 2**62  # behind every position that argmax and argmin can find


class EmptySpace(Exception):
    """A kernel without points needs no program."""


def print_kernel(kernel: Kernel) -> TritonKernel:
    """The program of a kernel. Raises UnsupportedOperation when Triton lacks an operation, EmptySpace."""
    return _Printer(kernel).run()


@dataclass
class _Scope:
    """Where text goes, and which variables can be seen there: by position of the value and by expression."""

    indent: str
    outer: _Scope | None = None
    values: dict[int, str] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)

    def value(self, position: int) -> str | None:
        """The variable of a value printed here or further out."""
        return self.values.get(position) or (self.outer.value(position) if self.outer else None)

    def expression(self, text: str) -> str | None:
        """The variable of an equal expression printed here or further out."""
        return self.printed.get(text) or (self.outer.expression(text) if self.outer else None)


class _Printer:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.flat = not kernel.reduces
        self.lines: list[str] = []
        self.top = _Scope("    ")
        self.inputs = {node: f"in{k}" for k, node in enumerate(kernel.inputs)}
        self.outputs = {node: f"out{k}" for k, node in enumerate(kernel.outputs)}
        self.uses_libdevice = False
        self._names = 0
        rows, columns = (product(size_of(v) for v in variables) for variables in (kernel.rows, kernel.cols))
        if rows == 0 or columns == 0:
            raise EmptySpace(kernel.name)
        self.rows, self.columns = (1, rows) if self.flat else (rows, columns)
        self.column = _atom(loop_var("column", self.columns))
        self.names: dict[Atom, str] = {self.column: "column", _atom(loop_var("row", self.rows)): "row"}
        self.mapping = self._mapping()
        self.in_registers = not self.flat and isinstance(self.columns, int) and self.columns <= MAX_BLOCK
        self.block = FLAT_BLOCK if self.flat else LOOP_BLOCK
        if self.in_registers and isinstance(self.columns, int):
            self.block = _power_of_two(self.columns)

    def _mapping(self) -> dict[Atom, Index]:
        """The kernel's loop variables in terms of row and column."""
        row, column = loop_var("row", self.rows), self.column.as_expr
        result: dict[Atom, Index] = {}
        for variables, position in ((self.kernel.rows, column if self.flat else row), (self.kernel.cols, column)):
            values = delinearize(position, [size_of(v) for v in variables])
            result.update({_atom(v): value for v, value in zip(variables, values)})
        return result

    # --- the program --------------------------------------------------------------------------------------------------

    def run(self) -> TritonKernel:
        if self.flat:
            self._line("    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
            self._line(f"    inside = column < {self._index(self.columns)}")
            self._stores(self.kernel.stores, self.top)
            programs = expr.floordiv(expr.add(self.columns, self.block - 1), self.block)
        else:
            self._line("    row = tl.program_id(0).to(tl.int64)")
            self._row_in_registers() if self.in_registers else self._row_by_walks()
            programs = self.rows
        return self._finished(programs)

    def _row_in_registers(self) -> None:
        self._line("    column = tl.arange(0, BLOCK).to(tl.int64)")
        self._line(f"    inside = column < {self._index(self.columns)}")
        self._stores(self.kernel.stores, self.top)

    def _row_by_walks(self) -> None:
        """A loop over blocks for each walk: its reductions are accumulated, its stores written."""
        for walk in range(self.kernel.walks):
            reductions = [k for k, v in enumerate(self.kernel.values) if v.name == "reduce" and v.attr[1] == walk]
            stores = [s for s in self.kernel.stores if s.level == COLUMN and s.stage == walk]
            self._row_values(walk)
            if not reductions and not stores:
                continue
            for position in reductions:
                self._start(position)
            scope = self._loop()
            for position in reductions:
                self._accumulate(position, scope)
            self._stores(stores, scope)
            for position in reductions:
                self.top.values[position] = self._folded(self.kernel.values[position], f"acc{position}", self.top)
        self._stores([s for s in self.kernel.stores if s.level == ROW], self.top)

    def _row_values(self, walk: int) -> None:
        """Print the values of the row that this walk may read: inside a loop they would be computed for every block."""
        for position, value in enumerate(self.kernel.values):
            if value.level == ROW and value.stage <= walk and value.name not in ("reduce", "const"):
                self._value(position, self.top)

    def _loop(self) -> _Scope:
        columns = self._index(self.columns)
        self._line(f"    for start in range(0, {columns}, BLOCK):")
        self._line("        column = start + tl.arange(0, BLOCK).to(tl.int64)")
        self._line(f"        inside = column < {columns}")
        return _Scope("        ", self.top)

    def _stores(self, stores: Sequence[Store], scope: _Scope) -> None:
        for store in stores:
            value = self._value(store.value, scope)
            offset = combine(substitute(store.offset, self.mapping))
            if store.buffer.dtype in HALF:
                value = f"{value}.to({TRITON_TYPES[store.buffer.dtype]})"
            mask = ", mask=inside" if self._varies(offset) else ""
            self._line(f"{scope.indent}tl.store({self.outputs[store.buffer]} + {self._index(offset)}, {value}{mask})")

    # --- values -------------------------------------------------------------------------------------------------------

    def _value(self, position: int, scope: _Scope) -> str:
        """The variable of a value, printed with all it needs when it can't be seen yet."""
        for needed in self._unseen(position, scope):
            value = self.kernel.values[needed]
            args = [scope.value(a) or "" for a in value.args]
            scope.values[needed] = self._print(value, args, scope)
        return scope.value(position) or ""

    def _unseen(self, position: int, scope: _Scope) -> list[int]:
        """The values to print for one, itself included, in order; bodies are too long for recursion."""
        found: set[int] = set()
        waiting = [position]
        while waiting:
            at = waiting.pop()
            if at not in found and scope.value(at) is None:
                found.add(at)
                waiting.extend(self.kernel.values[at].args)
        return sorted(found)

    def _print(self, value: Value, args: list[str], scope: _Scope) -> str:
        if value.name == "reduce":
            return self._folded(value, self._padded(value, args[0]), scope, args[1:])
        if value.name in ("load", "masked_load"):
            return self._load(value, args, scope)
        if value.name == "const":
            return self._name(literal(value.attr, value.dtype), scope)
        if value.name == "index":
            text = self._index(combine(substitute(value.attr, self.mapping)), tuple(args))
            return self._name(f"tl.full((), 0, tl.int64) + {text}", scope)
        if value.name == "index_below":
            left, right = (self._index(substitute(e, self.mapping)) for e in value.attr)
            return self._name(f"{left} < tl.full((), 0, tl.int64) + {right}", scope)
        if value.name == "scalar":
            return self._name(f"tl.full((), 0, tl.float64) + {value.attr}", scope)
        operand = self.kernel.values[value.args[-1]].dtype if value.args else value.dtype
        text = operation(value.name, args, value.dtype, operand)
        self.uses_libdevice = self.uses_libdevice or text.startswith("libdevice.")
        return self._name(text, scope)

    def _load(self, value: Value, args: list[str], scope: _Scope) -> str:
        node, index = value.attr
        masked = value.name == "masked_load"
        offset = combine(substitute(index, self.mapping))
        text = f"{self._pointer(node)} + {self._index(offset, tuple(args[2:] if masked else args))}"
        masks = [args[0]] if masked else []
        if self._varies(offset):
            masks.append("inside")
        elif masked:
            text = f"{text} + {args[0]}.to(tl.int64) * 0"  # the pointer gets the shape of its mask
        loaded = f"tl.load({text}{', mask=' + ' & '.join(masks) + ', other=0' if masks else ''})"
        if node.dtype in HALF:
            loaded += ".to(tl.float32)"
        elif node.dtype == "bool":
            loaded = f"({loaded} != 0)"
        if masked:
            loaded = f"tl.where({args[0]}, {loaded}, {args[1]})"
        return self._name(loaded, scope)

    def _pointer(self, node: Node) -> str:
        """An input, or an output that the kernel reads back."""
        return self.inputs.get(node) or self.outputs[node]

    def _varies(self, offset: Index) -> bool:
        """Whether an offset depends on the column, or on values that may."""
        return any(a is self.column or isinstance(a, Indirect) for a in atoms_of(offset))

    # --- reductions ---------------------------------------------------------------------------------------------------

    def _start(self, position: int) -> None:
        """The accumulator of a reduction, one entry a column of a block."""
        value = self.kernel.values[position]
        self._line(f"    acc{position} = {self._neutral(value).replace('tl.full(()', 'tl.full((BLOCK,)')}")
        if value.attr[0] in ("argmax", "argmin"):
            self._line(f"    acc{position}_at = tl.full((BLOCK,), {NO_POSITION}, tl.int64)")

    def _accumulate(self, position: int, scope: _Scope) -> None:
        value = self.kernel.values[position]
        kind, held = value.attr[0], f"acc{position}"
        args = [self._value(a, scope) for a in value.args]
        new = self._name(self._padded(value, args[0]), scope)
        if kind in ("argmax", "argmin"):
            at = self._name(f"tl.where(inside, {args[1]}, {NO_POSITION})", scope)
            self._line(f"{scope.indent}{held}, {held}_at = {_FIRST[kind]}({held}, {held}_at, {new}, {at})")
            return
        combined = {
            "sum": f"{held} + {new}",
            "prod": f"{held} * {new}",
            "amax": f"larger({held}, {new})",
            "amin": f"smaller({held}, {new})",
            "any": f"{held} | {new}",
            "all": f"{held} & {new}",
        }[kind]
        self._line(f"{scope.indent}{held} = {combined}")

    def _folded(self, value: Value, text: str, scope: _Scope, position: Sequence[str] = ()) -> str:
        """The variable of a fold over a block. position: of each column, for argmax and argmin outside a loop."""
        kind = value.attr[0]
        if kind in ("argmax", "argmin"):
            at = self._name(f"tl.where(inside, {position[0]}, {NO_POSITION})", scope) if position else f"{text}_at"
            block = self._name(text, scope) if position else text
            pair = self._name(f"tl.reduce(({block}, {at}), 0, {_FIRST[kind]})", scope)
            return self._name(f"{pair}[1]", scope)
        if kind == "sum":
            return self._name(f"tl.sum({text}, 0)", scope)
        if kind in ("any", "all"):
            return self._name(f"tl.{'max' if kind == 'any' else 'min'}(({text}).to(tl.int32), 0) != 0", scope)
        combine_fn = {"prod": "times", "amax": "larger", "amin": "smaller"}[kind]
        return self._name(f"tl.reduce({text}, 0, {combine_fn})", scope)

    def _padded(self, value: Value, text: str) -> str:
        """The operand, and the neutral element in columns that don't exist."""
        return f"tl.where(inside, {text}, {self._neutral(value)})"

    def _neutral(self, value: Value) -> str:
        dtype = self.kernel.values[value.args[0]].dtype
        largest, smallest = _limits(dtype)
        neutral = {
            "sum": 0,
            "prod": 1,
            "amax": smallest,
            "argmax": smallest,
            "amin": largest,
            "argmin": largest,
            "any": False,
            "all": True,
        }[value.attr[0]]
        return literal(neutral, dtype)

    # --- text ---------------------------------------------------------------------------------------------------------

    def _index(self, e: Index, slots: tuple[str, ...] = ()) -> str:
        return index_text(e, self.names, slots)

    def _name(self, text: str, scope: _Scope) -> str:
        """A variable with the value of an expression; equal expressions, loads among them, are printed once."""
        known = scope.expression(text)
        if known is None:
            known = scope.printed[text] = f"v{self._names}"
            self._names += 1
            self._line(f"{scope.indent}{known} = {text}")
        return known

    def _line(self, text: str) -> None:
        self.lines.append(text)

    def _finished(self, programs: Index) -> TritonKernel:
        kernel = self.kernel
        sizes, scalars = kernel.size_names(), kernel.float_names()
        parameters = [*self.inputs.values(), *self.outputs.values(), *sizes, *scalars, "BLOCK: tl.constexpr"]
        head = f"@triton.jit\ndef {kernel.name}({', '.join(parameters)}):"
        return TritonKernel(
            name=kernel.name,
            source=f"{PRELUDE}\n\n{head}\n" + "\n".join(self.lines) + "\n",
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            sizes=tuple(sizes),
            scalars=tuple(scalars),
            constants={"BLOCK": self.block},
            programs=programs,
            num_warps=_warps(self.block),
            interpretable=not self.uses_libdevice,
        )


_FIRST = {"argmax": "first_largest", "argmin": "first_smallest"}


def _power_of_two(count: int) -> int:
    """The smallest power of two that is no smaller."""
    return 1 << (count - 1).bit_length()


def _warps(block: int) -> int:
    """16 to 32 elements a thread for rows in registers; measured best for 4096 elements: 4 to 8 warps."""
    return 4 if block <= 2048 else 8 if block <= 4096 else 16


def _limits(dtype: str) -> tuple[float | int, float | int]:
    """(largest, smallest) value of a compute type."""
    if dtype in ("float32", "float64"):
        return float("inf"), float("-inf")
    if dtype == "bool":
        return True, False
    bits = {"uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63}[dtype]
    return 2**bits - 1, 0 if dtype == "uint8" else -(2**bits)


def _atom(e: Index) -> Atom:
    ((monomial, _),) = e.terms.items()  # type: ignore[union-attr]
    return monomial[0]
