"""Calls whose results nobody reads, and that may raise by what their operands hold: eager raises there all the same.

Enters: the nodes of a functional graph and the results that lead out of it. Leaves: further results that keep those
calls alive. A backend sees one result more, which core lets go; dead code that can't raise is dropped as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx

from .clone_mutate import clone_mutate
from .emitter import NodeEmitter

MAY_RAISE = "may_raise"
"""Of a node's meta: True for nodes of a call that raises for some values of its operands."""


def has_effect(node: fx.Node) -> bool:
    """True for a node that stays although nobody uses it: random ones, as they move the generator; those without
    results and operators of other libraries, of whose effects nothing is known."""
    target: Any = node.target
    if node.meta.get("random") or target is clone_mutate:
        return True
    schema = getattr(target, "_schema", None)
    return schema is not None and (not schema.returns or target.namespace not in ("aten", "prims"))


def unread_calls(emitter: NodeEmitter, results: Iterable[fx.Node]) -> list[fx.Node]:
    """The tensors that the graph has to return besides `results` so that each call is made that may raise."""
    read = set(results)
    found = []
    for node in reversed(emitter.graph.nodes):
        if node.op != "call_function":
            continue
        if node not in read and not has_effect(node):
            if not (node.meta.get(MAY_RAISE) and _is_call_itself(node)):
                continue
            found.append(node)
        read.update(node.all_input_nodes)
    return [value for value in (_tensor(emitter, node) for node in reversed(found)) if value is not None]


def _is_call_itself(node: fx.Node) -> bool:
    """False for what stands around a call: parts of its result, copies into what it writes to."""
    schema = getattr(node.target, "_schema", None)
    called = node.meta["original_aten"]._schema.name
    return schema is not None and schema.name.rstrip("_") == called.rstrip("_")


def _tensor(emitter: NodeEmitter, node: fx.Node) -> fx.Node | None:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return node
    parts = value if isinstance(value, (tuple, list)) else ()
    at = next((at for at, part in enumerate(parts) if isinstance(part, torch.Tensor)), None)
    return None if at is None else emitter.item(node, at)
