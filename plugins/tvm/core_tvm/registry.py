"""The table of converters, the decorator that fills it, and the refusal that they raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Converter = Callable[..., Any]
_F = TypeVar("_F", bound=Converter)

CONVERTERS: dict[str, Converter] = {}
"""Operator as `aten.add.Tensor` -> converter. Called as `converter(kernel, *args, **kwargs)` with the node's arguments,
its tensors as Values and its symbolic numbers as Nums; returns a Value or a tuple, with None for what nobody reads."""


class Refused(Exception):
    """What has no tensor expression here that computes as torch does. The message is one sentence for the user."""


def converts(*operators: str) -> Callable[[_F], _F]:
    """Register a function as the converter of `operators`."""

    def register(function: _F) -> _F:
        for operator in operators:
            if operator in CONVERTERS:
                raise ValueError(f"{operator} has two converters")
            CONVERTERS[operator] = function
        return function

    return register


def load_converters() -> dict[str, Converter]:
    """The whole table: importing the families fills it. Imports TVM."""
    from . import ops  # noqa: F401

    return CONVERTERS
