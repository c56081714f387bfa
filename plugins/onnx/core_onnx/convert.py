"""The driver: an fx graph, node by node, into one ONNX model."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
import torch
import torch.fx as fx
from onnx import TensorProto, helper

from .builder import Draw, ModelBuilder, Question, Value
from .errors import ConversionError
from .registry import load_converters, operator_name
from .target import EVERYTHING, Target
from .types import ELEMENT_TYPES, element_type

_IR_VERSIONS = {18: 8, 26: 13}  # those of the opset's own time: older runtimes refuse a newer one


@dataclass(frozen=True)
class OnnxGraph:
    """A model and how the fx graph's values map to it.

    model: the protobuf; inputs: a name for each placeholder; outputs: for each result of the graph the name of a model
    output, or the constant (None, a number) that the graph returns in its place; dtypes: of the model's inputs and
    outputs by name; external: initializers whose bytes stay outside the model, by name, as the tensors that hold them;
    draws: inputs beyond those, random numbers; questions: int32 outputs beyond those, each 0 or an error.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[Any, ...]
    dtypes: Mapping[str, torch.dtype]
    external: Mapping[str, torch.Tensor] = field(default_factory=dict)
    draws: tuple[Draw, ...] = ()
    questions: tuple[Question, ...] = ()

    def serialized(self) -> bytes:
        """The model's bytes."""
        return self.model.SerializeToString()

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the model's outputs, in order, each once."""
        return tuple(output.name for output in self.model.graph.output)


def convert(
    graph: fx.GraphModule,
    *,
    target: Target = EVERYTHING,
    frozen: Mapping[int, torch.Tensor] | None = None,
    name: str = "graph",
) -> OnnxGraph:
    """Write `graph` as an ONNX model.

    frozen: placeholders (by index) whose values never change, as contiguous CPU tensors: they become initializers with
    their bytes outside the model, which a runtime takes by pointer.

    Raises ConversionError naming the first node that has no ONNX form.
    """
    return _Conversion(graph, target, dict(frozen or {})).run(name)


@dataclass(frozen=True)
class Answer:
    """Whether a node can be converted. reason: why it can't, or, with `open`, what a converted one leaves open: a right
    result that need not be the one of eager. drawn: it is an input, random numbers."""

    reason: str = ""
    open: bool = False
    drawn: bool = False


def answer(node: fx.Node, target: Target = EVERYTHING) -> Answer:
    """What `target` can do for a node: its converter is run on the node alone."""
    builder = ModelBuilder(target)
    try:
        values = {source: _alone(source, f"x{at}") for at, source in enumerate(node.all_input_nodes)}
        _result_is_known(node)
        _convert_node(builder, node, values)
    except ConversionError as error:
        return Answer(str(error))
    return Answer("; ".join(builder.remarks), bool(builder.remarks), bool(builder.draws))


def unsupported_reason(node: fx.Node, target: Target = EVERYTHING) -> str:
    """Why a node should not be converted for `target`, or "" when it is as in eager."""
    return answer(node, target).reason


def _alone(node: fx.Node, name: str) -> Any:
    fake = node.meta.get("val")
    if isinstance(fake, (tuple, list)):
        return tuple(_value(f"{name}_{at}", item) if item is not None else None for at, item in enumerate(fake))
    return _value(name, fake)


def _value(name: str, fake: Any) -> Value:
    if isinstance(fake, torch.Tensor):
        if fake.layout is not torch.strided:
            raise ConversionError(f"ONNX models of this kind have no {fake.layout} tensors")
        element_type(fake.dtype)
        return Value(name, fake.dtype, fake)
    if isinstance(fake, (int, torch.SymInt)) and not isinstance(fake, bool):
        return Value(name, torch.int64, fake)
    if isinstance(fake, (float, torch.SymFloat)):
        return Value(name, torch.float64, fake)
    if isinstance(fake, (bool, torch.SymBool)):
        return Value(name, torch.bool, fake)
    raise ConversionError(f"a value of type {type(fake).__name__} is neither a tensor nor a number")


def _result_is_known(node: fx.Node) -> None:
    results = node.meta.get("val")
    for fake in results if isinstance(results, (tuple, list)) else (results,):
        if isinstance(fake, torch.Tensor) and fake.dtype not in ELEMENT_TYPES:
            element_type(fake.dtype)


