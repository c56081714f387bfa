"""Regions of a functional graph as graphs of their own, and the generated function that runs them one after another.

Enters: a graph and its regions in the order in which they run. Leaves: a RegionGraph each, and a positional callable
that does what the whole graph does. Numbers (arithmetic on sizes), results that are inputs or constants, and results
that occur twice are made by that function: a backend sees tensors that it computes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..graph.geometry import is_contiguous
from ..graph.partition import operator_name
from ..graph.symbols import expression
from ..graph.tree import leaves, map_tree
from .generated import Code, tuple_text
from .partition import Region
from .partition_support import is_host_number, is_work
from .wrapper import follow

_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.truediv: "/",
}
_READS = {"sym_size": "size", "sym_stride": "stride", "sym_numel": "numel", "sym_storage_offset": "storage_offset"}


@dataclass(frozen=True)
class RegionGraph:
    """graph: the region alone; root: the module that holds its constants; inputs, outputs: the nodes of the whole graph
    that its placeholders and results are."""

    graph: fx.Graph
    root: fx.GraphModule
    inputs: tuple[fx.Node, ...]
    outputs: tuple[fx.Node, ...]

    def module(self) -> fx.GraphModule:
        """The region as a module; its code is written here, which costs more than everything else of a small one."""
        return fx.GraphModule(self.root, self.graph, "Region")

    def key(self) -> tuple[Any, ...]:
        """Equal for regions that compute the same on operands of the same kind; constants count by identity."""
        names = {node: at for at, node in enumerate(self.graph.nodes)}

        def written(leaf: Any) -> Any:
            if isinstance(leaf, fx.Node):
                return ("node", names[leaf])
            return (type(leaf), repr(leaf) if isinstance(leaf, float) else leaf)  # 0.0 and -0.0 differ

        found = []
        for node in self.graph.nodes:
            target: Any = node.target
            if node.op == "placeholder":
                target = ""
            elif node.op == "get_attr":
                target = id(getattr(self.root, target))
            arguments = tuple(map(written, leaves((node.args, node.kwargs))))
            shape = tuple(repr(tree) for tree in map_tree(lambda leaf: 0, (node.args, node.kwargs)))
            found.append((node.op, target, shape, arguments, _kind(node.meta.get("val"))))
        return tuple(found)


def _kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        sizes = tuple(map(_plain, value.shape))
        strides = tuple(map(_plain, value.stride())) if value.layout is torch.strided else value.layout
        return value.dtype, value.device, sizes, strides, value.requires_grad
    if isinstance(value, (tuple, list)):
        return tuple(map(_kind, value))
    return _plain(value)


def _plain(value: Any) -> Any:
    return (type(value).__name__, str(expression(value)))


def extract(module: fx.GraphModule, region: Region, order: Mapping[fx.Node, int]) -> RegionGraph:
    """The region's nodes as a graph: what comes from outside is a placeholder, constants go along.

    order: the position of each node in the whole graph.
    """
    inside = set(region.nodes)
    tensors, numbers, constants = _operands(region, inside)
    copied: set[fx.Node] = set()
    for number in list(numbers):
        chain = _computed_inside(number, tensors.keys() | inside)
        if chain is not None:
            copied |= chain[0]
            del numbers[number]
            numbers.update((taken, None) for taken in chain[1] if taken not in tensors)
    _say_symbols(module, tensors, numbers)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs = (*tensors, *numbers)
    for node in inputs:
        placeholder = copies[node] = graph.placeholder(node.name)
        placeholder.meta.update(node.meta)
    for node in sorted({*inside, *copied, *constants}, key=order.__getitem__):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = tuple(node for node in region.nodes if any(user not in inside for user in node.users))
    result = graph.output(tuple(copies[node] for node in outputs))
    result.meta["val"] = tuple(node.meta.get("val") for node in outputs)
    return RegionGraph(graph, module, inputs, outputs)


def _say_symbols(module: fx.GraphModule, tensors: dict[fx.Node, None], numbers: dict[fx.Node, None]) -> None:
    """Give the region inputs of the whole graph that say a symbol which its own inputs have in larger terms only."""
    said, used = _symbols((*tensors, *numbers))
    missing = used - said
    for node in module.graph.nodes if missing else ():
        if node.op == "placeholder" and missing & _symbols((node,))[0]:
            (tensors if isinstance(node.meta.get("val"), torch.Tensor) else numbers)[node] = None
            missing -= _symbols((node,))[0]


def _symbols(nodes: Sequence[fx.Node]) -> tuple[set[Any], set[Any]]:
    """The symbols that are a size or a number of these nodes alone, and all that their sizes and numbers hold."""
    said: set[Any] = set()
    used: set[Any] = set()
    for node in nodes:
        value = node.meta.get("val")
        for number in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(number, torch.SymInt):
                term = expression(number)
                used |= term.free_symbols
                said |= {term} if term.is_Symbol else set()
    return said, used


def _operands(
    region: Region, inside: set[fx.Node]
) -> tuple[dict[fx.Node, None], dict[fx.Node, None], dict[fx.Node, None]]:
    """(tensors, numbers, constants) that the region takes from outside, each in the order of first use."""
    tensors: dict[fx.Node, None] = {}
    numbers: dict[fx.Node, None] = {}
    constants: dict[fx.Node, None] = {}
    for node in region.nodes:
        for operand in node.all_input_nodes:
            if operand in inside:
                continue
            if operand.op == "get_attr":
                constants[operand] = None
            elif is_host_number(operand):
                numbers[operand] = None
            else:
                tensors[operand] = None
    return tensors, numbers, constants


def _computed_inside(number: fx.Node, known: Any) -> tuple[set[fx.Node], dict[fx.Node, None]] | None:
    """The nodes that compute a number from sizes of `known` tensors and from whole numbers that the graph is given,
    and those numbers; None where something else is needed.

    A backend reads a symbol off a size or a number that is that symbol alone: no argument that is one more says it.
    """
    found: set[fx.Node] = set()
    given: dict[fx.Node, None] = {}
    pending = [number]
    while pending:
        node = pending.pop()
        if node in found:
            continue
        if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.SymInt):
            given[node] = None
            continue
        if not is_host_number(node):
            return None
        found.add(node)
        if operator_name(node) == "sym_size":
            if node.args[0] not in known:
                return None
        elif operator_name(node) in _READS:
            return None
        else:
            pending += node.all_input_nodes
    if given and not all(isinstance(node.meta["val"], torch.SymInt) for node in found):
        return None
    return found, given


# -- running them -----------------------------------------------------------------------------------------------------


def is_plain(module: fx.GraphModule) -> bool:
    """True for a graph whose results are different tensors that it computes, at least one of them."""
    results = _results(module)
    return bool(results) and len(set(results)) == len(results) and all(_is_computed(value) for value in results)


def _is_computed(value: Any) -> bool:
    if not isinstance(value, fx.Node) or value.op != "call_function" or is_host_number(value):
        return False
    return isinstance(value.meta.get("val"), torch.Tensor)


def _results(module: fx.GraphModule) -> list[Any]:
    node = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return list(node.args[0])


def needs_copies(nodes: Sequence[fx.Node]) -> bool:
    """Whether a backend that takes contiguous tensors can't have these as they are."""
    return any(not _lies_in_order(node) for node in nodes)


