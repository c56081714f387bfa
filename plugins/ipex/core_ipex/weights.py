"""Weights of fusions that are known while compiling: normalizations folded in, the layout that the kernel reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx as fx

from . import native
from .fusions import Fusion
from .patterns import fake, known
from .torch_compat import packed_convolution, packed_linear


def prepared(fusion: Fusion, constants: Mapping[fx.Node, torch.Tensor]) -> tuple[Any, torch.Tensor | None] | None:
    """The packed weight and the bias; where the fusion is native, both in one, as the extension's kernels take them.

    None where folding would leave what is finite: the values are read as before.
    """
    weight = constants[fusion.weight].detach()
    bias = constants[fusion.bias].detach() if fusion.bias in constants else None
    if fusion.norm is not None:
        folded = _folded(weight, bias, fusion.norm, constants)
        if folded is None:
            return None
        weight, bias = folded
    rows = fake(fusion.values).shape
    sizes = list(rows) if known(rows) else None
    with torch.no_grad():
        if fusion.native:
            return _native(fusion, weight.contiguous(), bias, sizes), None
        if fusion.is_convolution:
            return packed_convolution(weight.contiguous(), fusion.geometry, sizes), bias
        return packed_linear(weight.contiguous(), None if sizes is None else sizes[0]), bias


def _native(fusion: Fusion, weight: torch.Tensor, bias: torch.Tensor | None, sizes: list[int] | None) -> Any:
    bias = None if bias is None else bias.contiguous()
    if fusion.is_convolution:
        return native.convolution(weight, bias, fusion.geometry, sizes, fusion.unary, fusion.algorithm)
    return native.linear(weight, bias, None if sizes is None else sizes[0])


def _folded(
    weight: torch.Tensor, bias: torch.Tensor | None, norm: fx.Node, constants: Mapping[fx.Node, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    scale, shift, mean, variance = (None if one is None else constants[one].detach().double() for one in norm.args[1:5])
    factor = (variance + norm.args[7]).rsqrt()
    if scale is not None:
        factor = factor * scale
    moved = (bias.double() if bias is not None else 0.0) - mean
    offset = moved * factor + (shift if shift is not None else 0.0)
    narrow = (weight.double() * factor[:, None, None, None]).float()
    offset = offset.float()
    if not (narrow.isfinite().all() and offset.isfinite().all()):
        return None
    return narrow, offset
