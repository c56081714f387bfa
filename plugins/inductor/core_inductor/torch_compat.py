"""Every private torch name that this plugin uses, with the versions it was checked with.

disable_current_modes: `torch.utils._python_dispatch._disable_current_modes`, 2.13. Real tensors can be made inside it
    even while a fake-tensor mode is active, on the CPU whatever the default device (`torch._C.DisableTorchFunction`).
impl_address: `Tensor._cdata`, 2.13. The address of the TensorImpl behind a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils import _python_dispatch


@contextmanager
def disable_current_modes() -> Iterator[None]:
    """Within it no mode of the program is active on this thread: no dispatch mode, no function mode, and with those no
    default device."""
    with _python_dispatch._disable_current_modes(), torch._C.DisableTorchFunction():
        yield


def impl_address(tensor: torch.Tensor) -> int:
    """The address of the TensorImpl of a tensor."""
    return tensor._cdata


def is_surely_one(size: torch.SymInt) -> bool:
    """Whether a size that is 1 in the example is 1 wherever the guards hold. Asks no new guard. Checked with torch 2.11
    and 2.13."""
    if size.node.hint != 1:
        return False
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(size == 1))
