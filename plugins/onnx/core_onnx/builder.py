"""ModelBuilder: the ONNX graph while it is written. Values know their dtype, and casts go where the target needs them.

Names of values are short and stable; constants are shared. Sizes that are known only at run time are int64 scalars in
the graph, and a shape made of them is concatenated there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
import torch
from onnx import helper

from .errors import ConversionError
from .target import Target
from .types import WIDER, element_type

# Which input decides the type of a node, where it is not the first; the other inputs of that dtype are cast with it.
_TYPED_BY = {"Where": 1, "OneHot": 2}
_ELEMENTARY = ("Exp",)
_ORDERS = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_ALONG = ("Softmax", "LogSoftmax", "ReduceMax", "ReduceMin")
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}
_BOOL_RESULTS = frozenset("Equal Less LessOrEqual Greater GreaterOrEqual IsNaN IsInf Not And Or Xor".split())
_INT64_RESULTS = frozenset("ArgMax ArgMin Shape Size NonZero".split())


@dataclass(frozen=True)
class Question:
    """What a run has to answer with 0, the number of places where eager raises: `error` is the exception's class,
    `text` what it says. name: of the output that counts."""

    name: str
    error: str
    text: str


@dataclass(frozen=True)
class Draw:
    """Random numbers that a run is fed with: what eager would draw with the same seed.

    name: of the input; node: of the graph's node; operator: torch's own, in place, as `bernoulli_`; numbers: its
    arguments; sizes, strides, dtype: of the tensor.
    """

    name: str
    node: str
    operator: str
    numbers: tuple[float | int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Value:
    """A value of the ONNX graph. `fake` is the torch value it stands for where there is one: a tensor or a SymInt."""

    name: str
    dtype: torch.dtype
    fake: Any = None

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes, ints or SymInts; () for a number."""
        return tuple(self.fake.shape) if isinstance(self.fake, torch.Tensor) else ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def like(self, fake: Any) -> Value:
        """The same value, known to stand for `fake`."""
        return Value(self.name, self.dtype, fake)


