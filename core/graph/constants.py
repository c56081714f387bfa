"""Constants among the arguments of graph nodes: which can be written into the generated code of a graph."""

from __future__ import annotations

import math
from typing import Any

import torch

CONSTANT_TYPES = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(Ellipsis),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    type,
)
"""Kinds of values that a call may return beside tensors and symbolic numbers."""


def writable(leaf: Any) -> bool:
    """True when fx can print the value as source; other objects are held by the graph module as attributes."""
    kind = type(leaf)
    if kind is complex:
        return math.isfinite(leaf.real) and math.isfinite(leaf.imag)
    return (
        leaf is None
        or leaf is Ellipsis
        or kind
        in (
            bool,
            int,
            float,
            str,
            bytes,
            torch.dtype,
            torch.device,
            torch.layout,
            torch.memory_format,
            torch.Size,
        )
    )
