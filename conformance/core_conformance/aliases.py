"""Which tensors share memory, as a program can see it."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def relations(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> frozenset[str]:
    """What the outputs of a call have to do with its inputs and each other, in words.

    Tensors that are one object, and tensors that are views of one memory, with the distance between their beginnings.
    """
    named = [(f"output {i}", t) for i, t in enumerate(outputs)] + [(f"input {i}", t) for i, t in enumerate(inputs)]
    found = set()
    for at, (name, tensor) in enumerate(named[: len(outputs)]):
        for other_name, other in named[at + 1 :]:
            if tensor is other:
                found.add(f"{name} is {other_name}")
            elif shares_memory(tensor, other):
                found.add(f"{name} shares the memory of {other_name}")
    return frozenset(found)


def shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are views of one memory."""
    if one.layout is not torch.strided or other.layout is not torch.strided:
        return False
    if not one.numel() or not other.numel():
        return False
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
