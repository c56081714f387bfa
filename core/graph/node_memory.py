"""Whose memory the result of a functional node lies in: its own, or that of the node it is a view of."""

from __future__ import annotations

import operator
from typing import Any

import torch.fx as fx


def view_parent(node: fx.Node) -> fx.Node | None:
    """The operand that a node's result is a view of, None for a result of its own."""
    target = node.target
    if target is operator.getitem:
        producer = node.args[0]
        assert isinstance(producer, fx.Node)
        return view_parent(producer)
    schema = getattr(target, "_schema", None)
    if schema is None:
        return None
    if not any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns):
        return None
    for argument, value in zip(schema.arguments, node.args):
        if argument.alias_info is not None and isinstance(value, fx.Node):
            return value
    return None


def memory_of(node: fx.Node) -> Any:
    """What tells whose memory a node's result lies in: the node that made it, or the placeholder or constant."""
    while node.op == "call_function":
        parent = view_parent(node)
        if parent is None:
            return node
        node = parent
    return node


def owns_memory(node: fx.Node) -> bool:
    """True when the node's result lies in memory that the node made."""
    return node.op == "call_function" and memory_of(node) is node
