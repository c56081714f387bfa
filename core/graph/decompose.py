"""Taking a functional graph further apart after it was recorded: it is run once more, with a decomposition table.

Decomposing the recorded joint graph, and not while it is recorded, keeps forward and backward coherent: autograd saw
the whole operators, so no forward is replaced by one whose auxiliary results its backward would not understand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from .finish import close_graph
from .functionalize import SYMBOLIC, Functionalizer
from .geometry import hint, is_dense, same_geometry
from .node_memory import owns_memory
from .recorder import AtenRecord, new_recorder
from .subgraph_call import subgraph_call
from .tree import map_tree

_KEPT_WHOLE = ("attention", "dropout", "bernoulli", "rnn", "lstm", "gru", "linspace")
"""Parts of operator names that no named set takes apart: attention's auxiliary result would change its meaning for the
backward, random operators draw as eager's do, recurrent networks have fused kernels, and steps between integers are
rounded otherwise than the operator rounds them."""


@functools.cache
def named_table(name: str) -> Mapping[Any, Callable[..., Any]]:
    """The decompositions that a backend asks for by name. "core": torch's table for the core operator set."""
    if name != "core":
        raise ValueError(f"there is no set of decompositions named {name!r}; the one there is: 'core'")
    return {
        op: function
        for op, function in torch_compat.core_decompositions().items()
        if isinstance(op, torch._ops.OpOverload) and not _kept_whole(op)
    }


def _kept_whole(op: Any) -> bool:
    return op._schema.is_mutable or any(part in op._schema.name for part in _KEPT_WHOLE)


def decompose(
    module: fx.GraphModule, fake_mode: Any, shape_env: Any, table: Mapping[Any, Callable[..., Any]]
) -> fx.GraphModule:
    """The same functional graph in operators that are not in `table`. Placeholders and outputs keep their places.

    Raises RecorderRefused where a decomposition does what functionalisation does not handle.
    """
    nodes = list(module.graph.nodes)
    if not any(node.target in table for node in nodes if node.op == "call_function"):
        return module
    record = AtenRecord(fake_mode, shape_env, decompositions=table, higher_order=subgraph_call)
    results = _run(module, nodes, record)
    functionalizer = Functionalizer(record, results)
    for call in record.calls:
        functionalizer.process(call)
    functionalizer.emitter.provenance = {}
    close_graph(functionalizer, tuple(_result(functionalizer, value) for value in results))
    _keep_names(nodes, functionalizer.emitter.graph)
    return functionalizer.emitter.module(type(module).__name__)


def _run(module: fx.GraphModule, nodes: list[fx.Node], record: AtenRecord) -> tuple[Any, ...]:
    """Run the graph on fresh fakes under a recorder; each new call keeps the provenance of its node."""
    env: dict[fx.Node, Any] = {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch_compat.without_autocast())
        stack.enter_context(record.fake_mode)
        for node in nodes:
            if node.op == "placeholder":
                env[node] = _fresh(node.meta["val"])
                record.add_input(env[node])
        stack.enter_context(new_recorder(record))
        for node in nodes:
            if node.op == "output":
                results: Any = node.args[0]
                return tuple(env[value] if isinstance(value, fx.Node) else value for value in results)
            if node.op == "placeholder":
                continue
            mark = len(record.calls)
            env[node] = _value(module, node, env)
            if node.target in record.decompositions:
                env[node] = _as_recorded(env[node], node.meta.get("val"))
            for call in record.calls[mark:]:
                call.node, call.line = node.meta.get("torch_node"), node.meta.get("user_line")
                call.backward = bool(node.meta.get("backward"))
    raise ValueError("the graph has no output node")


def _value(module: fx.GraphModule, node: fx.Node, env: dict[fx.Node, Any]) -> Any:
    target: Any = node.target
    if node.op == "get_attr":
        held = getattr(module, target)
        return torch.ops.aten.lift_fresh.default(held) if isinstance(held, torch.Tensor) else held
    args, kwargs = map_tree(lambda leaf: env[leaf] if isinstance(leaf, fx.Node) else leaf, (node.args, node.kwargs))
    return target(*args, **kwargs)


def _as_recorded(value: Any, val: Any) -> Any:
    """What a decomposition gave, in the dtype and the order in memory of the operator's own result `val`."""
    if isinstance(value, (tuple, list)) and isinstance(val, (tuple, list)):
        return tuple(map(_as_recorded, value, val)) if len(value) == len(val) else value
    if not isinstance(value, torch.Tensor) or not isinstance(val, torch.Tensor) or value.ndim != val.ndim:
        return value
    if value.dtype is not val.dtype:
        value = torch.ops.aten._to_copy.default(value, dtype=val.dtype)
    if value.layout is not torch.strided or same_geometry(value, val) or not is_dense(val):
        return value
    order = sorted(range(val.ndim), key=lambda dim: (-hint(val.stride(dim)), dim))
    packed = torch.ops.aten.clone.default(value.permute(order), memory_format=torch.contiguous_format)
    return packed.permute([order.index(dim) for dim in range(val.ndim)])


def _fresh(val: Any) -> Any:
    """A fake like `val` with memory and history of its own."""
    if not isinstance(val, torch.Tensor):
        return val
    return torch.empty_strided(val.shape, val.stride(), dtype=val.dtype, device=val.device)


def _result(functionalizer: Functionalizer, value: Any) -> Any:
    """The node of a result, with the strides it had and memory of its own."""
    if isinstance(value, SYMBOLIC):
        return functionalizer.number(value)
    if not isinstance(value, torch.Tensor):
        return value
    memory, alias = functionalizer.memory, functionalizer.alias_of(value)
    node = memory.restride(memory.read(alias), alias.val)
    if node.op == "call_function" and not owns_memory(node):
        node = memory.restride(functionalizer.emitter.emit(torch.ops.aten.clone.default, (node,)), alias.val)
    return node


def _keep_names(before: list[fx.Node], graph: fx.Graph) -> None:
    """Placeholders keep their names: the backward's are found by them."""
    old = [node for node in before if node.op == "placeholder"]
    new = [node for node in graph.nodes if node.op == "placeholder"]
    for source, target in zip(old, new, strict=True):
        target.name = target.target = source.name
