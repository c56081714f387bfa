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


def ranged_scalar(env: Any, value: Any, source: Any, within: tuple[Any, Any]) -> Any:
    """As symbolic_scalar, of a number that lies between two others for certain."""
    import sympy
    from torch.utils._sympy.value_ranges import ValueRanges

    from . import symbolic_scalar

    made = symbolic_scalar(env, value, source)
    low, high = within
    number = sympy.Float if isinstance(low, float) else sympy.Integer
    if low != high:
        env.var_to_range[made.node.expr] = ValueRanges(number(low), number(high))
    return made


def known_by_range(value: Any) -> Any:
    """What a SymInt, SymFloat or SymBool is whatever its symbols are within their ranges; None where that is open."""
    found = value.node.shape_env._maybe_evaluate_static(value.node.expr)
    if found is None or not (found.is_number or found.is_Boolean):
        return None
    if isinstance(value, torch.SymBool):
        return bool(found)
    return int(found) if isinstance(value, torch.SymInt) else float(found)
