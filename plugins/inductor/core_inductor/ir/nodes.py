"""The nodes of the loop IR.

A node produces one tensor. `Pointwise` computes each element from loads at mapped indices, `Reduce` folds a body over
reduced loop variables, `Extern` calls ATen and `ExternResult` is one tensor that it returns, `Input` is an argument or
a constant. A tensor that is only looked at differently is no node: it is a `View`, an index map onto a node.
Bodies are flat lists of `Op` in SSA form (arguments are positions in the list), so that every pass and printer walks
them once. This file must not know ATen or any printer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from .dtypes import ITEM_BYTES
from .expr import Index, loop_var, product, row_major


class Op(NamedTuple):
    """One scalar operation of a body.

    name: what it does; args: positions of its operands; dtype: compute type of the result. attr by name:
    "load": (node, index) with one index entry a dimension of the node; args are the values of the Indirect slots.
    "masked_load": the same, args = (mask, other, *slots): the load happens only where mask holds.
    "const": the value. "index": an index expression (int64), args are its slots. "scalar": name of a float argument.
    """

    name: str
    args: tuple[int, ...]
    dtype: str
    attr: Any = None


CHEAP = frozenset(
    "load masked_load const index scalar cast check_index add sub mul neg abs eq ne lt le gt ge where logical_not "
    "bitwise_and bitwise_or bitwise_xor bitwise_not maximum minimum round_bfloat16 round_float16 relu fma "
    "index_below".split()
)
"""Operations that cost less than reading their result back from memory."""


@lru_cache(maxsize=4096)
def loop_vars(sizes: tuple[Index, ...], prefix: str = "i") -> tuple[Index, ...]:
    """The canonical loop variables of a shape. A dimension of size 1 has the constant index 0."""
    return tuple(0 if size == 1 else loop_var(f"{prefix}{k}", size) for k, size in enumerate(sizes))


@dataclass(eq=False)
class Node:
    """One tensor: sizes and strides in elements (of its storage when it is materialised), dtype by torch name."""

    name: str
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    dtype: str
    origin: Any = field(default=None, repr=False, kw_only=True)

    @property
    def numel(self) -> Index:
        return product(self.sizes)

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES.get(self.dtype, 16)


@dataclass(eq=False)
class Input(Node):
    """A graph argument or a constant; `constant` is the attribute's name then."""

    constant: str | None = field(default=None, kw_only=True)
    requires_offset: bool = field(default=True, kw_only=True)


@dataclass(eq=False)
class Loops(Node):
    """A node with a body. `result` is the position of the value stored or folded."""

    body: list[Op] = field(default_factory=list, repr=False, kw_only=True)
    result: int = field(default=0, kw_only=True)

    @property
    def space(self) -> tuple[Index, ...]:
        """Sizes of the loops."""
        raise NotImplementedError

    @property
    def variables(self) -> tuple[Index, ...]:
        """One loop variable a dimension of the space, 0 where its size is 1."""
        raise NotImplementedError

    def loads(self) -> Iterator[Op]:
        """The load operations of the body."""
        for op in self.body:
            if op.name in ("load", "masked_load"):
                yield op


@dataclass(eq=False)
class Pointwise(Loops):
    """Element i of the result is the body's value at i."""

    @property
    def space(self) -> tuple[Index, ...]:
        """Sizes of the loops."""
        return self.sizes

    @property
    def variables(self) -> tuple[Index, ...]:
        """One loop variable a dimension of the space, 0 where its size is 1."""
        return loop_vars(self.sizes)


@dataclass(eq=False)
class Reduce(Loops):
    """Folds the body's value over the reduced variables r0, r1, ...; the result has the outer shape.

    kind: sum, prod, amax, amin, any, all, argmax, argmin. The last two give the first position, in row-major order of
    the reduced variables, of the extreme value or of the first NaN, as int64.
    """

    reduced: tuple[Index, ...] = field(default=(), kw_only=True)
    kind: str = field(default="sum", kw_only=True)

    @property
    def space(self) -> tuple[Index, ...]:
        """Outer sizes, then reduced ones."""
        return self.sizes + self.reduced

    @property
    def variables(self) -> tuple[Index, ...]:
        """i0, i1, ... of the outer dimensions, then r0, r1, ... of the reduced ones."""
        return loop_vars(self.sizes) + loop_vars(self.reduced, "r")


@dataclass(frozen=True)
class Accumulate:
    """A kernel that is no loop over its result: base of [outer, size, inner], to which each of source of
    [outer, count, inner] is added at a position along the second dimension.

    The index has one position a row, [outer, count] or, shared by the outer ones, [count]; or `elements` of the source
    have their own. wraps: negative positions count from the end; code: the failure of one out of range.
    """

    outer: int
    size: int
    inner: int
    count: int
    dtype: str
    index_dtype: str
    shared: bool
    elements: bool
    wraps: bool
    code: int


