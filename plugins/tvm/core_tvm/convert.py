"""From an fx graph to a Relax module: one kernel per node, and a function `main` that calls them in order."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx as fx
from tvm import relax, te, tirx

from .arithmetic import number, type_name
from .kernel import Kernel, Value, size_names
from .registry import Refused, load_converters
from .symbols import PYTHON, expression_of, tvm_forms, written


def calls_of(graph: fx.GraphModule) -> list[fx.Node]:
    """The calls of operators, in order."""
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def is_aten(node: fx.Node) -> bool:
    """Whether a node is a call of an ATen operator, or takes one of the results of such a call."""
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_aten(node.args[0])
    return getattr(node.target, "namespace", "") == "aten"


def refusal(node: fx.Node) -> str:
    """Why a node is not taken, or "": its converter is run on the node alone."""
    try:
        fake = node.meta.get("val")
        if isinstance(fake, torch.SymInt):
            written(fake, str, PYTHON)
        elif node.target is operator.getitem:
            _taken(fake)
        else:
            write_kernel(node)
    except Refused as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class Written:
    """A node's kernel: its inputs in the order of `sources`, and its outputs by their place among the results."""

    kernel: Kernel
    sources: tuple[fx.Node, ...]
    inputs: tuple[Any, ...]
    outputs: dict[int, Any]

    def function(self) -> tuple[Any, list[str]]:
        """The PrimFunc, and the symbols that it takes as numbers since no input has them as a size."""
        plain = {
            size.node.expr.name
            for source in self.sources
            for size in source.meta["val"].shape
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
        }
        taken = [name for name in self.kernel.symbols if name not in plain]
        alarms = [tensor for tensor, _ in self.kernel.alarms]
        parts = [*self.inputs, *(self.kernel.symbols[name] for name in taken), *self.outputs.values(), *alarms]
        return te.create_prim_func(parts, "int64").without_attr("global_symbol"), taken


def write_kernel(node: fx.Node) -> Written:
    """Run a node's converter. Raises Refused."""
    fake = node.meta.get("val")
    for one in fake if isinstance(fake, (tuple, list)) else (fake,):
        _taken(one)
    kernel = Kernel(str(node.target), fake, _read_results(node))
    values: dict[fx.Node, Any] = {}
    sources: list[fx.Node] = []
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        _taken(value)
        if isinstance(value, torch.Tensor):
            values[source] = kernel.placeholder(value, f"a{len(sources)}")
            if not is_empty(value):  # of these nothing is read
                sources.append(source)
        else:
            values[source] = value
    return Written(kernel, tuple(sources), tuple(values[one].tensor for one in sources), _outputs(node, kernel, values))


def _outputs(node: fx.Node, kernel: Kernel, values: dict[fx.Node, Any]) -> dict[int, Any]:
    empty = _nothing_to_compute(kernel)
    if empty is not None:
        return empty
    converter = load_converters().get(str(node.target))
    if converter is None:
        raise Refused(f"{node.target} has no converter")
    args = fx.node.map_arg(node.args, values.__getitem__)
    kwargs = fx.node.map_arg(node.kwargs, values.__getitem__)
    result = converter(kernel, *args, **kwargs)
    results = result if isinstance(result, tuple) else (result,)
    made = {at: value for at, value in enumerate(results) if value is not None and kernel.wanted(at)}
    given = [value.tensor for value in values.values() if isinstance(value, Value)]
    outputs: dict[int, Any] = {}
    for at, value in made.items():
        if any(value.tensor.same_as(one) for one in (*given, *outputs.values())):  # an output is a tensor of its own
            value = Value(te.compute(value.tensor.shape, lambda *i, _t=value.tensor: _t(*i), name="t"), value.fake)
        outputs[at] = value.tensor
    return outputs


def _nothing_to_compute(kernel: Kernel) -> dict[int, Any] | None:
    """Tensors without elements for a node all of whose results have none."""
    fakes = kernel.result if isinstance(kernel.result, (tuple, list)) else (kernel.result,)
    read = {at: fake for at, fake in enumerate(fakes) if kernel.wanted(at)}
    if not read or not all(isinstance(fake, torch.Tensor) and is_empty(fake) for fake in read.values()):
        return None
    return {
        at: kernel.make(kernel.sizes(fake.shape), fake.dtype, lambda *_, _f=fake: number(0, _f.dtype)).tensor
        for at, fake in read.items()
    }


