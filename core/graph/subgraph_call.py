"""SubgraphCall: a dispatch of a higher-order operator (torch.cond, while_loop, scan, ...) as an operator of the record.

Enters: the operator and its arguments, graphs among them, as the recorder meets them. Leaves: an object that takes the
tensors and numbers among those arguments, writes to nothing, and gives results of its own; so functionalisation,
partition and backends may treat it as any operator they don't know. Its graphs are functional ATen graphs: what the
state of the moment (autocast, grad mode) made of them is fixed in them.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import RecorderRefused
from .functionalize import Functionalizer, drop_unused
from .geometry import same_geometry
from .recorder import AtenRecord, new_recorder
from .tree import leaves, map_tree

VALUES = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class _Result:
    """What a schema says of a result: it shares memory with no argument."""

    alias_info: None = None


@dataclass(frozen=True)
class _Schema:
    """The part of an operator's schema that readers of records and graphs ask for."""

    name: str
    returns: tuple[_Result, ...]
    arguments: tuple[Any, ...] = ()
    overload_name: str = ""
    is_mutable: bool = False


@dataclass(frozen=True)
class _Hole:
    """The place of a value among the arguments of the higher-order operator."""

    index: int


class SubgraphCall:
    """Callable as call(*values): the tensors and symbolic numbers of the operator's arguments, in order."""

    namespace = "core"

    def __init__(self, op: Any, template: tuple[Any, Any], results: int, random: bool) -> None:
        self.op = op
        self.template = template
        self.__name__ = op.name()
        self._schema = _Schema(f"core::{op.name()} of graphs", (_Result(),) * results)
        self._overloadname = "default"
        self.tags = (torch.Tag.nondeterministic_seeded,) if random else ()

    def name(self) -> str:
        return self._schema.name

    def __call__(self, *values: Any) -> Any:
        args, kwargs = map_tree(lambda leaf: values[leaf.index] if isinstance(leaf, _Hole) else leaf, self.template)
        return self.op(*args, **kwargs)

    def __repr__(self) -> str:
        return self._schema.name

    def graphs(self) -> list[fx.GraphModule]:
        """The functional graphs among its arguments."""
        return [leaf for leaf in leaves(self.template) if isinstance(leaf, fx.GraphModule)]


def subgraph_call(record: AtenRecord, op: Any, args: Any, kwargs: Any) -> tuple[SubgraphCall, tuple[Any, ...], Any]:
    """The call of a higher-order operator on fakes: what to record, the values it is recorded on, the fake result.

    Raises RecorderRefused for arguments that are neither graphs nor values, and for graphs that can't be functional.
    """
    values: list[Any] = []
    graphs: dict[int, fx.GraphModule] = {}

    def place(leaf: Any) -> Any:
        if isinstance(leaf, VALUES):
            values.append(leaf)
            return _Hole(len(values) - 1)
        if isinstance(leaf, fx.GraphModule):
            if id(leaf) not in graphs:
                graphs[id(leaf)] = functional_subgraph(record, leaf)
            return graphs[id(leaf)]
        if callable(leaf) and not isinstance(leaf, (type, torch.dtype)):
            raise RecorderRefused(f"{op.name()} takes Python code that is no graph")
        return leaf

    template = map_tree(place, (tuple(args), dict(kwargs)))
    random = any(node.meta.get("random") for graph in graphs.values() for node in graph.graph.nodes)
    result = op(*args, **kwargs)
    count = sum(isinstance(leaf, torch.Tensor) for leaf in leaves(result))
    return SubgraphCall(op, template, count, random), tuple(values), result


def functional_subgraph(record: AtenRecord, graph: fx.GraphModule) -> fx.GraphModule:
    """A graph as a functional ATen graph with the same inputs and outputs."""
    inputs = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    inner = AtenRecord(
        record.fake_mode,
        record.shape_env,
        decompositions=record.decompositions,
        higher_order=subgraph_call,
    )
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(record.fake_mode)
        fakes = [_fresh(value) for value in inputs]
        for fake in fakes:
            inner.add_input(fake)
        stack.enter_context(new_recorder(inner))
        try:
            results = graph.forward(*fakes)
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            raise RecorderRefused(f"a graph of it can't be run on fake tensors: {error}") from error
    inner.checked()
    if inner.refused is not None:
        raise RecorderRefused(inner.refused)
    functionalizer = Functionalizer(inner, tuple(leaves(results)))
    for call in inner.calls:
        functionalizer.process(call)
    functionalizer.emitter.provenance = {}
    if functionalizer.written:
        raise RecorderRefused("a graph under a higher-order operator writes to what it is given")
    output = functionalizer.emitter.graph.output(map_tree(lambda leaf: _result_node(functionalizer, leaf), results))
    output.meta["val"] = results
    drop_unused(functionalizer.emitter.graph)
    return functionalizer.emitter.module(type(graph).__name__)


def _fresh(value: Any) -> Any:
    """A fake like a placeholder's, with memory of its own and without gradients."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)


def _result_node(functionalizer: Functionalizer, leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return functionalizer.number(leaf)
    alias = functionalizer.alias_of(leaf)
    node = functionalizer.memory.read(alias)
    if same_geometry(node.meta["val"], alias.val):
        return node
    return functionalizer.memory.restride(node, alias.val)
