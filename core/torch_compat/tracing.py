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


def node_that_raised(error: BaseException) -> tuple[Any, Any]:
    """(graph module, node) whose generated `forward` an exception came through first; (None, None) where it is none,
    (module, None) for a line of no node."""
    step = error.__traceback__
    while step is not None:
        module = step.tb_frame.f_locals.get("self") if step.tb_frame.f_code.co_name == "forward" else None
        if isinstance(module, torch.fx.GraphModule):
            lines = getattr(module, "_lineno_map", None) or {}
            index = lines.get(step.tb_lineno - getattr(module, "_prologue_start", 0))
            nodes = list(module.graph.nodes)
            return module, nodes[index] if index is not None and index < len(nodes) else None
        step = step.tb_next
    return None, None
