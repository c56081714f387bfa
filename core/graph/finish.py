"""The driver that turns a captured graph into a functional one: check, functionalise, plan the outputs, clean up."""

from __future__ import annotations

import torch.fx as fx

from ..errors import RecorderRefused
from .captured import CapturedGraph
from .functional import FunctionalGraph
from .functionalize import Functionalizer, drop_unused
from .output_plan import OutputPlan
from .recorder import AtenRecord


def usable_record(captured: CapturedGraph) -> AtenRecord:
    """The graph's record; raises RecorderRefused when there is none or it can't be trusted."""
    record = captured.record
    if record is None:
        raise RecorderRefused("the graph was captured without a record")
    if record.refused is not None:
        raise RecorderRefused(
            record.refused, where=record.refused_at, instead="the graph is traced by AOTAutograd", remedy=""
        )
    return record


def functional_graph(captured: CapturedGraph) -> FunctionalGraph:
    """The functional ATen graph without gradients. Raises RecorderRefused for what the recorder doesn't handle."""
    record = usable_record(captured)
    functionalizer = Functionalizer(record, captured.outputs)
    for call in record.calls:
        functionalizer.process(call)
    functionalizer.emitter.provenance = {}
    plan = OutputPlan(functionalizer, captured.outputs)
    close_graph(functionalizer, tuple(plan.slots))
    return FunctionalGraph(
        functionalizer.emitter.module("FunctionalGraph"), captured.inputs, plan.epilogue, captured.shapes()
    )


def close_graph(functionalizer: Functionalizer, results: tuple[fx.Node | None, ...]) -> None:
    """Write the output node and erase what doesn't lead to it."""
    graph = functionalizer.emitter.graph
    output = graph.output(results)
    output.meta["val"] = tuple(node.meta["val"] if isinstance(node, fx.Node) else node for node in results)
    drop_unused(graph)
