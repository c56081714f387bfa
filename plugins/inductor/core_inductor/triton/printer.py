"""The Triton printer: nodes over one iteration space become one program.

Two shapes of program. *Flat*: pointwise nodes of one shape; a program computes BLOCK consecutive elements. *Rows*:
reductions over one set of loops, and pointwise nodes around them; a program computes one row, which stays in registers
up to MAX_BLOCK elements and is walked in blocks beyond, once for every level of reductions that depend on each other.
Values of nodes in the group are never read back from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..ir import expr
from ..ir.dtypes import HALF
from ..ir.expr import (
    Atom,
    Expr,
    Index,
    Indirect,
    atoms_of,
    delinearize,
    linear,
    loop_var,
    product,
    substitute,
)
from ..ir.nodes import Loops, Node, Op, Reduce
from .indexing import index_text, size_names
from .kernel import TritonKernel
from .operations import PRELUDE, TRITON_TYPES, literal, operation

FLAT_BLOCK = 1024
MAX_BLOCK = 8192  # rows up to this length stay in registers: 16 to 32 elements a thread
LOOP_BLOCK = 4096


class NotOneGroup(Exception):
    """The nodes don't share an iteration space, or one reads another at a different element."""


def print_group(name: str, nodes: Sequence[Loops], stored: Sequence[Node]) -> TritonKernel:
    """The program that computes `nodes`, in order, and writes those of `stored`.

    Raises NotOneGroup, or UnsupportedOperation when Triton lacks an operation.
    """
    return _Printer(name, tuple(nodes), tuple(stored)).run()


@dataclass
class _Scope:
    """Where text goes, and what can be used there: variables by (node, position) and by their expression."""

    indent: str
    values: dict[tuple[Node, int], str] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)


