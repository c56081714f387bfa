"""CapturedProgram: the graphs of one captured run, to look at and to call. What `core.capture(fn, *args)` returns.

Enters: events of the run. Leaves: for each graph its torch-level module, the ATen module where one could be recorded,
its inputs and the guards of its entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch.fx as fx

from .. import events
from ..errors import RecorderRefused, UserLine
from ..graph.finish import functional_graph
from .explain import Explanation, listening


@dataclass(frozen=True)
class InputFacts:
    """One input of a graph. name: how the call reaches it, empty for a constant that the graph brings along.

    example: the fake tensor or symbolic number that stood for it; dynamic_dims: the dimensions that are symbolic;
    lifted: passed by the entry itself, as parameters are.
    """

    name: str
    example: Any
    dynamic_dims: tuple[int, ...] = ()
    lifted: bool = False


@dataclass
class GraphFacts:
    """One graph. module: torch-level, runs on its inputs and returns a tuple; aten: its functional ATen form, or None
    with the reason in `no_aten`; guards: those of the entry, as text, under which the graph is right.
    """

    function: str
    module: fx.GraphModule
    inputs: tuple[InputFacts, ...]
    ops: int
    needs_grad: bool
    aten: fx.GraphModule | None = None
    no_aten: str = ""
    guards: tuple[str, ...] = ()
    lines: dict[str, UserLine] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """The torch-level graph as Python."""
        return str(self.module.code).strip()


@dataclass
class CapturedProgram:
    """What one captured run of a function gave. Calling it calls the function again, captured in the same way."""

    compiled: Callable[..., Any]
    result: Any
    graphs: list[GraphFacts]
    explanation: Explanation

    @property
    def breaks(self) -> list[events.GraphBroken]:
        """The graph breaks."""
        return self.explanation.breaks

    @property
    def guards(self) -> tuple[str, ...]:
        """The guards of every entry, each once."""
        texts = (str(guard) for entry in self.explanation.entries for guard in entry.guards)
        return tuple(dict.fromkeys(texts))

    @property
    def inputs(self) -> tuple[InputFacts, ...]:
        """The inputs of the first graph."""
        return self.graphs[0].inputs if self.graphs else ()

    @property
    def module(self) -> fx.GraphModule:
        """The torch-level module of the one graph. Raises ValueError when there is none or more than one."""
        if len(self.graphs) != 1:
            raise ValueError(f"the program has {len(self.graphs)} graphs: look at .graphs and .breaks")
        return self.graphs[0].module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def __str__(self) -> str:
        parts = [str(self.explanation)]
        for graph in self.graphs:
            parts += [f"graph of {graph.function}:", *(f"  {line}" for line in graph.code.splitlines())]
        return "\n".join(parts)


def captured(make: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CapturedProgram:
    """Run what `make` makes, once, and keep its graphs."""
    explanation = Explanation()
    graphs: list[GraphFacts] = []

    def keep(event: events.Event) -> None:
        explanation.add(event)
        if isinstance(event, events.GraphCaptured):
            graphs.append(_facts(event))
        elif isinstance(event, events.EntryMade) and event.graph is not None:
            for graph in graphs:
                if graph.module is event.graph:
                    graph.guards = tuple(dict.fromkeys(str(guard) for guard in event.guards))

    compiled = make()
    with listening(keep):
        explanation.result = compiled(*args, **kwargs)
    return CapturedProgram(compiled, explanation.result, graphs, explanation)


def _facts(event: events.GraphCaptured) -> GraphFacts:
    graph: Any = event.captured
    inputs = tuple(
        InputFacts(item.source.name() if item.source is not None else "", item.fake, item.dynamic_dims, item.lifted)
        for item in graph.inputs
    )
    facts = GraphFacts(event.function, graph.module, inputs, event.ops, graph.needs_grad, lines=dict(graph.lines))
    try:
        facts.aten = functional_graph(graph).module
    except RecorderRefused as refused:
        facts.no_aten = refused.what
    return facts
