"""Inference mode inside a graph: entered for real while the code under it is captured, and by nodes of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from ..torch_compat import training

ENTER_INFERENCE, EXIT_INFERENCE = training.inference_mode_functions()


class InferenceRegion:
    """A region that the code has entered: the node that enters it in the graph, and the mode entered for real."""

    def __init__(self, node: fx.Node, mode: Any) -> None:
        self.node = node
        self._mode = mode

    def leave(self) -> None:
        """Put the mode back."""
        EXIT_INFERENCE(self._mode)


def in_mode_of_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in the mode that its tensors were made in: fakes of inference tensors are such, and no others."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        wanted = any(_is_inference(arg) for arg in args)
        if torch.is_inference_mode_enabled() == wanted:
            return function(*args, **kwargs)
        with torch.inference_mode(wanted):
            return function(*args, **kwargs)

    return run


def _is_inference(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_inference()
