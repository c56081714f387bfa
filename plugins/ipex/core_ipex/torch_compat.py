"""What is private in torch and used here: the oneDNN operators of the namespace `mkldnn`, and an overload's C function.

The schemas are those of torch 2.8 to 2.13; `missing` names what another torch lacks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

NAMES = ("_linear_pointwise", "_convolution_pointwise", "_reorder_linear_weight", "_reorder_convolution_weight")


def missing() -> str:
    """Why the fused kernels can't be had, or ""."""
    if not torch.backends.mkldnn.is_available():
        return "this build of torch has no oneDNN"
    absent = [name for name in NAMES if not hasattr(torch.ops.mkldnn, name)]
    return f"torch {torch.__version__} lacks mkldnn.{absent[0]}" if absent else ""


def has_bfloat16() -> bool:
    """Whether oneDNN computes bfloat16 on this processor (torch 2.8 to 2.13)."""
    probe = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(probe is not None and probe())


def direct(overload: Any) -> Callable[..., Any]:
    """The function behind an overload, without the Python call around it (torch 2.8 to 2.13)."""
    return getattr(overload, "_op", overload)


def linear() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """x @ weight.T + bias with a function of one value, and with a sum."""
    packet = torch.ops.mkldnn._linear_pointwise
    return direct(packet.default), direct(packet.binary)


def convolution() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A convolution with a function of one value, and with a sum."""
    packet = torch.ops.mkldnn._convolution_pointwise
    return direct(packet.default), direct(packet.binary)


def packed_linear(weight: torch.Tensor, rows: int | None) -> torch.Tensor:
    """A weight in the layout that the kernel of a product reads."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def packed_convolution(weight: torch.Tensor, geometry: tuple[Any, ...], sizes: list[int] | None) -> torch.Tensor:
    """A weight in the layout that the kernel of a convolution reads; geometry: padding, stride, dilation, groups."""
    return torch.ops.mkldnn._reorder_convolution_weight(weight, *geometry, sizes)
