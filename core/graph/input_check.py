"""What a tensor must be to become an input of a graph."""

from __future__ import annotations

import torch

from ..errors import Unsupported
from ..torch_compat import fakes
from .wrapper_tensors import is_wrapper


def check_input(example: torch.Tensor) -> None:
    """Raise Unsupported for a tensor that can't be an input."""
    if is_wrapper(example):  # who adds it has seen to its parts
        return
    what = None
    if type(example) is not torch.Tensor and not fakes.is_parameter_class(type(example)):
        what = f"a tensor of class {type(example).__name__}"
    elif example.layout is not torch.strided:
        what = f"a tensor of layout {example.layout}"
    elif example.is_quantized:
        what = "a quantized tensor"
    elif example._is_view() and type(example._base).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        what = f"a view of a tensor of class {type(example._base).__name__}"
    elif has_moved(example) and example.requires_grad:
        what = "a view that was given storage of its own, and takes gradients,"
    if what is not None:
        raise Unsupported(f"{what} can't be an input of a graph", remedy="use it outside the compiled function")


def has_moved(example: torch.Tensor) -> bool:
    """True for a view that lies elsewhere than its base since one of them was given other storage (`set_`)."""
    if not example._is_view() or example.layout is not torch.strided:
        return False
    base = example._base
    return base.layout is torch.strided and base.untyped_storage()._cdata != example.untyped_storage()._cdata
