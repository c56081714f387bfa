"""Which graphs can't be captured, told from their nodes: work that waits for the device, looks at values, or happens
on the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx

from ...errors import UserLine
from ...graph.clone_mutate import called_operator
from ...graph.kernel_operators import NAMESPACE as KERNELS
from ...torch_compat import HigherOrderOperator
from ..partition_support import user_line

SCALAR_MAKERS = ("full", "scalar_tensor", "lift_fresh_copy", "clone", "_to_copy", "detach", "alias")
"""Calls whose result on the CPU is a constant of the graph, where it is one number made of constants."""
WAITING = (
    "_local_scalar_dense", "item", "nonzero", "nonzero_static", "masked_select", "equal", "is_nonzero", "bincount",
    "histc", "_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "_ctc_loss",
    "_use_cudnn_ctc_loss", "_cudnn_ctc_loss", "_pin_memory", "pin_memory", "record_stream", "_pack_padded_sequence",
    "geqrf", "ormqr", "cholesky", "cholesky_inverse", "cholesky_solve", "lu_solve", "lu_unpack", "logdet",
    "triangular_solve", "_linalg_check_errors", "_linalg_det", "_linalg_eigh", "_linalg_eigvals", "_linalg_slogdet",
    "_linalg_solve_ex", "_linalg_svd", "linalg_cholesky_ex", "linalg_eig", "linalg_householder_product",
    "linalg_inv_ex", "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_lstsq", "linalg_lu", "linalg_lu_factor_ex",
    "linalg_lu_solve", "linalg_matrix_exp", "linalg_pinv", "linalg_qr", "linalg_solve_triangular",
)  # fmt: skip
"""Operators of ATen whose kernels read results on the host, or may: they wait for the device."""
_WAITING = frozenset(WAITING)
_INDEXED = frozenset(("index", "index_put", "_unsafe_index", "_unsafe_index_put"))
_UNSAFE_TAGS = ("cudagraph_unsafe", "data_dependent_output", "dynamic_output_shape")
_OWN_NAMESPACES = frozenset(("aten", "prims", KERNELS))


def first_unsafe(graph: fx.GraphModule, device: torch.device, *, custom: bool) -> tuple[str, UserLine | None]:
    """(why a graph can't be captured, the user's line), ("", None) where nothing is against it.

    custom: operators of other libraries are captured too.
    """
    constants: set[fx.Node] = set()
    for node in graph.graph.nodes:
        reason = _reason(node, device, constants, custom)
        if reason:
            return reason, user_line(node)
    return "", None


def _reason(node: fx.Node, device: torch.device, constants: set[fx.Node], custom: bool) -> str:
    if node.op == "output":
        return ""
    scalar = _is_constant_scalar(node, constants)
    reason = _of_call(node, custom) if node.op == "call_function" else ""
    if not reason and not scalar:
        reason = _of_scalars(node, constants)
    if reason:
        return reason
    for fake in _values(node):
        if fake.layout is not torch.strided:
            return f"{node.name} has the layout {fake.layout}"
        if _elsewhere(fake.device, device) and not scalar:
            return f"{node.name} is on {fake.device}, not on {device}"
    if scalar:
        constants.add(node)
    return ""


def _of_call(node: fx.Node, custom: bool) -> str:
    target: Any = called_operator(node)
    if isinstance(target, HigherOrderOperator):
        return f"{target} decides on the host what runs"
    if not hasattr(target, "_schema"):
        return ""  # getitem, arithmetic on sizes
    name = _name(target)
    if target.namespace == "aten" and name in _INDEXED:  # the tags of `index` are those it has for masks
        return f"{target} with a mask counts its elements on the host" if _by_mask(node) else ""
    if any(getattr(torch.Tag, tag, None) in target.tags for tag in _UNSAFE_TAGS):
        return f"{target} looks at values"
    if target.namespace == "aten" and (name in _WAITING or target is torch.ops.aten.repeat_interleave.Tensor):
        return f"{target} waits for the device"
    if target.namespace not in _OWN_NAMESPACES and not custom:
        return f"{target} is an operator of another library, which may do something on the host"
    return ""


def _of_scalars(node: fx.Node, constants: set[fx.Node]) -> str:
    """Numbers in tensors on the CPU are arguments of kernels for elements; everybody else copies them to the device."""
    if node.op != "call_function" or not any(operand in constants for operand in node.all_input_nodes):
        return ""
    if torch.Tag.pointwise in getattr(node.target, "tags", ()) and _name(node.target) != "where":
        return ""
    return f"{node.target} copies a number from the CPU to the device"


def _name(target: Any) -> str:
    """The operator's name, without library and overload."""
    return str(target).removeprefix("aten.").partition(".")[0]


def _by_mask(node: fx.Node) -> bool:
    indices = node.args[1]
    values = indices if isinstance(indices, (list, tuple)) else (indices,)
    fakes = [value.meta.get("val") for value in values if isinstance(value, fx.Node)]
    return any(isinstance(fake, torch.Tensor) and fake.dtype in (torch.bool, torch.uint8) for fake in fakes)


def _is_constant_scalar(node: fx.Node, constants: set[fx.Node]) -> bool:
    """A number in a tensor on the CPU that is the same on each call: kernels take it as an argument."""
    if node.op == "placeholder" or not all(operand in constants for operand in node.all_input_nodes):
        return False
    if node.op != "get_attr" and _name(node.target) not in SCALAR_MAKERS:
        return False
    return all(fake.dim() == 0 and fake.device.type == "cpu" for fake in _values(node))


def _values(node: fx.Node) -> list[torch.Tensor]:
    """The results of a node; a constant of the module itself where nothing stands for it."""
    if node.op == "get_attr" and "val" not in node.meta:
        value = getattr(node.graph.owning_module, str(node.target), None)
        return [value] if isinstance(value, torch.Tensor) else []
    return list(_fakes(node))


def _fakes(node: fx.Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, torch.Tensor):
            yield item


def _elsewhere(found: torch.device, wanted: torch.device) -> bool:
    return found.type != wanted.type or (found.index is not None and found.index != wanted.index)
