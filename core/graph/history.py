"""The autograd history of tensors, some of which have lost it.

The results of unbind, split and chunk are views of several outputs. Once no_grad code has written to their base, their
history is an error: a program may hold and return them, but whoever asks for the history meets it.
"""

from __future__ import annotations

import torch


def history(tensor: torch.Tensor) -> object:
    """The autograd node of a tensor, None where it has none, the error where that is lost."""
    try:
        return tensor.grad_fn
    except (RuntimeError, IndexError) as error:  # IndexError: its base has lost the dimensions since
        return error.with_traceback(None)


def has_lost_history(tensor: torch.Tensor) -> bool:
    """True for a view of several outputs whose base was written to without gradients, or one of a base that has other
    dimensions by now."""
    return tensor.requires_grad and tensor._is_view() and isinstance(history(tensor), Exception)


def is_leaf(tensor: torch.Tensor) -> bool:
    """tensor.is_leaf; False where the history is lost."""
    return not tensor.requires_grad or history(tensor) is None
