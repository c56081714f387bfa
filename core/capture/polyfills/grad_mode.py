"""A call in a grad mode, as one of torch's higher-order operators makes it."""

from __future__ import annotations

from typing import Any

import torch


def in_grad_mode(enabled: bool, fn: Any, *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs) with gradients switched on or off."""
    with torch.set_grad_enabled(enabled):
        return fn(*args, **kwargs)
