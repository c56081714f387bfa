"""Kernel: what one operator of a graph is written with, as tensor expressions.

Every node becomes one function of TVM. Sizes are int64 throughout. An index that comes from a tensor is kept inside of
the tensor that it chooses from, and the kernel says in an output of its own whether it was outside: the call raises
eager's error then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tvm import te, tirx

from .arithmetic import Num, computing, number, type_name
from .registry import Refused
from .symbols import symbols_of, tvm_forms, written


@dataclass(frozen=True)
class Value:
    """A tensor within a kernel: TVM's tensor, and torch's fake of it, which knows sizes and dtype."""

    tensor: Any
    fake: torch.Tensor

    @property
    def dtype(self) -> torch.dtype:
        return self.fake.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.fake.shape)

    @property
    def rank(self) -> int:
        return self.fake.dim()

    def at(self, places: Sequence[Any]) -> Num:
        """The element at TVM's int64 indices, in the dtype that it is calculated in."""
        if any(isinstance(size, int) and size == 0 for size in self.shape):
            return number(0, computing(self.dtype))  # of a tensor without elements nothing is read
        found = Num(self.tensor(*places), self.dtype)
        return found.to(computing(self.dtype))


@dataclass
class Made:
    """A tensor within a kernel that no fake stands for: sizes as TVM's expressions."""

    tensor: Any
    dtype: torch.dtype

    def at(self, places: Sequence[Any]) -> Num:
        return Num(self.tensor(*places), self.dtype)


