"""The table of converters, and the decorator that fills it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Converter = Callable[..., Any]
_F = TypeVar("_F", bound=Converter)

CONVERTERS: dict[str, Converter] = {}
"""Operator as `aten.add.Tensor` -> converter. Called as `converter(builder, *args, **kwargs)` with the node's
arguments, its tensors and symbolic numbers as Values; returns a Value or a tuple, with None for what nobody reads."""


def converts(*operators: str) -> Callable[[_F], _F]:
    """Register a function as the converter of `operators`."""

    def register(function: _F) -> _F:
        for operator in operators:
            if operator in CONVERTERS:
                raise ValueError(f"{operator} has two converters")
            CONVERTERS[operator] = function
        return function

    return register


def operator_name(target: Any) -> str:
    """The key of an fx node's target: `aten.add.Tensor`, `operator.mul` for the arithmetic of symbolic numbers,
    `clone_mutate` for core's call of an operator that writes, on clones."""
    if getattr(target, "__name__", "") == "clone_mutate":
        return "clone_mutate"
    module = getattr(target, "__module__", "")
    if module in ("_operator", "math"):
        return f"{module.lstrip('_')}.{target.__name__}"
    return str(target)


def load_converters() -> dict[str, Converter]:
    """The whole table: importing the families fills it."""
    from . import ops  # noqa: F401

    return CONVERTERS