class _Printer:
    def __init__(self, name: str, nodes: tuple[Loops, ...], stored: tuple[Node, ...]) -> None:
        self.name = name
        self.nodes = nodes
        self.stored = stored
        self.group = set(nodes)
        self.reductions = [node for node in nodes if isinstance(node, Reduce)]
        self.lines: list[str] = []
        self.inputs: dict[Node, str] = {}
        self.scalars: dict[str, str] = {}
        self.sizes: set[str] = set()
        self.results: dict[Node, str] = {}  # folded values and stored rows: one number a program
        self.uses_libdevice = False
        self._names = 0
        self.rows, self.columns = self._space()
        if self.rows == 0 or self.columns == 0:
            raise NotOneGroup("a space without elements needs no kernel")
        self.row = loop_var("row", self.rows)
        self.column = loop_var("column", self.columns)
        self.names: dict[Atom, str] = {_atom(self.row): "row", _atom(self.column): "column"}

    # --- the space ----------------------------------------------------------------------------------------------------

    def _space(self) -> tuple[Index, Index]:
        """(rows, columns): outer and reduced elements, or 1 and all elements of a flat group."""
        if not self.reductions:
            if len({node.sizes for node in self.nodes}) != 1:
                raise NotOneGroup("pointwise nodes of different shapes")
            return 1, product(self.nodes[0].sizes)
        first = self.reductions[0]
        rows, columns = product(first.sizes), product(first.reduced)
        for node in self.reductions:
            if product(node.sizes) != rows or product(node.reduced) != columns:
                raise NotOneGroup("reductions over different loops")
        return rows, columns

    def _is_full(self, node: Loops) -> bool:
        """Whether a node has a value for each element of the space, not one a row."""
        if not self.reductions:
            return True
        if isinstance(node, Reduce):
            return False
        elements = product(node.sizes)
        if elements == product((self.rows, self.columns)) and (self.columns != 1):
            return True
        if elements != self.rows:
            raise NotOneGroup(f"{node.name} has neither a value a row nor one an element")
        return False

    def _coordinates(self, node: Loops) -> dict[Atom, Index]:
        """The loop variables of a node in terms of row and column."""
        if isinstance(node, Reduce):
            values = (*delinearize(self.row, node.sizes), *delinearize(self.column, node.reduced))
        elif not self.reductions:
            values = delinearize(self.column, node.sizes)
        elif self._is_full(node):
            values = self._full_coordinates(node)
        else:
            values = delinearize(self.row, node.sizes)
        return {_atom(v): value for v, value in zip(node.variables, values) if _is_var(v)}

    def _full_coordinates(self, node: Loops) -> tuple[Index, ...]:
        """Which dimensions of a full node are rows: as in a reduction of a tensor of its shape, else the first ones."""
        shared = self._like_a_reduction(node)
        if shared is not None:
            return shared
        return delinearize(expr.add(expr.mul(self.row, self.columns), self.column), node.sizes)

    def _like_a_reduction(self, node: Loops) -> tuple[Index, ...] | None:
        """The coordinates at which a reduction of the group reads a tensor of this node's shape."""
        for reduction in self.reductions:
            outer = delinearize(self.row, reduction.sizes)
            inner = delinearize(self.column, reduction.reduced)
            for op in reduction.loads():
                target, index = op.attr
                if target.sizes == node.sizes and _permutes(index, reduction.variables):
                    values = {_atom(v): c for v, c in zip(reduction.variables, (*outer, *inner)) if _is_var(v)}
                    return tuple(substitute(i, values) for i in index)
        return None

    # --- the program --------------------------------------------------------------------------------------------------

    def run(self) -> TritonKernel:
        flat = not self.reductions
        block = self._block()
        whole = flat or isinstance(self.columns, int) and self.columns <= MAX_BLOCK
        self._head(flat, whole)
        scope = _Scope("    ")
        if flat:
            self._store_all(scope)
        elif whole:
            for node in self.nodes:
                if isinstance(node, Reduce):
                    self._fold(node, scope)
            self._store_all(scope)
        else:
            self._walk()
        programs = expr.floordiv(expr.add(self.columns, block - 1), block) if flat else self.rows
        return self._kernel(block, programs)

    def _block(self) -> int:
        if not self.reductions:
            return FLAT_BLOCK
        if isinstance(self.columns, int) and self.columns <= MAX_BLOCK:
            return max(1 << (self.columns - 1).bit_length(), 1) if self.columns else 1
        return LOOP_BLOCK

    def _head(self, flat: bool, whole: bool) -> None:
        columns = self._index(self.columns)
        if flat:
            self._line("    column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
            self._line(f"    inside = column < {columns}")
            return
        self._line("    row = tl.program_id(0).to(tl.int64)")
        if whole:
            self._line("    column = tl.arange(0, BLOCK).to(tl.int64)")
            self._line(f"    inside = column < {columns}")

    def _walk(self) -> None:
        """Rows that don't fit: one loop over blocks for each level of reductions, one for the full results."""
        outer = _Scope("    ")
        for level in self._levels():
            for node in level:
                self._line(f"    {self._accumulator(node)} = {self._start(node)}")
                if node.kind in ("argmax", "argmin"):
                    self._line(f"    {self._accumulator(node)}_at = tl.full((BLOCK,), {2**62}, tl.int64)")
            scope = self._loop()
            for node in level:
                self._accumulate(node, scope)
            for node in level:
                self._finish(node, outer)
        full = [node for node in self.stored if self._is_full(node)]
        if full:
            scope = self._loop()
            for node in full:
                self._store(node, scope)
        for node in self.stored:
            if node not in full:
                self._store(node, outer)

    def _loop(self) -> _Scope:
        self._line(f"    for start in range(0, {self._index(self.columns)}, BLOCK):")
        self._line("        column = start + tl.arange(0, BLOCK).to(tl.int64)")
        self._line(f"        inside = column < {self._index(self.columns)}")
        return _Scope("        ")

    def _levels(self) -> list[list[Reduce]]:
        """Reductions by how many others stand before them; those of one level share a loop."""
        depth: dict[Loops, int] = {}
        for node in self.nodes:
            before = [depth[op.attr[0]] for op in node.loads() if op.attr[0] in depth]
            depth[node] = max(before, default=0) + isinstance(node, Reduce)
        count = max(depth.values(), default=0)
        return [[n for n in self.reductions if depth[n] == level] for level in range(1, count + 1)]

    def _store_all(self, scope: _Scope) -> None:
        for node in self.stored:
            self._store(node, scope)

    def _store(self, node: Node, scope: _Scope) -> None:
        assert isinstance(node, Loops)
        value = self.results[node] if isinstance(node, Reduce) else self._value(node, node.result, scope)
        if node.dtype in HALF:
            value = f"{value}.to({TRITON_TYPES[node.dtype]})"
        index = self._index(self._own_position(node))
        mask = ", mask=inside" if self._is_full(node) else ""
        if not self._is_full(node):
            value = f"({value})"
        elif not self._varies(self._own_position(node)):
            index = f"{index} + column * 0"
        self._line(f"{scope.indent}tl.store(out{self.stored.index(node)} + {index}, {value}{mask})")

    def _own_position(self, node: Loops) -> Index:
        """Where the element of the current row and column lies in the node's own storage."""
        coordinates = self._coordinates(node)
        outer = node.variables[: len(node.sizes)]
        return linear([substitute(v, coordinates) for v in outer], node.strides)

    # --- values -------------------------------------------------------------------------------------------------------

    def _value(self, node: Loops, position: int, scope: _Scope) -> str:
        """The variable that holds a value of a node's body, printed when it isn't there yet."""
        known = scope.values.get((node, position))
        if known is not None:
            return known
        coordinates = self._coordinates(node)
        for at, op in enumerate(node.body[: position + 1]):
            if (node, at) not in scope.values:
                args = [scope.values[node, a] for a in op.args]
                scope.values[node, at] = self._print(node, op, args, coordinates, scope)
        return scope.values[node, position]

    def _print(self, node: Loops, op: Op, args: list[str], coordinates: dict[Atom, Index], scope: _Scope) -> str:
        if op.name in ("load", "masked_load"):
            target = op.attr[0]
            if target in self.group:
                return self._member(op, args, coordinates, scope)
            return self._load(op, args, coordinates, scope)
        if op.name == "const":
            return self._name(literal(op.attr, op.dtype), scope)
        if op.name == "index":
            text = self._index(substitute(op.attr, coordinates), tuple(args))
            return self._name(f"{text} + tl.full((), 0, tl.int64)", scope)
        if op.name == "index_below":
            left, right = (self._index(substitute(e, coordinates)) for e in op.attr)
            return self._name(f"{left} < {right} + tl.full((), 0, tl.int64)", scope)
        if op.name == "scalar":
            self.scalars.setdefault(op.attr, op.attr)
            return self._name(f"{op.attr} + tl.full((), 0, tl.float64)", scope)
        operand = node.body[op.args[-1]].dtype if op.args else op.dtype
        text = operation(op.name, args, op.dtype, operand)
        self.uses_libdevice = self.uses_libdevice or text.startswith("libdevice.")
        return self._name(text, scope)

    def _member(self, op: Op, args: list[str], coordinates: dict[Atom, Index], scope: _Scope) -> str:
        """The value of another node of the group, which has to be wanted at the element it's computed at."""
        target, index = op.attr
        if op.name == "masked_load":
            raise NotOneGroup(f"{target.name} is read under a mask")
        wanted = linear([substitute(i, coordinates) for i in index], target.strides)
        if wanted != self._own_position(target):
            raise NotOneGroup(f"{target.name} is read at another element")
        if isinstance(target, Reduce):
            return self.results[target]
        return self._value(target, target.result, scope)

    def _load(self, op: Op, args: list[str], coordinates: dict[Atom, Index], scope: _Scope) -> str:
        target, index = op.attr
        masked = op.name == "masked_load"
        slots = tuple(args[2:] if masked else args)
        position = linear([substitute(i, coordinates) for i in index], target.strides)
        text = f"{self._pointer(target)} + {self._index(position, slots)}"
        masks = [args[0]] if masked else []
        if self._varies(position):
            masks.append("inside")
        elif masked:
            text = f"{text} + {args[0]}.to(tl.int64) * 0"  # the pointer gets the shape of its mask
        loaded = f"tl.load({text}{', mask=' + ' & '.join(masks) + ', other=0' if masks else ''})"
        if target.dtype in HALF:
            loaded += ".to(tl.float32)"
        elif target.dtype == "bool":
            loaded = f"({loaded} != 0)"
        if masked:
            loaded = f"tl.where({args[0]}, {loaded}, {args[1]})"
        return self._name(loaded, scope)

    def _varies(self, position: Index) -> bool:
        """Whether a position depends on the column, or on values that may."""
        return any(a is _atom(self.column) or isinstance(a, Indirect) for a in atoms_of(position))

    # --- reductions ---------------------------------------------------------------------------------------------------

    def _fold(self, node: Reduce, scope: _Scope) -> None:
        """Fold a row that is in registers."""
        value = self._padded(node, self._value(node, node.result, scope))
        if node.kind in ("argmax", "argmin"):
            value = self._name(value, scope)
            position = self._name(f"tl.where(inside, column, {2**62})", scope)
            self.results[node] = self._extreme_position(node, value, position, scope)
        else:
            self.results[node] = self._name(self._reduced(node, value), scope)

    def _accumulate(self, node: Reduce, scope: _Scope) -> None:
        value = self._name(self._padded(node, self._value(node, node.result, scope)), scope)
        held = self._accumulator(node)
        if node.kind in ("argmax", "argmin"):
            combine = "first_largest" if node.kind == "argmax" else "first_smallest"
            self._line(f"{scope.indent}at = tl.where(inside, column, {2**62})")
            self._line(f"{scope.indent}{held}, {held}_at = {combine}({held}, {held}_at, {value}, at)")
            return
        combined = {
            "sum": f"{held} + {value}",
            "prod": f"{held} * {value}",
            "amax": f"larger({held}, {value})",
            "amin": f"smaller({held}, {value})",
            "any": f"{held} | {value}",
            "all": f"{held} & {value}",
        }[node.kind]
        self._line(f"{scope.indent}{held} = {combined}")

    def _finish(self, node: Reduce, scope: _Scope) -> None:
        held = self._accumulator(node)
        if node.kind in ("argmax", "argmin"):
            self.results[node] = self._extreme_position(node, held, f"{held}_at", scope)
        else:
            self.results[node] = self._name(self._reduced(node, held), scope)

    def _extreme_position(self, node: Reduce, value: str, position: str, scope: _Scope) -> str:
        combine = "first_largest" if node.kind == "argmax" else "first_smallest"
        pair = self._name(f"tl.reduce(({value}, {position}), 0, {combine})", scope)
        return f"{pair}[1]"

    def _reduced(self, node: Reduce, value: str) -> str:
        kind = node.kind
        if kind == "sum":
            return f"tl.sum({value}, 0)"
        if kind in ("any", "all"):
            return f"tl.{'max' if kind == 'any' else 'min'}(({value}).to(tl.int32), 0) != 0"
        combine = {"prod": "times", "amax": "larger", "amin": "smaller"}[kind]
        return f"tl.reduce({value}, 0, {combine})"

    def _padded(self, node: Reduce, value: str) -> str:
        """The value, and the neutral element in the columns that don't exist."""
        return f"tl.where(inside, {value}, {self._neutral(node)})"

    def _start(self, node: Reduce) -> str:
        neutral = self._neutral(node)
        return f"{neutral.replace('tl.full(()', 'tl.full((BLOCK,)')}"

    def _neutral(self, node: Reduce) -> str:
        dtype = node.body[node.result].dtype
        largest, smallest = _limits(dtype)
        value = {
            "sum": 0,
            "prod": 1,
            "amax": smallest,
            "argmax": smallest,
            "amin": largest,
            "argmin": largest,
            "any": False,
            "all": True,
        }[node.kind]
        return literal(value, dtype)

    def _accumulator(self, node: Reduce) -> str:
        return f"acc{self.reductions.index(node)}"

    # --- text ---------------------------------------------------------------------------------------------------------

    def _index(self, e: Index, slots: tuple[str, ...] = ()) -> str:
        self.sizes.update(size_names(e))
        return index_text(e, self.names, slots)

    def _pointer(self, node: Node) -> str:
        return self.inputs.setdefault(node, f"in{len(self.inputs)}")

    def _name(self, text: str, scope: _Scope) -> str:
        """A variable with the value of an expression; equal expressions, loads among them, are printed once."""
        known = scope.printed.get(text)
        if known is not None:
            return known
        name = scope.printed[text] = f"v{self._names}"
        self._names += 1
        self._line(f"{scope.indent}{name} = {text}")
        return name

    def _line(self, text: str) -> None:
        self.lines.append(text)

    def _kernel(self, block: int, programs: Index) -> TritonKernel:
        sizes = sorted(self.sizes | set(size_names(programs)))
        outputs = [f"out{k}" for k in range(len(self.stored))]
        parameters = [*self.inputs.values(), *outputs, *sizes, *self.scalars, "BLOCK: tl.constexpr"]
        head = f"@triton.jit\ndef {self.name}({', '.join(parameters)}):"
        return TritonKernel(
            name=self.name,
            source=f"{PRELUDE}\n\n{head}\n" + "\n".join(self.lines) + "\n",
            inputs=tuple(self.inputs),
            outputs=self.stored,
            sizes=tuple(sizes),
            scalars=tuple(self.scalars),
            constants={"BLOCK": block},
            programs=programs,
            num_warps=_warps(block),
            interpretable=not self.uses_libdevice,
        )


def _warps(block: int) -> int:
    """16 to 32 elements a thread for rows in registers; GPU measurements put 4096 elements at 4 to 8 warps."""
    return 4 if block <= 2048 else 8 if block <= 4096 else 16


def _limits(dtype: str) -> tuple[float | int, float | int]:
    """(largest, smallest) value of a compute type."""
    if dtype in ("float32", "float64"):
        return float("inf"), float("-inf")
    if dtype == "bool":
        return True, False
    bits = {"uint8": 8, "int8": 7, "int16": 15, "int32": 31, "int64": 63}[dtype]
    return 2**bits - 1, 0 if dtype == "uint8" else -(2**bits)


def _permutes(index: Sequence[Index], variables: Sequence[Index]) -> bool:
    """Whether an index consists of the variables, each once, in any order."""
    wanted = [v for v in variables if _is_var(v)]
    found = [i for i in index if i != 0]
    return len(wanted) == len(found) and all(v in found for v in wanted)


def _is_var(e: Index) -> bool:
    return isinstance(e, Expr)


def _atom(e: Index) -> Atom:
    ((atom,),) = e.terms  # type: ignore[union-attr]
    return atom
