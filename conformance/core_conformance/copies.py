"""Copies of arguments that keep what a program can see of them: strides, shared memory, gradients wanted."""

from __future__ import annotations

import copy
from typing import Any

import torch

from .torch_compat import tree_leaves, tree_map


class Copier:
    """Copies nested values; tensors that share memory share it in the copy too.

    dtype: where given, floating-point tensors get it (complex ones its complex kind).
    """

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        self.dtype = dtype
        self._memory: dict[tuple[int, int, torch.dtype], torch.Tensor] = {}
        self._tensors: dict[int, torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        """The copy of a nested value."""
        return tree_map(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return copy.deepcopy(value) if isinstance(value, torch.nn.Module) else value
        known = self._tensors.get(id(value))
        if known is None:
            known = self._tensors[id(value)] = self._tensor(value)
        return known

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            if value.layout is not torch.strided or value.is_conj() or value.is_neg():
                made = self._cast(value.detach().clone())
            else:
                memory = self._memory_of(value.detach())
                made = memory.as_strided(value.shape, value.stride(), value.storage_offset())
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(made.detach(), value.requires_grad)
        return made.detach().requires_grad_(value.requires_grad)

    def _memory_of(self, value: torch.Tensor) -> torch.Tensor:
        """The whole memory beneath a tensor, copied once, as a row of its elements."""
        storage = value.untyped_storage()
        key = (storage.data_ptr(), storage.nbytes(), value.dtype)
        known = self._memory.get(key)
        if known is None:
            whole = value.as_strided((storage.nbytes() // value.element_size(),), (1,), 0)
            known = self._memory[key] = self._cast(whole.clone())
        return known

    def _cast(self, value: torch.Tensor) -> torch.Tensor:
        if self.dtype is None:
            return value
        if value.is_floating_point():
            return value.to(self.dtype)
        return value.to(self.dtype.to_complex()) if value.is_complex() else value


def copied(value: Any, dtype: torch.dtype | None = None) -> Any:
    """One copy of a nested value; see Copier."""
    return Copier(dtype)(value)


def nudge(value: Any, generator: torch.Generator) -> None:
    """Move each floating-point number of `value`, which is a copy, by a rounding up or down or not at all, in place."""
    seen: set[tuple[int, int]] = set()
    for leaf in tree_leaves(value):
        if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            continue
        memory = (leaf.untyped_storage().data_ptr(), leaf.storage_offset()) if leaf.layout is torch.strided else None
        if memory is None or memory in seen or not leaf.numel() or _overlaps(leaf):
            continue
        seen.add(memory)
        steps = torch.randint(-1, 2, leaf.shape, generator=generator).to(leaf.device)
        by = 1.0 + steps.double() * torch.finfo(leaf.dtype).eps
        with torch.no_grad():
            moved = leaf.detach().to(torch.complex128 if leaf.is_complex() else torch.float64) * by
            leaf.detach().copy_(torch.where(moved.isfinite(), moved, leaf.detach()))


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride()))
