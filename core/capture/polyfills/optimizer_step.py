"""In place of what torch wraps around the steps of its optimizers, and of the C function that sorts their tensors."""

from __future__ import annotations

from typing import Any

import torch


def run_step(step: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """A step with gradients on or off as the optimizer asks for; the wrapper of torch has graph breaks besides."""
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(optimizer.defaults["differentiable"])
        return step(optimizer, *args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


def by_kind(lists: Any, with_indices: bool = False) -> Any:
    """Lists of tensors that belong together, sorted by device and dtype of the tensors in the first list.

    (device, dtype) -> (the lists with the members of the group only, their places in the lists given).
    """
    groups: Any = {}
    for at, first in enumerate(lists[0]):
        kind = (first.device, first.dtype)
        if kind not in groups:
            groups[kind] = ([[] for _ in lists], [])
        members, places = groups[kind]
        for chosen, tensors in zip(members, lists):
            if tensors:
                chosen.append(tensors[at])
        if with_indices:
            places.append(at)
    return groups
