"""Which gradients of a backward share memory with others: autograd takes each as its own and adds to it in place."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from .partition import is_view, operator_name


def shared_gradients(backward: fx.GraphModule) -> list[int]:
    """Positions of results that are other views of memory which an earlier result lies in too.

    One node twice is no such case: autograd sees one tensor and copies it.
    """
    output = next(node for node in reversed(backward.graph.nodes) if node.op == "output")
    paths: dict[fx.Node, list[list[fx.Node]]] = {}
    found = []
    for at, node in enumerate(output.args[0]):
        if not isinstance(node, fx.Node):
            continue
        path = _path(node)
        others = paths.setdefault(path[0], [])
        if any(_overlap(path, other) for other in others):
            found.append(at)
        else:
            others.append(path)
    return found


def _path(node: fx.Node) -> list[fx.Node]:
    """The node and what it is a view of, the owner of the memory first."""
    path = [node]
    while is_view(path[0]) and path[0].all_input_nodes:
        path.insert(0, path[0].all_input_nodes[0])
    return path


def _overlap(first: list[fx.Node], second: list[fx.Node]) -> bool:
    """Whether two views of one memory may have elements in common."""
    if first[-1] is second[-1]:
        return False
    common = 0
    while common < min(len(first), len(second)) and first[common] is second[common]:
        common += 1
    if common == min(len(first), len(second)):
        return True
    if any(_is_expanded(node.meta.get("val")) for node in first[:common]):
        return True
    return not _are_apart(first[common], second[common])


def _is_expanded(fake: Any) -> bool:
    if not isinstance(fake, torch.Tensor) or fake.layout is not torch.strided:
        return False
    return any(isinstance(stride, int) and stride == 0 for stride in fake.stride())


def _are_apart(first: fx.Node, second: fx.Node) -> bool:
    """Whether two views of one tensor are different pieces of it."""
    if first.target is not second.target:
        return False
    if first.target is operator.getitem:
        return first.args[1] != second.args[1]
    dims = [node.args[1] if len(node.args) > 1 else 0 for node in (first, second)]
    if dims[0] != dims[1]:
        return False
    if operator_name(first) == "select":
        return isinstance(first.args[2], int) and isinstance(second.args[2], int) and first.args[2] != second.args[2]
    if operator_name(first) != "slice":
        return False
    ranges = [tuple(node.args[2:4]) for node in (first, second)]
    if not all(len(each) == 2 and all(isinstance(end, int) and end >= 0 for end in each) for each in ranges):
        return False
    (start, end), (other, other_end) = ranges
    return bool(end <= other or other_end <= start)
