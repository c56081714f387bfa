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


def outside_inference(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as it runs outside of inference mode: fakes of tensors from outside are no inference tensors."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_inference_mode_enabled() or any(_is_inference(arg) for arg in args):
            return function(*args, **kwargs)
        with torch.inference_mode(False):
            return function(*args, **kwargs)

    return run


def _is_inference(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_inference()
