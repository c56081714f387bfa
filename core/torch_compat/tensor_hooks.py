"""The hooks through which autograd saves tensors (saved_tensors_hooks), as the program has set them around a call.

Those of torch's own (checkpoint, save_on_cpu) give back what they were given, so a graph may save what it needs through
them; those of the program may do anything, and count what eager saves. Checked with torch 2.13.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


def has_saved_tensor_hooks() -> bool:
    """Whether this thread saves tensors through hooks."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def saves_through_torch_itself() -> bool:
    """Whether the hooks that are set, the innermost ones, are torch's own."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and all((getattr(hook, "__module__", None) or "").startswith("torch.") for hook in hooks)


@contextlib.contextmanager
def hooks_aside(aside: bool = True) -> Iterator[None]:
    """What is saved inside passes no hooks; with False it does again, inside of the other."""
    before = torch._C._autograd._saved_tensors_hooks_set_tracing(aside)
    try:
        yield
    finally:
        torch._C._autograd._saved_tensors_hooks_set_tracing(before)


def ends_recomputation(error: BaseException) -> bool:
    """Whether it is how torch's checkpoint leaves a function that it runs again for what it saves."""
    return type(error).__module__ == "torch.utils.checkpoint" and type(error).__name__ == "_StopRecomputationError"
