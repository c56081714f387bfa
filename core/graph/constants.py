"""Constants among the arguments of graph nodes: which can be written into the generated code of a graph."""

from __future__ import annotations

import keyword
import math
import operator
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


def with_keywords(target: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """A call whose keywords are no names in Python code (`random_(**{"from": 1})`); a string names a method."""
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **keywords)
    return target(*args, **keywords)


def spelled_out(
    kind: str, target: Any, args: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[str, Any, tuple[Any, ...], dict[str, Any]]:
    """The parts of a node from which code can be generated: Python's own words can't be keywords there.

    A minus binds less than the power that fx writes behind it: `-2 ** x` is `-(2 ** x)`.
    """
    if target is operator.pow and is_negative(args[0]):
        target = pow
    if not any(keyword.iskeyword(name) for name in keywords):
        return kind, target, args, keywords
    return "call_function", with_keywords, (target, args, keywords), {}


def is_negative(value: Any) -> bool:
    """True for numbers whose text begins with a minus."""
    return isinstance(value, (int, float)) and (value < 0 or (value == 0 and math.copysign(1.0, value) < 0))


def has_text(target: Any) -> bool:
    """False for operators whose overload is named by one of Python's own words (`random_.from`)."""
    return not keyword.iskeyword(getattr(target, "_overloadname", ""))
