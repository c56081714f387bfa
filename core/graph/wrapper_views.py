"""Outputs that are views of wrapper tensors and take gradients: the program's own calls take them again.

What autograd knows of a view is its base, so a view put together of compiled parts would be another tensor to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import RecorderRefused
from .captured import CapturedGraph


@dataclass(frozen=True, eq=False)
class WrapperView:
    """take(base) is the view. base: the input (from_input) or the output of the capture that it is taken of."""

    base: int
    from_input: bool
    take: Callable[[Any], Any]


def view_of(captured: CapturedGraph, at: int) -> WrapperView | None:
    """How output `at`, a wrapper, is taken of an input or of another output; None where it is a tensor of its own.

    Raises RecorderRefused where the calls between the two can't be made again.
    """
    fake = captured.outputs[at]
    if not (captured.needs_grad and fake.requires_grad and fake._is_view()):
        return None
    base = fake._base
    index = next((item.index for item in captured.inputs if item.fake is base), None)
    from_input = index is not None
    if index is None:
        index = next((other for other, made in enumerate(captured.outputs) if made is base), None)
    if index is None:
        return None
    return WrapperView(index, from_input, _steps(captured, at, base))


def _steps(captured: CapturedGraph, at: int, base: Any) -> Callable[[Any], Any]:
    nodes = list(captured.module.graph.nodes)
    if any(node.op == "call_function" and _switches_gradients(node.target) for node in nodes):
        raise _not_again("gradients are switched in the graph")
    output = next(node for node in nodes if node.op == "output")
    path: list[fx.Node] = []
    node = output.args[0][at]
    while node.meta.get("fake") is not base:
        path.append(node)
        before = node.all_input_nodes
        if len(before) != 1 or node.op not in ("call_function", "call_method"):
            raise _not_again("it depends on more than its base")
        node = before[0]
    graph = fx.Graph()
    copies = {node: graph.placeholder("base")}
    for step in reversed(path):
        copies[step] = graph.node_copy(step, copies.__getitem__)
    graph.output(copies[path[0]] if path else copies[node])
    forward: Callable[[Any], Any] = fx.GraphModule(captured.module, graph, "View").forward
    return forward


def _switches_gradients(target: Any) -> bool:
    return getattr(target, "__name__", "") == "_set_grad_enabled" and isinstance(target, type(torch.sin))


def _not_again(reason: str) -> RecorderRefused:
    return RecorderRefused(
        f"a view of a wrapper tensor is returned that takes gradients: {reason}", instead="the graph runs as captured"
    )
