"""Pointwise kernels: nested loops, the innermost a simd loop, outer ones shared among threads.

A value that does not depend on the inner loops is computed outside of them (the row that a gather reads, a broadcast
factor).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir import expr
from ..sched.kernel import size_of
from .blocks import Range, is_multiple, print_blocks
from .context import PARALLEL_WORK, KernelPrinter, expr_atom, value_expressions
from .evaluate import needed, vectorisable
from .halves import VECTOR, HalfRows
from .ops import EXPENSIVE
from .segments import resolve, segments_of

LONG = 512
"""Elements of a row from which on the few that fill no vector don't matter."""


class Pointwise:
    """Prints one kernel without folds."""

    def __init__(self, printer: KernelPrinter) -> None:
        self.printer = printer
        self.kernel = printer.kernel
        self.source = printer.source
        self._depths = self.depths()

    def print(self) -> None:
        """The loop nest."""
        kernel = self.kernel
        rows = kernel.rows
        if not rows:
            names: dict[int, str] = {}
            self._innermost(names, range(len(kernel.values)), {})
            return
        inner_hint = expr.hint(size_of(rows[-1]))
        outer_hint = expr.hint(self.printer.extent(rows[:-1]))
        threads_inside = len(rows) == 1 or (outer_hint < 16 and inner_hint >= 4096)
        names = {}
        if self._has_dear_constants():
            self._print_at(range(1), names)
        if threads_inside:
            self._nest(0, 0, names)
            return
        shared, count = 1, expr.hint(size_of(rows[0]))
        while shared < len(rows) - 1 and count < 64:
            count *= expr.hint(size_of(rows[shared]))
            shared += 1
        self._nest(0, shared, names)

    def _has_dear_constants(self) -> bool:
        """Whether something dear depends on no loop (a power of a step count), and the loops run at least once."""
        if not all(isinstance(size_of(row), int) and size_of(row) > 0 for row in self.kernel.rows):
            return False
        return any(self._depths[k] == 0 and self.kernel.values[k].name in EXPENSIVE for k in self._live())

    def depths(self) -> list[int]:
        """For each value the number of loops it depends on, counted from the outside."""
        atoms = {expr_atom(v): k + 1 for k, v in enumerate(self.kernel.rows)}
        result: list[int] = []
        for value in self.kernel.values:
            depth = max((result[a] for a in value.args), default=0)
            for e in value_expressions(value):
                for atom in expr.atoms_of(e):
                    depth = max(depth, atoms.get(atom, 0))
            result.append(depth)
        return result

    def _nest(self, depth: int, shared: int, names: dict[int, str]) -> None:
        """Loops from `depth` on. The outermost `shared` loops are one parallel nest, so nothing stands between them."""
        rows = self.kernel.rows
        if depth == len(rows) - 1:
            self._inner_loop(names, shared == 0)
            return
        pragma = self.printer.threads(shared) if depth == 0 and shared else ""
        variable = expr_atom(rows[depth]).name
        with self.source.loop(variable, "0", self.printer.size(rows[depth]), pragma=pragma):
            local = dict(names)
            if depth + 1 >= shared:
                self._print_at(range(depth + 2), local)
            self._nest(depth + 1, shared, local)

    def _print_at(self, depths: range, names: dict[int, str]) -> None:
        """Declare the values of the outer loops."""
        live = self._live()
        order = [k for k in live if self._depths[k] in depths and k not in names]
        self.printer.body.print_values(self.source, order, names)

    def _live(self) -> list[int]:
        return needed(self.kernel, [s.value for s in self.kernel.stores], lambda k: False)

    def _inner_loop(self, names: dict[int, str], threads: bool) -> None:
        kernel = self.kernel
        variable = kernel.rows[-1]
        name = expr_atom(variable).name
        for begin, end, decided in segments_of(kernel, variable):
            order = [k for k in self._live() if k not in names]
            vector = vectorisable(kernel, [k for k in order if self._depths[k] == len(kernel.rows)])
            share = threads and (len(kernel.rows) == 1 or self.printer.work() >= PARALLEL_WORK)
            halves = HalfRows(self.printer, variable, order if vector else (), kernel.stores if vector else ())
            if halves:
                self._blocks(halves, (begin, end), names, order, decided, share)
                continue
            if vector and not share and self._overlaps(begin, end):
                self._overlapping(begin, end or self.printer.size(variable), names, order, decided)
                continue
            pragma = self.printer.threads(simd=vector) if share else "omp simd" if vector else ""
            with self.source.loop(name, begin, end or self.printer.size(variable), pragma=pragma):
                self._innermost(dict(names), order, decided)

    def _blocks(
        self,
        halves: HalfRows,
        ends: tuple[str, str],
        names: Mapping[int, str],
        order: Sequence[int],
        decided: Mapping[int, bool],
        share: bool,
    ) -> None:
        """The innermost loop with its 16-bit rows converted around it."""
        begin, variable = ends[0], self.kernel.rows[-1]
        end = ends[1] or self.printer.size(variable)
        exact = end.isdecimal() and is_multiple(int(end) - int(begin), VECTOR)

        def point(converted: Mapping[int, str], lane: str) -> None:
            self._innermost({**names, **converted}, order, decided)

        shared = self.printer.threads() if share else ""
        print_blocks(self.printer, variable, halves, Range(begin, end, exact), VECTOR, point, share=shared)

    def _overlaps(self, begin: str, end: str) -> bool:
        """Whether the last elements of a row may be computed twice and are too many to compute one by one."""
        size = size_of(self.kernel.rows[-1])
        length = int(end or size) - int(begin) if isinstance(size, int) else 0
        if not VECTOR < length < LONG or length % VECTOR == 0 or self.printer.signature.in_place:
            return False
        atom = expr_atom(self.kernel.rows[-1])
        steps = [expr.affine(offset, [atom]) for _, offset in self.kernel.offsets()]
        # GCC reads elements with gaps between them past the last one, and so leaves the last vector out
        return all(step is not None and step[0][0] in (0, 1) for step in steps)

    def _overlapping(
        self, begin: str, end: str, names: Mapping[int, str], order: Sequence[int], decided: Mapping[int, bool]
    ) -> None:
        """The innermost loop in blocks of lanes, of which the last begins early enough to be whole."""
        with self.source.loop("piece", begin, end, str(VECTOR)):
            self.source.line(f"const long first = piece < {int(end) - VECTOR} ? piece : {int(end) - VECTOR};")
            with self.source.loop("lane", "0", str(VECTOR), pragma="omp simd"):
                self.source.line(f"const long {expr_atom(self.kernel.rows[-1]).name} = first + lane;")
                self._innermost(dict(names), order, decided)

    def _innermost(self, names: dict[int, str], order: Sequence[int], decided: Mapping[int, bool]) -> None:
        kernel = self.kernel
        resolution = resolve(kernel, decided)
        roots = [resolution.target(s.value) for s in kernel.stores]
        resolution.print_into(self.printer.body, self.source, roots, names)
        for store in kernel.stores:
            self.printer.store(store, resolution.named(store.value, names))
