"""KernelPrinter: what the printers of all kinds of kernels share while one function is printed.

Enters: a scheduled kernel and how its arguments arrive. Leaves: source lines, pointer names, pragmas of parallel loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ir import expr
from ..ir.dtypes import HALF
from ..ir.expr import Index
from ..ir.nodes import Node
from ..sched.kernel import Kernel, Store, Value, size_of
from .evaluate import Body
from .halves import HalfRows
from .ops import EXPENSIVE, MEMORY_TYPES, Expressions
from .text import Source

PARALLEL_WORK = 32768
"""Operations (elements times operations, expensive ones counted as 8) below which starting threads costs more."""


@dataclass
class Signature:
    """How a kernel's arguments arrive. inputs, outputs: buffers by pointer position; ints, floats: names by
    position."""

    inputs: Sequence[Node]
    outputs: Sequence[Node]
    ints: Sequence[str]
    floats: Sequence[str]
    in_place: frozenset[Node] = frozenset()


class KernelPrinter:
    """State of printing one kernel: source, pointers, names of scalars."""

    def __init__(self, kernel: Kernel, signature: Signature, expressions: Expressions) -> None:
        self.kernel = kernel
        self.signature = signature
        self.expressions = expressions
        self.source = Source()
        self.parallel = False
        self.halves: HalfRows | None = None
        self.turned: dict[int, str] = {}
        self.pointers: dict[Node, str] = {}
        for k, node in enumerate(signature.inputs):
            self.pointers[node] = f"in{k}"
        for k, node in enumerate(signature.outputs):
            self.pointers[node] = f"out{k}"
        self.body = Body(kernel, expressions, self.pointers)
        self.body.float_names = {name: f"floats[{k}]" for k, name in enumerate(signature.floats)}

    @property
    def checks(self) -> bool:
        """Whether the kernel checks indices."""
        return any(v.name == "check_index" for v in self.kernel.values)

    def prologue(self) -> None:
        """Typed pointers and sizes as locals."""
        used = {n for n, _ in self.kernel.offsets()}
        for k, node in enumerate(self.signature.inputs):
            if node in used:
                restrict = "" if node in self.signature.in_place else "__restrict__ "
                kind = MEMORY_TYPES[node.dtype]
                self.source.line(f"const {kind} *{restrict}in{k} = (const {kind} *)ptrs[{k}];")
        for k, node in enumerate(self.signature.outputs):
            restrict = "" if node in self.signature.in_place else "__restrict__ "
            kind = MEMORY_TYPES[node.dtype]
            self.source.line(f"{kind} *{restrict}out{k} = ({kind} *)outs[{k}];")
        for k, name in enumerate(self.signature.ints):
            self.source.line(f"const long {name} = ints[{k}];")
        if self.checks:
            self.source.line("int status = 0;")

    # --- shared with the other printers ------------------------------------------------------------------------------

    def size(self, variable: Index) -> str:
        """The size of a loop variable as text."""
        return self.body.index(size_of(variable), {})

    def extent(self, variables: Sequence[Index]) -> Index:
        """The number of iterations of nested loops."""
        return expr.product(size_of(v) for v in variables)

    def store(self, store: Store, names: Mapping[int, str]) -> None:
        """The statement of one store."""
        element = self.halves and self.halves.element(store)
        if element:
            self.source.line(f"{element} = {names[store.value]};")
            return
        value = self._copied(store, names) or self.expressions.store(names[store.value], store.buffer.dtype)
        offset = self.body.index(store.offset, names)
        self.source.line(f"{self.pointers[store.buffer]}[{offset}] = {value};")

    def copies(self, store: Store) -> bool:
        """Whether a store of a 16-bit float writes just what a load reads, so that nothing has to be converted."""
        value = self.kernel.values[store.value]
        if value.name != "load" or store.buffer.dtype not in HALF:
            return False
        node = value.attr[0]
        return node.dtype == store.buffer.dtype and node not in self.signature.in_place

    def _copied(self, store: Store, names: Mapping[int, str]) -> str | None:
        if not self.copies(store):
            return None
        value = self.kernel.values[store.value]
        node, offset = value.attr
        return self.turned.get(store.value) or f"{self.pointers[node]}[{self.body.index(offset, names, value.args)}]"

    def work(self) -> int:
        """A guess of the kernel's operations in the example."""
        each = sum(8 if v.name in EXPENSIVE else 1 for v in self.kernel.values) or 1
        return expr.hint(self.extent([*self.kernel.rows, *self.kernel.cols])) * each

    def threads(self, loops: int = 1, *, simd: bool = False) -> str:
        """The pragma of a parallel loop nest, "" when the work is too small."""
        # A symbolic extent may be large in some call; the runtime then decides by passing one thread or more.
        symbolic = not isinstance(self.extent([*self.kernel.rows, *self.kernel.cols]), int)
        if not symbolic and self.work() < PARALLEL_WORK:
            return "omp simd" if simd else ""
        self.parallel = True
        collapse = f" collapse({loops})" if loops > 1 else ""
        return f"omp parallel for{' simd' if simd else ''} num_threads(nthreads) schedule(static){collapse}"


def expr_atom(variable: Index) -> expr.LoopVar:
    """The loop variable itself."""
    assert isinstance(variable, expr.Expr)
    ((monomial, _),) = variable.terms.items()
    atom = monomial[0]
    assert isinstance(atom, expr.LoopVar)
    return atom


def value_expressions(value: Value) -> list[Index]:
    """The index expressions of one value."""
    name, attr = value.name, value.attr
    if name in ("load", "masked_load"):
        return [attr[1]]
    if name == "index":
        return [attr]
    return list(attr) if name == "index_below" else []
