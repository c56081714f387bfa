"""The call of a region, as generated code: oneDNN's fused kernels and ATen's for the rest, line by line.

Convolutions read and write channels-last memory, and so does what follows them; an operator that reads memory in order,
as a reshape does, gets its operand made contiguous. Values are dropped behind their last reader.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from core.plugin import Unsupported

from . import native
from .fusions import Fusion
from .patterns import BESIDE_CONVOLUTIONS, fake, is_turn, memory_order
from .torch_compat import convolution, direct, linear


class RegionCall:
    """Generates the call. `source` is its text, `function` the call, `calls` the number of library calls in it."""

    def __init__(self, graph: fx.GraphModule, fusions: Sequence[Fusion], name: str) -> None:
        self.graph = graph
        self.namespace: dict[str, Any] = {"_channels_last": torch.channels_last}
        self.namespace["_linear"], self.namespace["_linear_add"] = linear()
        self.namespace["_convolution"], self.namespace["_convolution_add"] = convolution()
        self.fusions = {fusion.at: fusion for fusion in fusions}
        self.made: dict[fx.Node, fx.Node] = {}  # a node -> the one whose value it is
        self.skipped: set[fx.Node] = set()
        self.images: set[fx.Node] = set()  # channels-last in memory, whatever the graph says
        self.loose: set[fx.Node] = set()  # strides that may differ from the graph's
        self.statements: list[tuple[str | None, str, tuple[str, ...]]] = []  # name, expression, names it reads
        self.calls = self.baked = 0
        for fusion in fusions:
            self._absorb(fusion)
        self.source = self._text()
        exec(compile(self.source, f"<ipex call of {name}>", "exec"), self.namespace)
        self.function: Callable[..., Any] = self.namespace["compiled"]

    def _absorb(self, fusion: Fusion) -> None:
        value = fusion.reshape or fusion.anchor
        for node in fusion.behind:
            self.made[node] = value
        self.skipped.update(fusion.behind)
        if fusion.at is not fusion.anchor:
            self.skipped.add(fusion.anchor)
            if fusion.reshape is not None:
                self.skipped.add(fusion.reshape)

    # -- the text ----------------------------------------------------------------------------------------------------

    def _text(self) -> str:
        anchors = {fusion.anchor for fusion in self.fusions.values()}
        parameters, results = [], ""
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                parameters.append(node.name)
            elif node.op == "output":
                results = "".join(f"{self._written(value, loosely=True)}, " for value in node.args[0])
                results = f"return ({results})"
            elif node in self.fusions:
                self._fused(self.fusions[node])
            elif node.op == "get_attr":
                self.namespace[node.name] = getattr(self.graph, node.target)
            elif node not in self.skipped and not (is_turn(node) and anchors.issuperset(node.users)):
                self._plain(node)
        lines = [f"def compiled({', '.join(parameters)}):"]
        alive: set[str] = set()
        behind: list[list[str]] = []
        made = {name for name, _, _ in self.statements}
        for _, _, reads in reversed([*self.statements, (None, "", self._names(self._results()))]):
            last = [one for one in dict.fromkeys(reads) if one not in alive]
            alive.update(reads)
            behind.append([one for one in last if one in made])
        drops = behind[::-1][:-1]
        for (name, expression, _), dropped in zip(self.statements, drops):
            lines.append(f"    {name} = {expression}" if name else f"    {expression}")
            if dropped:
                lines.append(f"    del {', '.join(dropped)}")
        return "\n".join([*lines, f"    {results}"])

    def _results(self) -> list[fx.Node]:
        output = next(node for node in reversed(self.graph.graph.nodes) if node.op == "output")
        return [value for value in output.args[0] if isinstance(value, fx.Node)]

    def _plain(self, node: fx.Node) -> None:
        if node.op != "call_function":
            raise Unsupported([node], f"a graph node of kind {node.op}")
        loosely = node.target in BESIDE_CONVOLUTIONS or node.target is operator.getitem
        operands = [self._resolved(value) for value in node.all_input_nodes]
        if loosely and any(value in self.loose for value in operands):
            self.loose.add(node)
        args = [self._written(value, loosely) for value in node.args]
        args += [f"{key}={self._written(value, loosely)}" for key, value in node.kwargs.items()]
        if node.target is operator.getitem:
            self._say(node, f"{args[0]}[{args[1]}]", operands)
            return
        function = f"op_{node.name}"
        self.namespace[function] = direct(node.target)
        self.calls += 1
        self._say(node, f"{function}({', '.join(args)})", operands)

    def _fused(self, fusion: Fusion) -> None:
        ready = fusion.ready
        reads = [fusion.values]
        if ready is not None:
            weight, bias = self._constant(ready[0]), self._constant(ready[1])
            self.baked += fake(fusion.weight).numel() * fake(fusion.weight).element_size()
        else:
            reads += [fusion.weight] + ([fusion.bias] if fusion.bias is not None else [])
            weight = self._written(fusion.weight)
            # the kernels read a bias in order, whatever its stride
            bias = "None" if fusion.bias is None else f"{self._written(fusion.bias)}.contiguous()"
        if fusion.other is not None:
            reads.append(fusion.other)
        self.calls += 1
        write = self._native if fusion.native else self._convolved if fusion.is_convolution else self._product
        expression = write(fusion, weight, bias)
        self._say(fusion.anchor, expression + (".relu_()" if fusion.relu else ""), map(self._resolved, reads))
        if fusion.reshape is not None and fusion.at is not fusion.anchor:
            self._plain(fusion.reshape)

    def _product(self, fusion: Fusion, weight: str, bias: str) -> str:
        values = self._written(fusion.values)
        if fusion.other is None:
            return f"_linear({values}, {weight}, {bias}, {fusion.unary!r}, [], {fusion.algorithm!r})"
        other = self._as_product(fusion, self._written(fusion.other))
        return f"_linear_add({values}, {other}, {weight}, {bias}, 'add')"

    def _native(self, fusion: Fusion, weight: str, bias: str) -> str:
        kind, values, other = "linear", self._written, self._written
        if fusion.is_convolution:
            self.images.add(fusion.anchor)
            self.loose.add(fusion.anchor)
            kind, values, other = "convolution", self._image, self._image
        name, extra = native.call(kind, fusion.unary, fusion.algorithm)
        self.namespace[f"_{name}"] = native.kernel(name)
        expression = f"_{name}({', '.join([values(fusion.values), *map(repr, extra), weight])})"
        if fusion.other is None:
            return expression
        return f"{expression}.add_({self._as_product(fusion, other(fusion.other))})"

    def _as_product(self, fusion: Fusion, other: str) -> str:
        """What is added behind a reshape, in the shape of the product."""
        return other if fusion.reshape is None else f"{other}.reshape(-1, {fake(fusion.anchor).shape[1]})"

    def _convolved(self, fusion: Fusion, weight: str, bias: str) -> str:
        self.images.add(fusion.anchor)
        self.loose.add(fusion.anchor)
        values, settings = self._image(fusion.values), ", ".join(map(repr, fusion.geometry))
        if fusion.other is None:
            return f"_convolution({values}, {weight}, {bias}, {settings}, {fusion.unary!r}, [], {fusion.algorithm!r})"
        other = self._image(fusion.other)
        return f"_convolution_add({values}, {other}, {weight}, {bias}, {settings}, 'add', 1.0, None, [], None)"

    # -- values ------------------------------------------------------------------------------------------------------

    def _say(self, node: fx.Node, expression: str, reads: Any) -> None:
        self.statements.append((node.name, expression, self._names(reads)))

    def _names(self, nodes: Any) -> tuple[str, ...]:
        return tuple(self._resolved(node).name for node in nodes)

    def _resolved(self, node: fx.Node) -> fx.Node:
        while node in self.made:
            node = self.made[node]
        return node

    def _image(self, node: fx.Node) -> str:
        value = self._resolved(node)
        return value.name if value in self.images else f"{value.name}.contiguous(memory_format=_channels_last)"

    def _in_order(self, node: fx.Node) -> str:
        """A value in the memory order that the graph says: it shows in what reads memory, and in random numbers."""
        if memory_order(fake(node)) is torch.channels_last:
            return f"{node.name}.contiguous(memory_format=_channels_last)"
        return f"{node.name}.contiguous()"

    def _written(self, value: Any, loosely: bool = False) -> str:
        if isinstance(value, fx.Node):
            node = self._resolved(value)
            return node.name if loosely or node not in self.loose else self._in_order(node)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._written(one, loosely) for one in value)}]"
        if value is None or isinstance(value, (bool, int, str)) or isinstance(value, float) and math.isfinite(value):
            if type(value) in (type(None), bool, int, str, float):
                return repr(value)
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        if value is None:
            return "None"
        name = f"_constant_{len(self.namespace)}"
        self.namespace[name] = value
        return name
