"""The elements of a tensor as bytes, without NumPy: torch doesn't bring it, and nothing of core may need it."""

from __future__ import annotations

import ctypes
from typing import Any


def tensor_bytes(tensor: Any) -> bytes:
    """A copy of the elements in order. tensor: contiguous, on the host, without a lazy conjugate or negation."""
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.nbytes else b""