def _convert_node(builder: ModelBuilder, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    builder.result = node.meta.get("val")
    builder.read = _read_results(node)
    builder.origin = (node.name, operator_name(node.target))
    if _is_empty(builder.result):  # no value to compute, and not every runtime has kernels for none
        shape = builder.ints([int(size) for size in builder.result.shape])
        return builder.node("Expand", builder.scalar(0, builder.result.dtype), shape).like(builder.result)
    if isinstance(builder.result, (tuple, list)) and (nothing := _empty_results(builder)) is not None:
        return nothing
    if node.target is operator.getitem and isinstance(values[node.args[0]], tuple):  # type: ignore[index]
        found = values[node.args[0]][node.args[1]]  # type: ignore[index]
        if found is None:
            raise ConversionError(f"result {node.args[1]} of {node.args[0]} has no ONNX form")
        return found
    key = operator_name(node.target)
    converter = load_converters().get(key)
    if converter is None:
        raise ConversionError(f"{key} has no converter")
    wide = _calculates(converter) and any(_is_narrow(source.meta.get("val")) for source in node.all_input_nodes)

    def given(source: fx.Node) -> Any:
        return _widened(builder, values[source]) if wide else values[source]

    args = fx.node.map_arg(node.args, given)
    kwargs = fx.node.map_arg(node.kwargs, given)
    if wide:
        builder.result = fx.node.map_aggregate(builder.result, _wide_fake)
    try:
        result = converter(builder, *args, **kwargs)
    except TypeError as error:
        if any(not isinstance(source.meta.get("val"), (torch.Tensor, tuple, list)) for source in node.all_input_nodes):
            raise ConversionError(f"{key} takes a number that ONNX must know beforehand, and it is a symbol") from error
        raise
    return _with_fakes(_narrowed(builder, result, node.meta.get("val")) if wide else result, node.meta.get("val"))


def _empty_results(builder: ModelBuilder) -> tuple[Value | None, ...] | None:
    """Several results of which all that are read have no elements; None where one has."""
    fakes = [fake if builder.wanted(at) else None for at, fake in enumerate(builder.result)]
    if not any(fake is not None for fake in fakes) or not all(fake is None or _is_empty(fake) for fake in fakes):
        return None
    return tuple(
        builder.node("Expand", builder.scalar(0, fake.dtype), builder.ints([int(size) for size in fake.shape]))
        if fake is not None
        else None
        for fake in fakes
    )


def _is_empty(fake: Any) -> bool:
    if not isinstance(fake, torch.Tensor) or not all(isinstance(size, int) for size in fake.shape):
        return False
    return 0 in fake.shape


def _calculates(converter: Any) -> bool:
    """Whether a converter does arithmetic: of 16-bit floats torch's kernels round only the result."""
    family = converter.__module__.rpartition(".")[2]
    if converter.__name__ == "div_mode":  # its quotient is rounded before it is cut off
        return False
    return family not in ("shapes", "casts", "creation", "indexing", "numbers", "sorting", "random")


def _is_narrow(fake: Any) -> bool:
    several = fake if isinstance(fake, (tuple, list)) else (fake,)
    return any(isinstance(one, torch.Tensor) and one.dtype in (torch.float16, torch.bfloat16) for one in several)


def _wide_fake(fake: Any) -> Any:
    return fake.to(torch.float32) if _is_narrow(fake) else fake


def _widened(builder: ModelBuilder, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_widened(builder, one) for one in value)
    if value is None or not _is_narrow(value.fake):
        return value
    return builder.cast(value, torch.float32).like(_wide_fake(value.fake))


def _narrowed(builder: ModelBuilder, result: Any, fake: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_narrowed(builder, one, part) for one, part in zip(result, fake))
    if isinstance(fake, (tuple, list)):
        fake = fake[0]
    return builder.cast(result, fake.dtype) if result is not None and _is_narrow(fake) else result


def _read_results(node: fx.Node) -> frozenset[int] | None:
    read = set()
    for user in node.users:
        if user.target is not operator.getitem or not isinstance(user.args[1], int):
            return None
        read.add(user.args[1])
    return frozenset(read)


def _with_fakes(result: Any, fake: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(value.like(item) if value is not None else None for value, item in zip(result, fake))
    if isinstance(fake, (tuple, list)):
        return (result.like(fake[0]), *[None] * (len(fake) - 1))
    if isinstance(fake, torch.Tensor) and result.dtype is not fake.dtype:
        raise AssertionError(f"a converter made {result.dtype} where the graph has {fake.dtype}")
    return result.like(fake)


class _Conversion:
    def __init__(self, graph: fx.GraphModule, target: Target, frozen: dict[int, torch.Tensor]) -> None:
        self.graph = graph
        self.builder = ModelBuilder(target)
        self.frozen = frozen
        self.values: dict[fx.Node, Any] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.input_names: list[str] = []
        self.dtypes: dict[str, torch.dtype] = {}
        self.external: dict[str, torch.Tensor] = {}
        self.outputs: list[onnx.ValueInfoProto] = []

    def run(self, name: str) -> OnnxGraph:
        references: tuple[Any, ...] = ()
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = self._constant(node)
            elif node.op == "output":
                references = tuple(self._output(value) for value in node.args[0])
            elif node.op == "call_function":
                self.values[node] = self._call(node)
            else:
                raise ConversionError(f"{node.op} {node.target} is no call of an operator")
        self._draw()
        questions = tuple(self._ask(at, count, one) for at, (count, one) in enumerate(self.builder.questions))
        written = helper.make_graph(
            self.builder.nodes, name, self.inputs, self.outputs, initializer=self.builder.initializers
        )
        opset = helper.make_opsetid("", self.builder.target.opset)
        version = _IR_VERSIONS.get(self.builder.target.opset, 10)
        model = helper.make_model(written, opset_imports=[opset], ir_version=version, producer_name="core-onnx")
        inputs, draws = tuple(self.input_names), tuple(self.builder.draws)
        return OnnxGraph(model, inputs, references, self.dtypes, self.external, draws, questions)

    def _call(self, node: fx.Node) -> Any:
        try:
            _result_is_known(node)
            return _convert_node(self.builder, node, self.values)
        except ConversionError as error:
            raise ConversionError(f"{node.name}: {error}") from None

    def _placeholder(self, node: fx.Node) -> None:
        index = len(self.input_names)
        name = f"in{index}"
        value = _value(name, node.meta["val"])
        self.input_names.append(name)
        self.values[node] = value
        self.dtypes[name] = value.dtype
        weight = self.frozen.get(index)
        if weight is None:
            self.inputs.append(helper.make_tensor_value_info(name, element_type(value.dtype), _dims(value.fake)))
        elif node.users:  # runtimes refuse an external initializer that nothing reads
            self._external(name, weight)

    def _draw(self) -> None:
        for one in self.builder.draws:
            self.inputs.append(helper.make_tensor_value_info(one.name, element_type(one.dtype), one.sizes))
            self.dtypes[one.name] = one.dtype

    def _ask(self, at: int, count: Value, question: Question) -> Question:
        name = f"question{at}"
        self.builder.nodes.append(helper.make_node("Identity", [count.name], [name], name=name))
        self.outputs.append(helper.make_tensor_value_info(name, element_type(torch.int32), []))
        self.dtypes[name] = torch.int32
        return replace(question, name=name)

    def _external(self, name: str, weight: torch.Tensor) -> None:
        self.builder.initializers.append(initializer(name, weight))
        self.external[name] = weight

    def _constant(self, node: fx.Node) -> Value:
        found: Any = self.graph
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return self.builder.tensor(found).like(node.meta.get("val", found))

    def _output(self, value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return value
        source = self.values[value]
        name = f"out{len(self.outputs)}"
        self.builder.nodes.append(helper.make_node("Identity", [source.name], [name], name=f"{value.name}/{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, element_type(source.dtype), _dims(source.fake)))
        self.dtypes[name] = source.dtype
        return name


def initializer(name: str, weight: torch.Tensor) -> TensorProto:
    """An initializer whose bytes stay outside of the model: those of a contiguous tensor, given by pointer."""
    proto = TensorProto()
    proto.name = name
    proto.data_type = element_type(weight.dtype)
    proto.dims.extend(weight.shape)
    proto.data_location = TensorProto.EXTERNAL
    size = weight.numel() * weight.element_size()
    for key, text in (("location", name), ("offset", "0"), ("length", str(size))):
        proto.external_data.add(key=key, value=text)
    return proto


def _dims(fake: Any) -> list[Any]:
    """Sizes as ONNX has them: numbers, or names for symbolic ones."""
    if not isinstance(fake, torch.Tensor):
        return []
    return [int(size) if isinstance(size, int) else f"d_{size}".replace(" ", "") for size in fake.shape]
