"""torch's own compiler beside core in one program: kept out of core's code. Checked with torch 2.11 and 2.13."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch


def keep_peer_out(code: types.CodeType) -> None:
    """Have frames of `code`, and all that they call, run as they are where torch.compile captures what it meets."""
    hook: Any = torch._C._dynamo.eval_frame
    if not hasattr(hook, "set_code_exec_strategy"):
        return
    skip = hook._FrameAction.SKIP
    hook.set_code_exec_strategy(code, hook._FrameExecStrategy(skip, skip))


def counted(fn: types.FunctionType) -> Any:
    """The method of Module that the peer, once used, has wrapped to count modules with; None for other functions."""
    if fn.__globals__.get("__name__") != "torch._dynamo.mutation_guard":
        return None
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
    methods = [cells[name].cell_contents for name in ("init", "setstate") if name in cells]
    return methods[0] if methods else None


def substitute_of(fn: Any) -> tuple[Any, bool] | None:
    """What torch.compiler.substitute_in_graph registered for a function, and whether it folds; None for none.

    That function has loaded torch's compiler, which registers many of its own: those don't count.
    """
    functions = sys.modules.get("torch._dynamo.variables.functions")
    kind = getattr(functions, "PolyfilledFunctionVariable", None)
    handler = None if kind is None else kind._get_polyfill_handlers().get(fn)
    traced = getattr(handler, "__torch_dynamo_polyfill__", None)
    if traced is None or traced.__module__.startswith("torch."):
        return None
    return traced, bool(getattr(handler, "__torch_dynamo_can_constant_fold_through__", False))


def allows_in_graph(fn: Any) -> bool:
    """True for a function given to torch.compiler.allow_in_graph, which has loaded the peer for that."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    allowed = getattr(rules, "_allowed_callable_ids", None)
    return allowed is not None and id(fn) in allowed
