"""Rows of 16-bit floats, converted in blocks before and after the loop that computes with them.

Enters: the innermost loop of a kernel, what it reads and stores. Leaves: local arrays of float32 around the loop for
those buffers of float16 that it walks element by element. The conversions are then single instructions, of which GCC 12
makes no vectors by itself: as integer arithmetic in the loop they cost 2 to 4 times as much as a sum. Of a block whose
size is known the arrays stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..ir import expr
from ..ir.expr import Index
from ..sched.kernel import Store, Value, size_of

if TYPE_CHECKING:
    from .context import KernelPrinter

CONVERTED = "float16"
"""What is converted in blocks. Conversions of bfloat16 are shifts, of which the loop itself makes vectors."""

MOST = 8
"""Buffers converted together: past it their blocks no longer fit the registers."""

VECTOR = 16
"""Elements that the functions below convert at a time at most."""

SHORTEST = 32
"""Elements of a row below which the calls cost more than they save."""


class HalfRows:
    """The 16-bit buffers that a loop walks: `loads` are positions of values, `stores` some of the loop's.

    roots: what the loop folds or saves, beside what it stores.
    """

    def __init__(
        self,
        printer: KernelPrinter,
        variable: Index,
        order: Sequence[int],
        stores: Sequence[Store],
        roots: Sequence[int] = (),
    ) -> None:
        self.printer = printer
        (((self.atom,), _),) = variable.terms.items()  # type: ignore[union-attr]
        self.loads: list[int] = []
        self.stores: list[Store] = []
        self.begin = self.at = ""
        if expr.hint(size_of(variable)) < SHORTEST:
            return
        values = printer.kernel.values
        computed = [s for s in stores if not printer.copies(s)]
        used = {a for k in order for a in values[k].args} | {s.value for s in computed} | {*roots}
        self.loads = [k for k in order if k in used and self._walks_load(values[k])]
        self.stores = [s for s in computed if s.buffer.dtype == CONVERTED and self._walks(s.offset)]
        if len(self.loads) + len(self.stores) > MOST:
            self.loads, self.stores = [], []

    def _walks_load(self, value: Value) -> bool:
        return (
            value.name == "load" and not value.args and value.attr[0].dtype == CONVERTED and self._walks(value.attr[1])
        )

    def _walks(self, offset: Index) -> bool:
        split = expr.affine(offset, [self.atom])
        return split is not None and split[0][0] == 1

    def __bool__(self) -> bool:
        return bool(self.loads or self.stores)

    def names(self) -> dict[int, str]:
        """The values read, as elements of their arrays."""
        return {k: f"half{k}[{self.at}]" for k in self.loads}

    @contextmanager
    def converted(self, begin: str, count: str, size: int, at: str) -> Iterator[None]:
        """Arrays of one block around what is printed inside: `count` elements of at most `size` from `begin` on. at:
        which of them the loop inside is at."""
        source, values = self.printer.source, self.printer.kernel.values
        self.begin, self.at = begin, at
        for k in self.loads:
            node, offset = values[k].attr
            source.line(f"float half{k}[{size}];")
            self._convert("load", node.dtype, self._pointer(node, offset), f"half{k}", count)
        for n in range(len(self.stores)):
            source.line(f"float stored{n}[{size}];")
        self.printer.halves = self
        yield
        self.printer.halves = None
        for n, store in enumerate(self.stores):
            self._convert("store", store.buffer.dtype, f"stored{n}", self._pointer(store.buffer, store.offset), count)

    def _pointer(self, node: object, offset: Index) -> str:
        start = self.printer.body.index(expr.substitute(offset, {self.atom: 0}), {})
        return f"{self.printer.pointers[node]} + ({start}) + {self.begin}"  # type: ignore[index]

    def _convert(self, way: str, dtype: str, source: str, target: str, count: str) -> None:
        whole = count.isdecimal() and int(count) % VECTOR == 0
        name = f"{way}_{dtype}_block" if whole else f"{way}_{dtype}s"
        call = self.printer.expressions.call(name, source, target, count)
        self.printer.source.line(f"{call};")

    def element(self, store: Store) -> str | None:
        """Where the loop writes what `store` stores, None when it does so in memory."""
        if not any(store is s for s in self.stores):
            return None
        return f"stored{next(n for n, s in enumerate(self.stores) if s is store)}[{self.at}]"


def _conversion(way: str, element: str, other: str, result: str, wide: str, narrow: str) -> dict[str, Any]:
    """Functions that convert `count` elements, 16 or 8 an instruction where the processor has them. In a block their
    number is a multiple of 16, and known."""
    head = f"(const {element} *source, {other} *target, long count)"
    block = f"""void {way}_float16_block{head} {{
#ifdef __AVX512F__
{_vectors(16)}
    const {result} none = {{0}};
    for (long k = 0; k < count; k += 16) {wide};
#elif defined(__F16C__)
{_vectors(8)}
    for (long k = 0; k < count; k += 8) {narrow};
#else
    for (long k = 0; k < count; ++k) target[k] = {way}_float16(source[k]);
#endif
}}"""
    any_count = f"""void {way}_float16s{head} {{
    long k = 0;
    for (; k + 16 <= count; k += 16) {way}_float16_block(source + k, target + k, 16);
    for (; k < count; ++k) target[k] = {way}_float16(source[k]);
}}"""
    return {
        f"{way}_float16_block": ((f"{way}_float16",), block),
        f"{way}_float16s": ((f"{way}_float16_block",), any_count),
    }


def _vectors(n: int) -> str:
    return f"""    typedef short v{n} __attribute__((vector_size({2 * n})));
    typedef float f{n} __attribute__((vector_size({4 * n})));
    typedef short m{n} __attribute__((vector_size({2 * n}), aligned(2), may_alias));
    typedef float n{n} __attribute__((vector_size({4 * n}), aligned(4), may_alias));"""


HALF_ROWS: dict[str, tuple[tuple[str, ...], str]] = {
    **_conversion(
        "load",
        "unsigned short",
        "float",
        "f16",
        "*(n16 *)(target + k) = __builtin_ia32_vcvtph2ps512_mask((v16)*(const m16 *)(source + k), none, -1, 4)",
        "*(n8 *)(target + k) = __builtin_ia32_vcvtph2ps256((v8)*(const m8 *)(source + k))",
    ),
    **_conversion(
        "store",
        "float",
        "unsigned short",
        "v16",
        "*(m16 *)(target + k) = __builtin_ia32_vcvtps2ph512_mask((f16)*(const n16 *)(source + k), 0, none, -1)",
        "*(m8 *)(target + k) = __builtin_ia32_vcvtps2ph256((f8)*(const n8 *)(source + k), 0)",
    ),
}
"""Functions of math.py that convert a block of a row, and a row of any length."""