def is_empty(fake: torch.Tensor) -> bool:
    """Whether a tensor is known to have no elements."""
    return any(isinstance(size, int) and size == 0 for size in fake.shape)


def _taken(fake: Any) -> None:
    """Raises Refused for a value of a kind that is not taken."""
    if isinstance(fake, torch.Tensor):
        if fake.layout is not torch.strided:
            raise Refused(f"{fake.layout} tensors are left to the fallback")
        if not fake.is_quantized:
            type_name(fake.dtype)
            for size in fake.shape:
                written(size, str, PYTHON)
            return
        raise Refused("quantized tensors are left to the fallback")
    if isinstance(fake, (tuple, list)) or fake is None or (isinstance(fake, int) and not isinstance(fake, bool)):
        return
    expression_of(fake)


def _read_results(node: fx.Node) -> frozenset[int] | None:
    if not isinstance(node.meta.get("val"), (tuple, list)):
        return None
    read = set()
    for user in node.users:
        if user.target is not operator.getitem or not isinstance(user.args[1], int):
            return None
        read.add(user.args[1])
    return frozenset(read)


@dataclass
class Program:
    """A Relax module with a function `main`, and how it is called.

    symbols: sizes that are known only at run time, each with the place it is read from: an input, and one of its
    dimensions or None for a number; main takes their values first, as one shape. inputs: the graph's inputs that main
    takes; as_bits: those of bfloat16 among them, which travel as uint16; constants: tensors of the graph that it takes
    after these; outputs: for each result of the graph ("tensor", place among main's), ("bits", place) of bfloat16,
    ("input", place among the graph's), ("number", Python text) or ("constant", value); alarms: the places of main's
    results that are not 0 where an index was outside, each with the class of eager's error and the operator; made:
    number of main's results.
    """

    module: Any = None
    symbols: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    as_bits: set[int] = field(default_factory=set)
    constants: list[torch.Tensor] = field(default_factory=list)
    outputs: list[tuple[str, Any]] = field(default_factory=list)
    alarms: list[tuple[int, str, str]] = field(default_factory=list)
    made: int = 0


