"""Running a whole graph through torch's own kernels: what is left where no compiler is."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from core.plugin import Artifact, CompileContext, Finding

REMEDY = "install g++ (or name one in CORE_CXX); option missing_compiler='raise' makes this an error"

_lock = threading.Lock()
_warned: set[str] = set()


def run_through_aten(graph: Any, ctx: CompileContext, reason: str) -> Artifact:
    """The graph as it is, node by node. The reason is reported every time and warned about once."""
    ctx.report(Finding("warning", f"{ctx.name}: {reason}; the whole graph runs through torch's kernels", REMEDY))
    with _lock:
        first = reason not in _warned
        _warned.add(reason)
    if first:
        text = f"core: inductor compiles nothing: {reason}. Graphs run through torch's own kernels. Remedy: {REMEDY}"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    calls = [node.name for node in graph.graph.nodes if node.op == "call_function"]
    return Artifact(
        call=graph.forward,
        extern_calls=len(calls),
        provenance=dict.fromkeys(calls, "fallback"),
        describe=lambda: graph.code,
    )