class ModelBuilder:
    """Collects nodes, constants, inputs and outputs of one model.

    result: the fake result of the node at hand; read: which of its several results somebody reads, None for all;
    origin: the node at hand and its operator, which name what is written for it; remarks: what eager leaves open, and
    may decide otherwise; questions: by the value that counts.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.result: Any = None
        self.read: frozenset[int] | None = None
        self.origin = ("", "")
        self.remarks: list[str] = []
        self.draws: list[Draw] = []
        self.questions: list[tuple[Value, Question]] = []
        self._constants: dict[Any, Value] = {}
        self._count = 0

    def wanted(self, index: int) -> bool:
        """Whether a result of the node at hand is read."""
        return self.read is None or index in self.read

    # -- nodes -------------------------------------------------------------------------------------------------------

    def fresh(self) -> str:
        """A name that no value has."""
        self._count += 1
        return f"v{self._count}"

    def node(self, operator: str, *inputs: Value | None, **attributes: Any) -> Value:
        """One node with one result. `None` leaves an optional input out."""
        found = self.nodes_of(operator, 1, *inputs, **attributes)[0]
        if operator in _ORDERS and operator in self.target.drops_nan:
            known = [self.node("Equal", value, value) for value in inputs]  # false of NaN, as an order with it is
            return self.node("And", found, self.node("And", *known))
        if operator in _ELEMENTARY and operator in self.target.drops_nan:
            (value,) = inputs
            assert value is not None
            return self.node("Where", self.node("IsNaN", value), value, found)
        if operator in _ALONG and not self.target.drops_nan.isdisjoint(_ORDERS):
            return self._ordered_along(operator, found, inputs, attributes)
        return found

    def _ordered_along(
        self, operator: str, found: Value, inputs: Sequence[Value | None], attributes: dict[str, Any]
    ) -> Value:
        """What a runtime finds along axes by orders that NaN drops out of, and that begin at its greatest or least
        number: NaN where there is one, and infinity where there is nothing else."""
        value, *axes = inputs
        assert value is not None
        if not value.dtype.is_floating_point:
            return found
        wrong = self.node("IsNaN", value)
        if operator in ("Softmax", "LogSoftmax"):  # infinity less infinity is NaN, and so is the sum
            axes, keep = [self.ints([attributes["axis"]])], 1
            wrong = self.node("Or", wrong, self.node("Equal", value, self.scalar(math.inf, value.dtype)))
        else:
            keep = attributes["keepdims"]
            end = self.scalar(-math.inf if operator == "ReduceMax" else math.inf, value.dtype)
            inside = self.node("Not", self.node("Equal", value, end))
            some = self.node("ReduceMax", self.cast(inside, torch.int32), *axes, keepdims=keep)
            found = self.node("Where", self.cast(some, torch.bool), found, end)
        unknown = self.node("ReduceMax", self.cast(wrong, torch.int32), *axes, keepdims=keep)
        return self.node("Where", self.cast(unknown, torch.bool), self.scalar(math.nan, value.dtype), found)

    def nodes_of(self, operator: str, results: int, *inputs: Value | None, **attributes: Any) -> tuple[Value, ...]:
        """One node with several results; those after the first have the first's dtype but for TopK's and MaxPool's."""
        given = [value for value in inputs if value is not None]
        typed = inputs[_TYPED_BY.get(operator, 0)] if inputs else None
        dtype = typed.dtype if typed is not None else None
        computed = self._computed(operator, dtype) if dtype is not None and operator != "Cast" else dtype
        if computed is not dtype:
            assert computed is not None
            position = _TYPED_BY.get(operator, 0)
            inputs = tuple(
                self.cast(value, computed) if value is not None and at >= position and value.dtype is dtype else value
                for at, value in enumerate(inputs)
            )
        names = [self.fresh() for _ in range(results)]
        sources = [value.name if value is not None else "" for value in inputs]
        while sources and not sources[-1]:  # an empty name at the end ends some runtimes
            sources.pop()
        self._write(operator, sources, names, **attributes)
        kinds = [self._result_dtype(operator, at, computed, given, attributes) for at in range(results)]
        found = tuple(Value(name, kind) for name, kind in zip(names, kinds))
        if computed is not dtype:
            assert dtype is not None
            found = tuple(self.cast(value, dtype) if value.dtype is computed else value for value in found)
        return found

    def _write(self, operator: str, sources: Sequence[str], names: Sequence[str], **attributes: Any) -> None:
        name = "/".join((*self.origin, str(len(self.nodes))))
        self.nodes.append(helper.make_node(operator, sources, names, name=name, **attributes))

    def select(self, condition: Value, one: Value, two: Value) -> Value:
        """Where, with the sign of every zero kept."""
        carrier = _BITS.get(one.dtype)
        if not self.target.adds_to_select or carrier is None or not self.target.computes("BitCast", one.dtype):
            return self.node("Where", condition, one, two)
        chosen = self.node("Where", condition, self._bits(one, carrier), self._bits(two, carrier))
        return self._bits(chosen, one.dtype)

    def _bits(self, value: Value, dtype: torch.dtype) -> Value:
        name = self.fresh()
        self._write("BitCast", [value.name], [name], to=element_type(dtype))
        return Value(name, dtype, value.fake)

    def _computed(self, operator: str, dtype: torch.dtype) -> torch.dtype:
        if self.target.computes(operator, dtype):
            return dtype
        wider = WIDER.get(dtype)
        if wider is not None and self.target.computes(operator, wider):
            return wider
        if dtype is torch.bool and self.target.computes(operator, torch.int64):
            return torch.int64
        name = str(dtype).removeprefix("torch.")
        raise ConversionError(f"{self.target.name} has no {operator} of {name}")

    def _result_dtype(
        self, operator: str, at: int, computed: torch.dtype | None, inputs: list[Value], attributes: dict[str, Any]
    ) -> torch.dtype:
        if operator in _BOOL_RESULTS:
            return torch.bool
        if operator in _INT64_RESULTS or (operator in ("TopK", "MaxPool") and at == 1):
            return torch.int64
        if computed is None:
            raise AssertionError(f"{operator} without inputs has no dtype")
        return computed

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """The value in another dtype, as torch's `to` gives it for values in range."""
        if value.dtype is dtype:
            return value
        if value.dtype.is_floating_point and dtype is torch.bool:
            return self.node("Not", self.node("Equal", value, self.scalar(0, value.dtype))).like(value.fake)
        if value.dtype.is_floating_point and dtype in (torch.uint8, torch.int8, torch.int16):
            value = self.cast(value, torch.int64).like(value.fake)  # torch wraps what is out of range
        name = self.fresh()
        self._write("Cast", [value.name], [name], to=element_type(dtype))
        return Value(name, dtype, value.fake)

    # -- what a run asks of its call -----------------------------------------------------------------------------------

    def raise_where(self, wrong: Value, error: str, text: str) -> None:
        """Have the call raise where one of the bools is true. Raises ConversionError where calls don't ask."""
        if not self.target.questions:
            raise ConversionError(f"eager raises where {text}, and {self.target.name} would not")
        count = self.node("ReduceSum", self.cast(wrong, torch.int32), keepdims=0)
        self.questions.append((count, Question("", error, f"{text}, in {self.origin[0]}")))

    def leave_open(self, what: str) -> None:
        """Say that the result is right but need not be eager's: torch decides among several right ones."""
        self.remarks.append(what)

    def drawn(self, operator: str, *numbers: Any) -> Value:
        """Random numbers in the form of the result at hand, the first of several, by an in-place operator of torch."""
        fake = self.result[0] if isinstance(self.result, (tuple, list)) else self.result
        if not self.target.draws:
            raise ConversionError(f"random numbers, which no operator of {self.target.name} draws as torch does")
        known = (*fake.shape, *fake.stride(), *numbers)
        if not all(isinstance(number, (int, float)) for number in known):
            raise ConversionError("random numbers of a symbolic size")
        element_type(fake.dtype)
        name = f"draw{len(self.draws)}"
        sizes, strides = tuple(fake.shape), tuple(fake.stride())
        self.draws.append(Draw(name, self.origin[0], operator, tuple(numbers), sizes, strides, fake.dtype))
        return Value(name, fake.dtype, fake)

    # -- constants ---------------------------------------------------------------------------------------------------

    def constant(self, values: Any, dtype: torch.dtype, shape: Sequence[int] | None = None) -> Value:
        """A small constant: a number, or a list with `shape`. Equal ones are one initializer."""
        flat = tuple(values) if isinstance(values, (list, tuple)) else (values,)
        sizes = tuple(shape) if shape is not None else (len(flat),) if isinstance(values, (list, tuple)) else ()
        key = (tuple(map(repr, flat)), dtype, sizes)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = self.initializer(constant_bytes(flat, dtype), dtype, sizes)
        return found

    def scalar(self, number: Any, dtype: torch.dtype) -> Value:
        """A constant of no dimensions."""
        return self.constant(number, dtype)

    def ints(self, values: Sequence[int]) -> Value:
        """A constant vector of int64, as shapes and axes are given."""
        return self.constant([int(value) for value in values], torch.int64)

    def tensor(self, tensor: torch.Tensor, name: str | None = None) -> Value:
        """A real tensor as an initializer, its bytes in the model."""
        dense = tensor.detach().cpu().contiguous()
        return self.initializer(raw_bytes(dense), dense.dtype, tuple(dense.shape), name).like(dense)

    def initializer(self, data: bytes, dtype: torch.dtype, sizes: Sequence[int], name: str | None = None) -> Value:
        """A constant from its bytes, little-endian and contiguous."""
        proto = onnx.TensorProto()
        proto.name = name or self.fresh()
        proto.data_type = element_type(dtype)
        proto.dims.extend(sizes)
        proto.raw_data = data
        self.initializers.append(proto)
        return Value(proto.name, dtype)

    # -- sizes -------------------------------------------------------------------------------------------------------

    def size_of(self, value: Value, axis: int) -> Value:
        """One size as an int64 scalar: a constant where it is known."""
        size = value.shape[axis]
        if isinstance(size, int):
            return self.scalar(size, torch.int64)
        shape = self.node("Shape", value)
        return self.node("Gather", shape, self.scalar(axis % value.rank, torch.int64), axis=0)

    def shape_vector(self, sizes: Iterable[Any]) -> Value:
        """A vector of int64 from ints and scalar values."""
        parts = list(sizes)
        if all(isinstance(part, int) for part in parts):
            return self.ints(parts)
        pieces = []
        for part in parts:
            if isinstance(part, Value):
                pieces.append(self.reshape(self.cast(part, torch.int64), [1]))
            elif isinstance(part, int):
                pieces.append(self.ints([part]))
            else:
                raise ConversionError(f"a size {part!r} that no input of the graph gives")
        return self.node("Concat", *pieces, axis=0) if len(pieces) > 1 else pieces[0]

    def reshape(self, value: Value, sizes: Sequence[Any]) -> Value:
        """Reshape to ints and scalar values; a size of 0 means 0."""
        zero = {"allowzero": 1} if any(isinstance(size, int) and size == 0 for size in sizes) else {}
        return self.node("Reshape", value, self.shape_vector(sizes), **zero)

    def flat_shape_of(self, fake: torch.Tensor, sources: Sequence[Value] = ()) -> Value:
        """The shape of a fake tensor as a vector, its symbolic sizes read from the `sources` that have them."""
        sizes: list[Any] = []
        for size in fake.shape:
            sizes.append(int(size) if isinstance(size, int) else self._found(size, sources))
        return self.shape_vector(sizes)

    def _found(self, size: Any, sources: Sequence[Value]) -> Value:
        for source in sources:
            for axis, other in enumerate(source.shape):
                if not isinstance(other, int) and other.node.expr == size.node.expr:
                    return self.size_of(source, axis)
        raise ConversionError(f"the size {size} is that of no operand")


