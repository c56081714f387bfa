"""Which nodes are worth a oneDNN kernel: products and convolutions, and what stands beside them.

Everything else of ATen can be called as well, which is no more than eager does: such nodes are yielded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx

aten = torch.ops.aten
CONVOLUTION = aten.convolution.default
PRODUCTS = (aten.mm.default, aten.addmm.default)
RESHAPES = (aten.view.default, aten._unsafe_view.default)
RELU = aten.relu.default
ADD = aten.add.Tensor
BATCH_NORM = aten.native_batch_norm.default
UNARY = {
    aten.gelu.default: "gelu",
    aten.silu.default: "swish",
    aten.tanh.default: "tanh",
    aten.sigmoid.default: "sigmoid",
}
POINTWISE = frozenset((RELU, ADD, *UNARY))
BESIDE_CONVOLUTIONS = POINTWISE | {
    BATCH_NORM,
    aten.max_pool2d_with_indices.default,
    aten.avg_pool2d.default,
    aten._adaptive_avg_pool2d.default,
    aten.mean.dim,
}
"""These give the same values in any layout of memory, and are taken where they continue a chain of convolutions."""
KERNEL_DTYPES = (torch.float32, torch.bfloat16)
_FIXED_TO_MEMORY = ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter")
_OTHER_DTYPE = "oneDNN is given float32 and bfloat16"
_REACH = 12


def fake(value: Any) -> torch.Tensor | None:
    """The tensor that a node stands for, None for numbers, tuples and what is no node."""
    found = value.meta.get("val") if isinstance(value, fx.Node) else None
    return found if isinstance(found, torch.Tensor) else None


def refusal(node: fx.Node) -> str:
    """Why a node is never taken, or ""."""
    if getattr(node.target, "namespace", "") != "aten":
        return "ATen's operators alone are called"
    name = node.target.name().removeprefix("aten::").partition(".")[0]
    if name in _FIXED_TO_MEMORY and memory_order(fake(source(node))) is None:
        return "its result depends on the memory of its operand, whose order is no common one"
    return ""


def memory_order(tensor: torch.Tensor | None) -> torch.memory_format | None:
    """The order in memory that a graph gives a tensor without gaps; nothing is assumed about symbols."""
    if tensor is None:
        return None
    axes = list(range(tensor.dim()))
    for order, form in ((axes, torch.contiguous_format), ([0, *axes[2:], *axes[1:2]], torch.channels_last)):
        if form is torch.channels_last and len(axes) != 4:
            continue
        step: Any = 1
        for axis in reversed(order):
            size = tensor.shape[axis]
            if str(size) != "1" and str(tensor.stride(axis)) != str(step):
                break
            step = step * size
        else:
            return form
    return None


def yielded(node: fx.Node, frozen: bool) -> str:
    """Why another backend has a node better, or "". frozen: weights are known while compiling."""
    target = node.target
    if target in PRODUCTS:
        return _product_refusal(node)
    if target is CONVOLUTION:
        return convolution_refusal(node, frozen)
    if is_turn(node) and any(user.target in PRODUCTS and weight_of(user) is node for user in node.users):
        return ""
    if target in RESHAPES and (source(node).target in PRODUCTS or any(_feeds(node, user) for user in node.users)):
        return ""
    if target in BESIDE_CONVOLUTIONS and _continues_convolutions(node, frozen):
        return _training_batch_norm(node)
    if target in POINTWISE and any(_is_product(value) for value in node.all_input_nodes):
        return ""
    return "no product or convolution stands beside it that oneDNN could compute it with"


def is_turn(node: Any) -> bool:
    """A matrix read with its axes changed over."""
    if not isinstance(node, fx.Node):
        return False
    if node.target is aten.t.default:
        return True
    value = fake(node)
    if value is None or value.dim() != 2:
        return False
    if node.target is aten.permute.default:
        return [axis % 2 for axis in node.args[1]] == [1, 0]
    return node.target is aten.transpose.int and node.args[1] % 2 != node.args[2] % 2


def weight_of(product: fx.Node) -> Any:
    """The right operand of a product."""
    return product.args[2 if product.target is aten.addmm.default else 1]


def source(node: fx.Node) -> Any:
    """The first operand."""
    return node.args[0]


def known(sizes: Any) -> bool:
    """All sizes are fixed, and none is zero."""
    return all(isinstance(size, int) and size > 0 for size in sizes)


def _feeds(node: fx.Node, user: fx.Node) -> bool:
    return user.target in PRODUCTS and user.args[1 if user.target is aten.addmm.default else 0] is node


def _is_product(value: fx.Node) -> bool:
    if value.target in RESHAPES:
        value = source(value)
    return isinstance(value, fx.Node) and value.target in PRODUCTS


def _product_refusal(node: fx.Node) -> str:
    result = fake(node)
    return "" if result is not None and result.dtype in KERNEL_DTYPES else _OTHER_DTYPE


def convolution_refusal(node: fx.Node, frozen: bool) -> str:
    """Why a convolution is not oneDNN's, or ""."""
    values, weight = fake(source(node)), fake(node.args[1])
    if node.args[6]:
        return "transposed convolutions are not fused"
    if values is None or values.dtype not in KERNEL_DTYPES:
        return _OTHER_DTYPE
    if values.dim() != 4:
        return "only convolutions over two dimensions are fused"
    if not known(weight.shape):
        return "the sizes of its weight are not fixed, or it has no elements"
    if not frozen and weight.numel() > max(_least_size(values), _least_size(fake(node))):
        return "its weight, put in order on each call where it is not frozen, is larger than its image"
    settings = (*node.args[3], *node.args[4], *node.args[5], node.args[8])
    return "" if all(isinstance(one, int) for one in settings) else "its stride, padding or dilation is not fixed"


def _least_size(tensor: torch.Tensor | None) -> int:
    """The number of elements of a tensor whose open sizes are 1."""
    return math.prod(size for size in tensor.shape if isinstance(size, int)) if tensor is not None else 0


def _training_batch_norm(node: fx.Node) -> str:
    if node.target is BATCH_NORM and node.args[5]:
        return "statistics of the batch are not computed here"
    return ""


def _continues_convolutions(node: fx.Node, frozen: bool) -> bool:
    """Whether a convolution comes before it with nothing between but what is taken as well."""
    if not all(_is_image(value) for value in node.all_input_nodes[:1]):
        return False
    seen, waiting = {node}, list(_before(node))
    while waiting and len(seen) <= _REACH:
        value = waiting.pop()
        if value.target is CONVOLUTION and not convolution_refusal(value, frozen):
            return True
        if value.target in BESIDE_CONVOLUTIONS and value not in seen:
            seen.add(value)
            waiting += _before(value)
    return False


def _before(node: fx.Node) -> Iterator[fx.Node]:
    operands = node.all_input_nodes if node.target is ADD else node.all_input_nodes[:1]
    for value in operands:
        yield source(value) if "getitem" in str(value.target) else value


def _is_image(value: fx.Node) -> bool:
    tensor = fake(value)
    return tensor is not None and tensor.dim() == 4
