"""The classes torch.FloatTensor, torch.LongTensor and so on: they name a dtype and a device, and tensors are theirs."""

from __future__ import annotations

from typing import Any

import torch

from .base import VariableTracker as VT

TYPED: type = type(torch.FloatTensor)


def has_instance(cls: Any, obj: VT) -> bool:
    """isinstance(obj, cls): whether the tensor is of its dtype and layout, on its kind of device."""
    fake = getattr(obj, "fake", None)
    if not isinstance(fake, torch.Tensor) or not issubclass(obj.python_type(), torch.Tensor):
        return False
    device = "cuda" if cls.is_cuda else "cpu"
    return fake.dtype is cls.dtype and fake.layout is cls.layout and fake.device.type == device