class Conversion:
    """Writes one graph. `nodes_at_fault`: what Refused was about, for core to leave to others."""

    def __init__(self, graph: fx.GraphModule) -> None:
        self.graph = graph
        self.program = Program()
        self.builder = relax.BlockBuilder()
        self.values: dict[fx.Node, Any] = {}
        self.variables: dict[str, Any] = {}
        self.place_of: dict[fx.Node, int] = {}
        self.nodes_at_fault: list[fx.Node] = []

    def run(self) -> Program:
        """The module. Raises Refused."""
        placeholders = [node for node in self.graph.graph.nodes if node.op == "placeholder"]
        self._find_symbols(placeholders)
        parameters = self._parameters(placeholders)
        with self.builder.function("main", parameters):
            with self.builder.dataflow():
                alarms: list[tuple[Any, str, str]] = []
                for node in calls_of(self.graph):
                    self.nodes_at_fault = [node]
                    alarms += self._call(node)
                self.nodes_at_fault = []
                results = self._results(alarms)
                out = self.builder.emit_output(relax.Tuple(results))
            self.builder.emit_func_output(out)
        self.program.module = self.builder.get()
        return self.program

    # -- what goes in --------------------------------------------------------------------------------------------------

    def _find_symbols(self, placeholders: Sequence[fx.Node]) -> None:
        known: dict[str, tuple[int, int | None]] = {}
        for index, node in enumerate(placeholders):
            fake = node.meta["val"]
            sizes = enumerate(fake.shape) if isinstance(fake, torch.Tensor) else ((None, fake),)
            for axis, size in sizes:
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    known.setdefault(size.node.expr.name, (index, axis))
        for node in self.graph.graph.nodes:
            fake = node.meta.get("val")
            needed = size_names(fake if isinstance(fake, (tuple, list)) else (fake,)) if node.op != "output" else set()
            for name in sorted(needed):
                if name not in known:
                    self.nodes_at_fault = [one for one in calls_of(self.graph) if name in _names_in(one)]
                    raise Refused(f"no input of the graph has the size {name} as it is")
                self.program.symbols[name] = known[name]
        self.variables = {name: tirx.Var(name, "int64") for name in self.program.symbols}

    def _parameters(self, placeholders: Sequence[fx.Node]) -> list[Any]:
        parameters = []
        if self.variables:
            parameters.append(relax.Var("sizes", relax.ShapeType(list(self.variables.values()))))
        for index, node in enumerate(placeholders):
            self.place_of[node] = index
            fake = node.meta["val"]
            if not isinstance(fake, torch.Tensor) or is_empty(fake):
                continue
            if any(user.op != "output" for user in node.users):
                self.program.inputs.append(index)
                if fake.dtype is torch.bfloat16:
                    self.program.as_bits.add(index)
                parameters.append(self._parameter(node, f"in{index}"))
        for node in self.graph.graph.nodes:
            if node.op == "get_attr":
                self.program.constants.append(_constant(self.graph, node))
                parameters.append(self._parameter(node, f"constant{len(self.program.constants)}"))
        return parameters

    def _parameter(self, node: fx.Node, name: str) -> Any:
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            fake = self.program.constants[-1]
            node.meta["val"] = fake
        self.values[node] = relax.Var(name, self._type(fake))
        return self.values[node]

    def _type(self, fake: torch.Tensor) -> Any:
        return relax.TensorType([self._size(size) for size in fake.shape], type_name(fake.dtype))

    def _size(self, size: Any) -> Any:
        return written(size, self.variables.__getitem__, tvm_forms())

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: fx.Node) -> list[tuple[Any, str, str]]:
        fake = node.meta.get("val")
        if isinstance(fake, torch.SymInt) or (isinstance(fake, int) and not isinstance(fake, bool)):
            return []  # an expression of the symbols, written where it is used
        if node.target is operator.getitem:
            self.values[node] = self.values[node.args[0]][node.args[1]]  # type: ignore[index]
            return []
        kernel = write_kernel(node)
        function, numbers = kernel.function()
        name = "".join(part if part.isalnum() else "_" for part in str(node.target).removeprefix("aten."))
        place = self.builder.add_func(function, name)
        alarms = kernel.kernel.alarms
        fakes = fake if isinstance(fake, (tuple, list)) else [fake]
        types = [self._type(fakes[at]) for at in kernel.outputs]
        types += [relax.TensorType([1], "int32") for _ in alarms]
        given = [*(self.values[source] for source in kernel.sources), *(self.variables[one] for one in numbers)]
        made = self.builder.emit(relax.call_tir(place, given, types))
        several = (
            [made] if len(types) == 1 else [self.builder.emit(relax.TupleGetItem(made, at)) for at in range(len(types))]
        )
        results = dict(zip(kernel.outputs, several))
        self.values[node] = results if isinstance(fake, (tuple, list)) else results[0]
        return [(value, error, str(node.target)) for value, (_, error) in zip(several[len(results) :], alarms)]

    # -- what comes out ------------------------------------------------------------------------------------------------

    def _results(self, alarms: Sequence[tuple[Any, str, str]]) -> list[Any]:
        output = next(node for node in reversed(self.graph.graph.nodes) if node.op == "output")
        results: list[Any] = []
        places: dict[fx.Node, int] = {}
        for value in output.args[0]:
            if isinstance(value, fx.Node) and value in self.values and value not in self.place_of:
                if value not in places:
                    places[value] = len(results)
                    results.append(self._owned(value))
                narrow = value.meta["val"].dtype is torch.bfloat16
                self.program.outputs.append(("bits" if narrow else "tensor", places[value]))
            else:
                self.program.outputs.append(self._other(value))
        for value, error, name in alarms:
            self.program.alarms.append((len(results), error, name))
            results.append(value)
        self.program.made = len(results)
        return results

    def _owned(self, node: fx.Node) -> Any:
        """A result; one that is a constant of the graph is copied, since the program does not own it."""
        value = self.values[node]
        return self.builder.emit(relax.op.add(value, relax.op.zeros_like(value))) if node.op == "get_attr" else value

    def _other(self, value: Any) -> tuple[str, Any]:
        if not isinstance(value, fx.Node):
            return ("constant", value)
        if value in self.place_of:
            return ("input", self.place_of[value])
        return ("number", written(value.meta["val"], str, PYTHON))


def _names_in(node: fx.Node) -> set[str]:
    fakes = [one.meta.get("val") for one in (node, *node.all_input_nodes)]
    return size_names([one for fake in fakes for one in (fake if isinstance(fake, (tuple, list)) else (fake,))])


def _constant(graph: fx.GraphModule, node: fx.Node) -> torch.Tensor:
    found: Any = graph
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found.detach().contiguous()