@dataclass
class Kernel:
    """The function of one node while it is written.

    result: the node's fake result; read: which of several results are read, None for all; symbols: TVM's variables of
    the sizes, by name; alarms: pairs of a tensor of one int32 that is not 0 where an index was outside, and the class
    of eager's error.
    """

    operator: str
    result: Any
    read: frozenset[int] | None = None
    symbols: dict[str, Any] = field(default_factory=dict)
    alarms: list[tuple[Any, str]] = field(default_factory=list)

    def wanted(self, index: int) -> bool:
        """Whether a result of the node at hand is read."""
        return self.read is None or index in self.read

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def size(self, value: Any) -> Any:
        """A size or another whole number, symbolic or not, as TVM's expression."""
        if isinstance(value, Num):
            return value.expr
        return written(value, self._symbol, tvm_forms())

    def sizes(self, values: Sequence[Any]) -> list[Any]:
        return [self.size(value) for value in values]

    def count(self, values: Sequence[Any]) -> Any:
        """The product of sizes."""
        found = self.size(1)
        for value in self.sizes(values):
            found = found * value
        return found

    def _symbol(self, name: str) -> Any:
        if name not in self.symbols:
            self.symbols[name] = tirx.Var(name, "int64")
        return self.symbols[name]

    def placeholder(self, fake: torch.Tensor, name: str) -> Value:
        """An input of the kernel."""
        shape = self.sizes(fake.shape)
        return Value(te.placeholder(shape, type_name(fake.dtype), name=name), fake)

    # -- tensors -------------------------------------------------------------------------------------------------------

    def number(self, value: Any, dtype: torch.dtype) -> Num:
        """An argument that is a number, symbolic or not."""
        if isinstance(value, (int, float, bool, Num)):
            return number(value, dtype)
        if isinstance(value, torch.SymInt):
            return Num(self.size(value), torch.int64).to(dtype)
        raise Refused(f"a {type(value).__name__} in place of a number")

    def make(self, sizes: Sequence[Any], dtype: torch.dtype, element: Callable[..., Num], name: str = "t") -> Made:
        """A tensor of TVM's sizes from a function of its indices."""
        if not sizes:
            return Made(te.compute((), lambda: element().to(dtype).expr, name=name), dtype)
        return Made(te.compute(list(sizes), lambda *at: element(*at).to(dtype).expr, name=name), dtype)

    def compute(self, element: Callable[..., Num], index: int | None = None, name: str = "t") -> Value:
        """The node's result (or the one of this index) from a function of its indices."""
        fake = self.result if index is None else self.result[index]
        return Value(self.make(self.sizes(fake.shape), fake.dtype, element, name).tensor, fake)

    def broadcast(self, value: Any, places: Sequence[Any], dtype: torch.dtype) -> Num:
        """The element of an operand (tensor or number) that belongs to an element of a larger result."""
        if not isinstance(value, Value):
            return self.number(value, dtype)
        own = places[len(places) - value.rank :] if value.rank else ()
        at = [self.size(0) if size == 1 else place for size, place in zip(value.shape, own)]
        return value.at(at).to(dtype)

    def pointwise(self, function: Callable[..., Num], *operands: Any, dtype: torch.dtype | None = None) -> Value:
        """The node's result, element by element, its operands broadcast and brought to `dtype` (the result's own)."""
        kind = computing(dtype or self.result.dtype)

        def element(*places: Any) -> Num:
            return function(*[self.broadcast(operand, places, kind) for operand in operands])

        return self.compute(element)

    # -- reductions ----------------------------------------------------------------------------------------------------

    def reduce(
        self,
        sizes: Sequence[Any],
        over: Sequence[Any],
        element: Callable[..., Num],
        combine: Callable[[Num, Num], Num],
        start: Any,
        dtype: torch.dtype,
        name: str = "r",
    ) -> Made:
        """A tensor whose elements fold `combine` from `start` over `element(places, reduced places)`."""
        if any(isinstance(extent, tirx.IntImm) and extent.value == 0 for extent in over):
            return self.make(sizes, dtype, lambda *_: number(start, dtype))  # a loop without steps sets nothing
        axes = [te.reduce_axis((self.size(0), extent), name=f"{name}{at}") for at, extent in enumerate(over)]
        reducer = te.comm_reducer(
            lambda x, y: combine(Num(x, dtype), Num(y, dtype)).expr, lambda _: _start(start, dtype), name=name
        )

        def fold(*places: Any) -> Any:
            inner = element(places, [axis.var for axis in axes]).to(dtype).expr
            return reducer(inner, axis=axes)

        if not axes:
            return self.make(sizes, dtype, lambda *places: element(places, []))
        return Made(te.compute(list(sizes) or (), fold, name=name), dtype)

    def sum(self, sizes: Sequence[Any], over: Sequence[Any], element: Callable[..., Num], dtype: torch.dtype) -> Made:
        """A sum, calculated in `dtype`."""
        return self.reduce(sizes, over, element, added, 0, dtype, "sum")

    # -- indices from tensors ------------------------------------------------------------------------------------------

    def alarm(self, sizes: Sequence[Any], wrong: Callable[..., Num], error: str) -> None:
        """Have the call raise `error` ("IndexError") where `wrong(*places)` holds for any of the places of `sizes`."""

        def element(_: Any, inner: Any) -> Num:
            return wrong(*inner).to(torch.int32)

        made = self.reduce([self.size(1)], sizes, element, lambda x, y: x | y, 0, torch.int32, "alarm")
        self.alarms.append((made.tensor, error))

    def chosen(self, index: Value, extent: Any, *, negative: bool, error: str = "IndexError") -> Callable[..., Any]:
        """A function from the places of an index tensor to a place within 0..extent; outside of it the call fails."""
        if index.dtype not in (torch.int64, torch.int32):
            raise Refused("a mask or a narrow integer as an index")

        def raw(places: Sequence[Any]) -> Any:
            return index.at(places).to(torch.int64).expr

        def wrong(*places: Any) -> Num:
            found = raw(places)
            least = -extent if negative else self.size(0)
            return Num(tirx.Or(tirx.LT(found, least), tirx.GE(found, extent)), torch.bool)

        def place(places: Sequence[Any]) -> Any:
            found = raw(places)
            if negative:
                found = tirx.Select(tirx.LT(found, self.size(0)), found + extent, found)
            return tirx.max(tirx.min(found, extent - 1), self.size(0))

        self.alarm(self.sizes(index.shape), wrong, error)
        return place


def _start(value: Any, dtype: torch.dtype) -> Any:
    """What a fold begins with; a plain constant where TVM knows its sums and products by it."""
    if dtype.is_floating_point and value in (0, 1):
        return tirx.const(float(value), type_name(dtype))
    return number(value, dtype).expr


def added(one: Num, two: Num) -> Num:
    """A sum in the form that TVM's own schedules look for in a reduction."""
    return Num(one.expr + two.expr, one.dtype)


def size_names(fakes: Sequence[Any]) -> set[str]:
    """Names of the symbols in the sizes of tensors, and in symbolic numbers."""
    found: set[str] = set()
    for fake in fakes:
        for size in fake.shape if isinstance(fake, torch.Tensor) else (fake,):
            if isinstance(size, torch.SymInt):
                found |= symbols_of(size)
    return found
