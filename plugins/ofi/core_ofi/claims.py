"""Which nodes TorchScript computes as torch does."""

from __future__ import annotations

import operator

import torch
import torch.fx as fx

from .torch_compat import typed

aten = torch.ops.aten
TRACED = (torch.float32, torch.int64, torch.bool)
# On oneDNN's own tensors, into which convolutions with frozen weights give their results, these lose NaN.
LOSES_NAN = frozenset((aten.sigmoid.default, aten.hardtanh.default, aten.hardswish.default, aten.hardsigmoid.default))

_DIVISIONS = frozenset(
    overload
    for packet in (aten.div, aten.floor_divide, aten.remainder, aten.fmod)
    for overload in (getattr(packet, name) for name in packet.overloads())
)


def is_aten(node: fx.Node) -> bool:
    """Whether a node is a call of an ATen operator, or takes one of the results of such a call."""
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_aten(node.args[0])
    return getattr(node.target, "namespace", "") == "aten"


def refusal(node: fx.Node) -> str:
    """Why a node is not traced, or ""."""
    target = node.target
    if target is operator.getitem and is_aten(node):
        return refusal(node.args[0])  # type: ignore[arg-type]
    if not is_aten(node):
        return "TorchScript is given ATen operators only"
    if torch.Tag.nondeterministic_seeded in target.tags or torch.Tag.data_dependent_output in target.tags:
        return "random numbers and values that decide are not traced"
    if target is aten.native_batch_norm.default and (node.args[5] or any(_is_statistic(user) for user in node.users)):
        return "statistics of the batch are not computed here"
    if target is aten.convolution.default and node.args[6]:
        return "transposed convolutions are left to the fallback"
    for kind, value in typed(target, node.args, node.kwargs):
        if kind.endswith(("number", "number]")) and type(value) not in (int, float, type(None)):
            return "TorchScript takes whole numbers and floats as numbers, no others"
        if kind == "Tensor" and type(value) is bool:
            return "TorchScript takes no truth value for a tensor"
    if target in _DIVISIONS and not _floating(node):
        return "whole numbers are not divided: to trace it is to run it, on values that may be zero"
    for value in (node, *node.all_input_nodes):
        fake = value.meta.get("val")
        for one in fake if isinstance(fake, (tuple, list)) else (fake,):
            if not isinstance(one, (torch.Tensor, type(None))):
                return "numbers that are known only at run time are not traced"
            if one is not None and one.dtype not in TRACED:
                return f"values of {str(one.dtype).removeprefix('torch.')} are not traced"
    return ""


def refused_when_frozen(node: fx.Node) -> str:
    """Why a node is not taken beside weights that are constants, or ""."""
    if node.target in LOSES_NAN:
        return "its form on oneDNN's tensors loses NaN"
    fakes = [value.meta.get("val") for value in (node, *node.all_input_nodes)]
    if any(isinstance(fake, torch.Tensor) and 0 in fake.shape for fake in fakes):
        return "tensors without elements are left to the fallback"
    return ""


def _is_statistic(getitem: fx.Node) -> bool:
    return bool(getitem.users) and getitem.args[1] != 0


def _floating(node: fx.Node) -> bool:
    fake = node.meta.get("val")
    return isinstance(fake, torch.Tensor) and fake.is_floating_point()