def _lies_in_order(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.layout is not torch.strided or is_contiguous(value)


class Stitch:
    """Writes the function that runs the regions of a graph."""

    def __init__(self, module: fx.GraphModule) -> None:
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._module = module
        self._names = {node: f"a{at}" for at, node in enumerate(placeholders)}
        self._code = Code("compiled", [self._names[node] for node in placeholders])
        self._kept = set(leaf for leaf in _results(module) if isinstance(leaf, fx.Node))

    def write(
        self, regions: Sequence[RegionGraph], calls: Sequence[Callable[..., Any]], contiguous: Sequence[bool]
    ) -> Callable[..., Any]:
        """calls: of each region, as first_run.checked_once gives them; contiguous: it takes only such tensors."""
        last = self._last_uses(regions)
        for at, (region, in_order) in enumerate(zip(regions, contiguous)):
            arguments = [self._argument(node, in_order) for node in region.inputs]
            for item, node in enumerate(region.outputs):
                self._names[node] = f"b{at}_{item}"
            targets = [self._names[node] for node in region.outputs]
            assigned = f"{tuple_text(targets)} = " if targets else ""
            self._code.line(f"{assigned}region{at}({', '.join(arguments)})")
            gone = [self._names[node] for node in last.get(at, ())]
            if gone and at + 1 < len(regions):
                self._code.line(f"del {', '.join(gone)}")
        results = [self._value(value) for value in _results(self._module)]
        self._code.line(f"return {tuple_text(results)}")
        compiled = self._code.finish()
        compiled.followers = []  # type: ignore[attr-defined]
        for at, call in enumerate(calls):
            follow(compiled, self._code.namespace, f"region{at}", call)
        return compiled

    def _last_uses(self, regions: Sequence[RegionGraph]) -> dict[int, list[fx.Node]]:
        """By region, the results of regions that nobody needs behind it."""
        made = {node for region in regions for node in region.outputs}
        last: dict[fx.Node, int] = {}
        for at, region in enumerate(regions):
            last.update(dict.fromkeys(region.outputs, at))
            for node in region.inputs:
                last.update({source: at for source in self._sources(node) if source in made})
        for value in self._kept:
            for source in self._sources(value):
                last.pop(source, None)
        found: dict[int, list[fx.Node]] = {}
        for node, at in last.items():
            found.setdefault(at, []).append(node)
        return found

    def _sources(self, node: fx.Node) -> set[fx.Node]:
        """The values that must exist for a number to be computed; any other node is its own source."""
        if not is_host_number(node):
            return {node}
        return {source for operand in node.all_input_nodes for source in self._sources(operand)}

    def _argument(self, node: fx.Node, in_order: bool) -> str:
        value = node.meta.get("val")
        text = self._value(node)
        if in_order and isinstance(value, torch.Tensor):
            if not _lies_in_order(node):
                text += ".contiguous()"
            if value.is_conj():
                text += ".resolve_conj()"
            if value.is_neg():
                text += ".resolve_neg()"
        return text

    def _value(self, value: Any) -> str:
        """Source of an operand or result; numbers are computed where they are first needed."""
        if isinstance(value, fx.Node):
            name = self._names.get(value)
            if name is not None:
                return name
            if value.op == "get_attr":
                return self._code.bind(getattr(self._module, str(value.target)), "constant")
            text = self._number(value)
            name = self._names[value] = f"n{len(self._names)}"
            self._code.line(f"{name} = {text}")
            return name
        if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
            return repr(value)
        if type(value) in (list, tuple):
            inner = ", ".join(map(self._value, value))
            return f"[{inner}]" if type(value) is list else tuple_text(map(self._value, value))
        return self._code.bind(value, "constant")

    def _number(self, node: fx.Node) -> str:
        arguments = [self._value(arg) for arg in node.args]
        method = _READS.get(operator_name(node))
        if method is not None:
            return f"{arguments[0]}.{method}({', '.join(arguments[1:])})"
        infix = _INFIX.get(node.target)  # type: ignore[arg-type]
        if infix is not None and len(arguments) == 2:
            return f"{arguments[0]} {infix} {arguments[1]}"
        arguments += [f"{name}={self._value(arg)}" for name, arg in node.kwargs.items()]
        return f"{self._code.bind(node.target, 'op')}({', '.join(arguments)})"


def has_work(module: fx.GraphModule) -> bool:
    """False for a graph that only hands on inputs, constants and numbers."""
    return any(is_work(node) for node in module.graph.nodes)
