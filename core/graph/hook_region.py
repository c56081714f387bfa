"""A hook on a tensor that the graph makes, as one node: the hook's code is a graph that runs when the gradient arrives.

The node registers the hook on whatever it is given. On fakes, where the backward is recorded, the engine runs it too,
and so the recorder finds the calls of the hook among those of the backward.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import torch_compat


class TensorHook:
    """One registration. `active` turns False when the program takes the hook away again."""

    def __init__(self) -> None:
        self.active = True
        self._handle: Any = None

    def remember(self, handle: Any) -> None:
        """Keep the registration on the fake."""
        self._handle = handle

    def remove(self) -> None:
        """No hook from here on, neither on the fake nor when the graph runs."""
        self.active = False
        if self._handle is not None:
            self._handle.remove()


def hooked(tensor: torch.Tensor, hook: TensorHook, graph: Any, free: tuple[Any, ...]) -> torch.Tensor:
    """Register `graph(gradient, *free)` on the tensor; the tensor itself is returned."""
    if hook.active and tensor.requires_grad:

        def run(gradient: torch.Tensor) -> torch.Tensor | None:
            results = graph.forward(gradient, *free)
            return results[0] if results else None

        handle = tensor.register_hook(run)
        if isinstance(tensor, torch_compat.fake_tensor_class()):
            hook.remember(handle)
    return tensor