_FORMATS = {
    torch.float32: "<f4",
    torch.float64: "<f8",
    torch.float16: "<f2",
    torch.int64: "<i8",
    torch.int32: "<i4",
    torch.int16: "<i2",
    torch.int8: "<i1",
    torch.uint8: "<u1",
    torch.bool: "?",
}


def constant_bytes(numbers: Sequence[Any], dtype: torch.dtype) -> bytes:
    """Numbers as the bytes of a tensor of `dtype`, rounded as torch rounds them. No torch tensor is made for it: the
    graph may be converted while fake tensors are."""
    if dtype is torch.bfloat16:
        bits = numpy.array(numbers, dtype="<f4").view("<u4").astype(numpy.uint64)
        even = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, ties to even
        nan = numpy.isnan(numpy.array(numbers, dtype="<f4"))
        return bytes(numpy.where(nan, 0x7FC0, even >> 16).astype("<u2").tobytes())
    kind = _FORMATS[dtype]
    if dtype.is_floating_point or dtype is torch.bool:
        with numpy.errstate(over="ignore"):
            return numpy.array(numbers, dtype=numpy.float64 if dtype.is_floating_point else bool).astype(kind).tobytes()
    bits_of = numpy.dtype(kind).itemsize * 8
    wrapped = [int(number) & (2**bits_of - 1) for number in numbers]
    return numpy.array(wrapped, dtype=f"<u{bits_of // 8}").tobytes()


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes of a contiguous CPU tensor, little-endian as ONNX keeps them."""
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""
