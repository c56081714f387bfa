"""What a node of an ATen graph costs, roughly: the time that its arithmetic or its memory traffic takes at least.

The numbers decide only who runs a node, never what it computes. They are the same for every backend: how fast one is at
an operator, core can't know. Sizes are those of the capture.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx

from ..graph.geometry import hint
from ..graph.partition import is_number, is_view, operator_name, size_bytes

FLOPS = {"cpu": 5e10, "cuda": 2e13}
BYTES = {"cpu": 1e10, "cuda": 1e12}
"""Operations and bytes of memory a second, in float32: round figures for two cores of a server and for a mid-range GPU.

Only their ratio decides, and on the CPU it was measured: tests/cpu/measure_partition.py gave 8 to 12 GFLOP/s for a
product of 512 and 1.9 GB/s for a copy of 64 MB on a machine that was busy with other work, 4 to 6 operations a byte.
The figures for GPUs are not measured."""

LAUNCH = {"cpu": 1e-6, "cuda": 5e-6}
"""Seconds that a region of its own costs: its call, its outputs' memory. CPU: 0.1 us for a further call in generated
code, as measured, and the rest for making a tensor; CUDA: about one launch, not measured."""

DENSE = frozenset(("mm", "addmm", "bmm", "baddbmm", "linear", "convolution", "convolution_backward"))
"""Operators of which one is worth a region whatever its sizes: they are what people choose a backend for."""

_ATTENTION = "attention"


def is_dense(node: fx.Node) -> bool:
    """True for a matrix product, a convolution or an attention, and their backwards."""
    name = operator_name(node)
    return name in DENSE or _ATTENTION in name


def seconds(node: fx.Node, device: str = "cpu") -> float:
    """The least time that a node takes on a device of this kind; 0 for views and numbers."""
    if node.op != "call_function" or is_number(node) or node.target is operator.getitem or is_view(node):
        return 0.0
    flops_a_second, bytes_a_second = FLOPS.get(device, FLOPS["cuda"]), BYTES.get(device, BYTES["cuda"])
    return max(flops(node) / flops_a_second, traffic(node) / bytes_a_second)


def region_seconds(nodes: Iterable[fx.Node], device: str = "cpu") -> float:
    """The least time that some nodes take."""
    return sum(seconds(node, device) for node in nodes)


def launch_seconds(device: str) -> float:
    """What a region costs beyond its nodes."""
    return LAUNCH.get(device, LAUNCH["cuda"])


def traffic(node: fx.Node) -> int:
    """Bytes read and written: those of the operands and of the results."""
    return sum(size_bytes(operand) for operand in node.all_input_nodes) + sum(_bytes(item) for item in _tensors(node))


def flops(node: fx.Node) -> int:
    """Floating point operations: twice the multiplications of a contraction, else one an element of the result."""
    name = operator_name(node)
    if name in ("mm", "bmm", "linear"):
        return _contraction(node, node.args[0])
    if name in ("addmm", "baddbmm"):
        return _contraction(node, node.args[1])
    if name == "convolution":
        return _convolution(node.meta.get("val"), node.args[0], node.args[1], transposed=bool(node.args[6]))
    if name == "convolution_backward":
        once = _convolution(_value(node.args[0]), node.args[1], node.args[2], transposed=bool(node.args[7]))
        return once * sum(map(bool, node.args[10][:2]))  # type: ignore[index,arg-type]
    if _ATTENTION in name:
        return _attention(node) * (5 if "backward" in name else 2) // 2
    return sum(_elements(item) for item in _tensors(node))


def _contraction(node: fx.Node, left: Any) -> int:
    inner = _value(left).shape[-1] if isinstance(_value(left), torch.Tensor) and _value(left).dim() else 1
    return 2 * _elements(node.meta.get("val")) * hint(inner)


def _convolution(result: Any, given: Any, weight: Any, *, transposed: bool) -> int:
    kernel = _value(weight)
    if not isinstance(kernel, torch.Tensor):
        return 0
    each = _elements(kernel) // max(hint(kernel.shape[0]), 1)
    return 2 * _elements(_value(given) if transposed else result) * each


def _attention(node: fx.Node) -> int:
    """Two products: of the queries with the keys, and of the weights with the values."""
    tensors = [_value(operand) for operand in node.all_input_nodes]
    wide = [value for value in tensors if isinstance(value, torch.Tensor) and value.dim() >= 3]
    if len(wide) < 3:
        return 0
    query, key, value = wide[:3]
    return 2 * _elements(query) * hint(key.shape[-2]) + 2 * _elements(query) * hint(value.shape[-2])


def _tensors(node: fx.Node) -> list[Any]:
    value = node.meta.get("val")
    items = value if isinstance(value, (tuple, list)) else (value,)
    return [item for item in items if isinstance(item, torch.Tensor)]


def _value(operand: Any) -> Any:
    return operand.meta.get("val") if isinstance(operand, fx.Node) else operand


def _elements(value: Any) -> int:
    return math.prod(hint(size) for size in value.shape) if isinstance(value, torch.Tensor) else 0


def _bytes(value: Any) -> int:
    return _elements(value) * int(value.element_size())
