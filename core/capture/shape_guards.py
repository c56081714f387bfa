"""The conditions on sizes and numbers under which a dynamic graph is right, as guards."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph.captured import CapturedGraph
from ..graph.symbols import shape_facts
from ..guards.checks import Binding
from ..guards.guard import Guard
from ..guards.shapes import shape_check

KINDS = {"size": "size", "stride": "stride", "offset": "offset"}


def shape_guards(graph: CapturedGraph) -> Iterator[Guard]:
    """Guards of the graph's symbols; asked after the backend compiled, for that may have added some."""
    facts = shape_facts(graph.inputs, graph.shape_env)
    bindings = {}
    for symbol, place in facts.bindings.items():
        item = graph.inputs[place.input]
        if item.source is None:
            continue
        kind = KINDS.get(place.kind, "float" if isinstance(item.fake, float) else "int")
        bindings[symbol] = Binding(item.source, kind, place.dim)
    for guard in facts.guards:
        yield Guard(None, shape_check(guard.expr, bindings), None, guard.reason)