@dataclass(eq=False)
class Extern:
    """A call of ATen (or of any callable) with real tensors.

    target: the callable; path: how a program text reaches it ("torch.ops.aten.mm.default"), None when only the object
    itself can be stored. args, kwargs: nested lists and tuples of View, Scalar and constants. results: one entry a
    returned tensor that is used, in `result_paths` order. fresh: no result shares storage with an argument.
    binds: the symbol that the returned number is; size_binds: symbols that first appear as sizes of results.
    out: the callable's out= variant accepts the first result. order: random or otherwise effectful, kept in order.
    negated: the result may be a view that is negated lazily, by a bit that kernels don't read. kernel: what is printed
    in place of a call; its arguments are contiguous.
    """

    name: str
    target: Any
    path: str | None
    args: tuple
    kwargs: dict
    results: list[ExternResult] = field(default_factory=list)
    fresh: bool = True
    negated: bool = False
    effect: bool = False
    out_path: str | None = None
    binds: str | None = None
    size_binds: list[tuple[str, ExternResult, int]] = field(default_factory=list)
    kernel: Accumulate | None = None
    origin: Any = field(default=None, repr=False)


@dataclass(eq=False)
class ExternResult(Node):
    """Result `position` of an Extern; () when the call returns the tensor itself.

    strided: False for a sparse or nested tensor, which has no memory that strides describe.
    """

    extern: Extern = field(kw_only=True)
    strided: bool = field(default=True, kw_only=True)
    position: int | None = field(default=None, kw_only=True)
    trusted_strides: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Scalar:
    """A Python number of the program that is known when it runs: an int (expr) or a float (name of a local
    variable)."""

    expr: Index | None = None
    name: str | None = None


@dataclass(eq=False)
class View:
    """A tensor as an index map: element (i0, i1, ...) of `sizes` is element `index` of `node`.

    fresh: eager makes a new tensor here (clone), so the program must not return the node's own storage if that
    belongs to somebody else. strides: the recorded ones, which whoever makes a real tensor of the view has to give it.
    """

    node: Node
    sizes: tuple[Index, ...]
    index: tuple[Index, ...]
    dtype: str
    fresh: bool = False
    strides: tuple[Index, ...] | None = None

    @property
    def is_whole(self) -> bool:
        """True when the view is the node itself."""
        return self.sizes == self.node.sizes and self.index == loop_vars(self.sizes)

    @property
    def numel(self) -> Index:
        return product(self.sizes)


def whole(node: Node) -> View:
    """The view that is the node itself."""
    return View(node, node.sizes, loop_vars(node.sizes), node.dtype, strides=node.strides)


@dataclass(frozen=True)
class Strided:
    """A tensor on a node's storage: sizes, strides and offset (relative to the node's first element) in elements."""

    node: Node
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index

    @property
    def is_whole(self) -> bool:
        """True when it is the node's own tensor."""
        node = self.node
        return self.offset == 0 and self.sizes == node.sizes and same_strides(node.sizes, self.strides, node.strides)


def dense_strides(sizes: Sequence[Index], strides: Sequence[Index]) -> bool:
    """True when sizes and strides cover their storage without gaps or overlaps (order of dimensions free)."""
    if any(size == 0 for size in sizes):
        return True
    pairs = [(stride, size) for size, stride in zip(sizes, strides) if size != 1]
    expected: Index = 1
    while pairs:
        match = next((k for k, (stride, _) in enumerate(pairs) if stride == expected), None)
        if match is None:
            return False
        expected = product((expected, pairs.pop(match)[1]))
    return True


def same_strides(sizes: Sequence[Index], left: Sequence[Index], right: Sequence[Index]) -> bool:
    """Equality of strides where it matters: dimensions of size 1 are ignored, and so is all of an empty tensor."""
    if any(size == 0 for size in sizes):
        return True
    return all(size == 1 or a == b for size, a, b in zip(sizes, left, right))


def distinct_positions(sizes: Sequence[Index], strides: Sequence[Index]) -> bool:
    """True when no two elements share a position: each stride steps over all that the smaller ones reach."""
    reach = 0
    for stride, size in sorted((t, s) for s, t in zip(sizes, strides) if s != 1):
        if stride <= reach:
            return False
        reach += (size - 1) * stride
    return True


def storage_strides(sizes: tuple[Index, ...], strides: tuple[Index, ...]) -> tuple[Index, ...]:
    """The recorded strides where a new tensor can have them (a view of a copy may leave gaps), else contiguous ones."""
    if dense_strides(sizes, strides):
        return strides
    known = all(isinstance(e, int) for e in (*sizes, *strides))
    return strides if known and distinct_positions(sizes, strides) else row_major(sizes)
