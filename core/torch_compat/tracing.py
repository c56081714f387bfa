"""Names that another project's torch.compile backend needs around its compile: torch's tracing context."""

from __future__ import annotations

import contextlib
from typing import Any

import torch


def tracing_context(fake_mode: Any) -> contextlib.AbstractContextManager[Any]:
    """The context in which torch.compile calls a backend: `torch._guards.TracingContext.try_get()` answers in it."""
    return torch._guards.tracing(torch._guards.TracingContext(fake_mode))


def fake_mode_of(value: Any) -> Any:
    """The mode of a fake tensor."""
    return value.fake_mode


def has_torch_memory(storage: Any) -> bool:
    """False for memory that torch did not allocate itself: it belongs to a library, which may write to it again."""
    return bool(storage.resizable())


def depends_on_data(value: Any) -> bool:
    """True for a SymInt, SymFloat or SymBool that is computed from numbers which only the data knows."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(value))
