"""Turns a graph into beads: each value is a list of Python floats with a shape, each node a function of such lists."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.fx as fx

ATEN = torch.ops.aten
FLOATS = (torch.float32, torch.float64)


def _pairs(a, b):
    n = max(len(a) if isinstance(a, list) else 1, len(b) if isinstance(b, list) else 1)
    left = a if isinstance(a, list) else [a] * n
    right = b if isinstance(b, list) else [b] * n
    return zip(left, right)


def _add(node, a, b, alpha=1):
    return [x + alpha * y for x, y in _pairs(a, b)]


def _sub(node, a, b, alpha=1):
    return [x - alpha * y for x, y in _pairs(a, b)]


def _mul(node, a, b):
    return [x * y for x, y in _pairs(a, b)]


def _neg(node, a):
    return [-x for x in a]


def _relu(node, a):
    return [0.0 if x < 0 else x for x in a]


def _sum(node, a):
    return [math.fsum(a) if all(map(math.isfinite, a)) else sum(a)]


def _mm(node, a, b):
    rows, inner = node.args[0].meta["val"].shape
    columns = node.args[1].meta["val"].shape[1]
    return [
        sum(a[i * inner + k] * b[k * columns + j] for k in range(inner)) for i in range(rows) for j in range(columns)
    ]


TABLE = {
    ATEN.add.Tensor: _add,
    ATEN.sub.Tensor: _sub,
    ATEN.mul.Tensor: _mul,
    ATEN.neg.default: _neg,
    ATEN.relu.default: _relu,
    ATEN.sum.default: _sum,
    ATEN.mm.default: _mm,
}


def refusal(node: fx.Node, most: int) -> str:
    """Why this node can't be laid out in beads, or an empty text."""
    if node.target not in TABLE:
        return f"{node.target} has no beads"
    values = [node.meta["val"], *(each.meta["val"] for each in node.all_input_nodes)]
    for value in values:
        if not isinstance(value, torch.Tensor) or value.dtype not in FLOATS or value.dtype != values[0].dtype:
            return "beads are float32 or float64, one of them at a time"
        if value.numel() > most:
            return f"more than {most} beads"
    if any(isinstance(each, complex) for each in (*node.args, *node.kwargs.values())):
        return "beads are real"
    if node.target in (ATEN.add.Tensor, ATEN.sub.Tensor, ATEN.mul.Tensor):
        if any(value.shape != values[0].shape for value in values):
            return "beads are not broadcast"
    return ""


def is_library(target) -> bool:
    """Every other operator of ATen is a call of torch's own."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace == "aten" or target.__module__ == "_operator"


class Abacus:
    """The callable: inputs in the graph's order, a tuple of its outputs."""

    def __init__(self, graph: fx.GraphModule, native: set[str]) -> None:
        self.native = native
        nodes = list(graph.graph.nodes)
        self.inputs = [node for node in nodes if node.op == "placeholder"]
        self.constants = {node: getattr(graph, node.target) for node in nodes if node.op == "get_attr"}
        self.calls = [node for node in nodes if node.op == "call_function"]
        self.outputs = nodes[-1].args[0]

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        made: dict[fx.Node, Any] = dict(zip(self.inputs, tensors, strict=True)) | self.constants
        for node in self.calls:
            if node.name not in self.native:
                read = made.__getitem__
                made[node] = node.target(*fx.node.map_arg(node.args, read), **fx.node.map_arg(node.kwargs, read))
                continue
            beads = [made[v].reshape(-1).tolist() if isinstance(v, fx.Node) else v for v in node.args]
            like = node.meta["val"]
            # laying the beads down rounds them to the type
            made[node] = torch.tensor(TABLE[node.target](node, *beads, **node.kwargs), dtype=like.dtype)
            made[node] = made[node].reshape(like.shape)
        return tuple(fx.node.map_arg(self.outputs, made.__getitem__))
