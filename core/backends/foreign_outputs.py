"""The first run of a foreign artifact: its results get memory of their own, and what torch computed in it is told.

Some runtimes return their own buffers and write to them again on the next call; some return an input where the graph
says a new tensor. What a first run returns in memory that torch did not allocate is copied from then on. One thread at
a time runs an artifact: where it keeps operands and results between calls, another thread would get them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..graph.partition import operator_name
from ..plugin import Finding
from ..torch_compat import tracing
from .generated import compile_source, names, tuple_text

_CARRYING = frozenset(
    "detach alias view _unsafe_view reshape expand t transpose permute select slice squeeze unsqueeze as_strided clone "
    "contiguous copy to _to_copy empty empty_like empty_strided new_empty new_empty_strided lift_fresh".split()
)
"""Operators that carry values from place to place: a runtime needs them to get at its operands."""


def told_of_torchs_kernels(
    call: Callable[..., Any],
    graph: fx.GraphModule,
    provenance: dict[str, str],
    report: Callable[[Finding], None],
    label: str,
) -> Callable[..., Any]:
    """`call` for the first run: nodes of `graph` whose operator runs in torch itself are put in `provenance`."""

    def observed(*arguments: Any) -> Any:
        ran: Counter[str] = Counter()
        with _counting_mode(ran):
            result = call(*arguments)
        nodes = [node for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
        for node in nodes:
            name = operator_name(node)
            if ran[name] > 0 and name not in _CARRYING:
                ran[name] -= 1
                provenance[node.name] = "library"
        if provenance:
            names = sorted({operator_name(node) for node in nodes if node.name in provenance})
            report(
                Finding("info", f"{label}: {len(provenance)} of {len(nodes)} nodes ran in torch: {', '.join(names)}")
            )
        return result

    return observed


def _counting_mode(ran: Counter[str]) -> Any:
    class Counting(torch_compat.dispatch_mode_class()):  # type: ignore[misc]
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ran[op.name().partition("::")[2].partition(".")[0]] += 1
            return op(*args, **(kwargs or {}))

    return Counting()


def own_memory(call: Callable[..., Any], *, first: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """`call` as a callable that returns a tuple; borrowed results are cloned on every run.

    first: runs in its place the first time. Which results are borrowed is found on the first run, and written into the
    generated function that stands for `call`.
    """
    namespace: dict[str, Any] = {}
    lock = threading.RLock()  # a callable may come back to its own artifact
    outer = compile_source(("def compiled(*inputs):", "    return run(*inputs)"), namespace, "compiled")
    begin = first or call

    def first_run(*inputs: Any) -> tuple[Any, ...]:
        with lock:
            given = begin(*inputs)
            single = isinstance(given, torch.Tensor)
            outputs = (given,) if single else tuple(given)
            borrowed = [at for at, output in enumerate(outputs) if _is_borrowed(output)]
            namespace["run"] = _following(call, lock, len(outputs), borrowed, single=single)
            return tuple(output.clone() if at in borrowed else output for at, output in enumerate(outputs))

    namespace["run"] = first_run
    return outer


def _is_borrowed(output: Any) -> bool:
    if not isinstance(output, torch.Tensor) or output.layout is not torch.strided:
        return False
    storage = output.untyped_storage()
    return storage.nbytes() > 0 and not tracing.has_torch_memory(storage)


def _following(call: Callable[..., Any], lock: Any, count: int, borrowed: list[int], *, single: bool) -> Any:
    results = names("s", count)
    if single:
        body = ["s0 = call(*inputs)"]
    elif borrowed:
        body = [f"{tuple_text(results)} = call(*inputs)"]
    else:
        body = ["return tuple(call(*inputs))"]
    if single or borrowed:
        body += [f"s{at} = s{at}.clone()" for at in borrowed]
        body.append(f"return {tuple_text(results)}")
    lines = ("def compiled(*inputs):", "    with lock:", *(f"        {line}" for line in body))
    return compile_source(lines, {"call": call, "lock": lock}, "compiled")
