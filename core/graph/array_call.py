"""Calls of NumPy functions as nodes of a graph: functions over tensors, made of torch's layer of NumPy functions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

from ..torch_compat.array_layer import array_layer, as_layer_array, tensor_of
from .tree import map_tree


def _array(leaf: Any) -> Any:
    return as_layer_array(leaf) if isinstance(leaf, torch.Tensor) else leaf


def _plain(leaf: Any) -> Any:
    """The tensor of a result; NumPy knows no lazy conjugation or negation."""
    tensor = tensor_of(leaf)
    return tensor.resolve_conj().resolve_neg() if isinstance(tensor, torch.Tensor) else tensor


def _own(leaf: Any) -> Any:
    tensor = _plain(leaf)
    return tensor.clone() if isinstance(tensor, torch.Tensor) else tensor


@functools.cache
def array_call(name: str, method: bool, own: bool) -> Callable[..., Any]:
    """The function or method `name` of arrays, over tensors. own: the result's memory is nobody else's."""

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = map_tree(_array, (args, kwargs))
        owner = args[0] if method else array_layer()
        result = operator.attrgetter(name)(owner)(*args[method:], **kwargs)
        return map_tree(_own if own else _plain, result)

    call.__name__ = call.__qualname__ = f"numpy_{name.strip('_').replace('.', '_')}"
    return call
