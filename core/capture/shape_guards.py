"""The conditions on sizes and numbers under which a dynamic graph is right, as guards."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .. import torch_compat
from ..graph.captured import CapturedGraph
from ..guards.checks import Binding, ShapeHolds
from ..guards.guard import Guard
from .first_calls import is_drawn


def shape_guards(graph: CapturedGraph) -> Iterator[Guard]:
    """Guards of the graph's symbols; asked after the backend compiled, for that may have added some."""
    facts = graph.shapes()
    bindings: dict[str, Binding] = {}
    for symbol, place in facts.bindings.items():
        item = graph.inputs[place.input]
        kind = place.kind if place.kind != "value" else "float" if _is_float(item.fake) else "int"
        if item.source is not None and not is_drawn(item.source):
            bindings[str(symbol)] = Binding(item.source, kind, place.dim)
            if kind == "float":
                yield _finite(str(symbol), bindings[str(symbol)])
            if kind == "size" and torch_compat.has_number(graph.shape_env, symbol):
                yield _not_empty(str(symbol), bindings[str(symbol)])
    for guard in facts.guards:
        names = {str(symbol) for symbol in guard.expr.free_symbols}
        needed = tuple((name, bindings[name]) for name in sorted(names & bindings.keys()))
        if len(needed) == len(names):
            yield Guard(None, ShapeHolds(guard.expr, needed), None, guard.reason)


def _not_empty(name: str, size: Binding) -> Guard:
    """The symbol of a size is a positive number to sympy, which decides by that without asking: 0 is another case."""
    import sympy  # only graphs with symbols need it, and they have brought it

    expr = sympy.Ge(sympy.Symbol(name, integer=True), 1)
    return Guard(None, ShapeHolds(expr, ((name, size),)), None, "a symbolic size is not 0")


def _finite(name: str, number: Binding) -> Guard:
    """Arithmetic on symbols is that of real numbers, to which each number equals itself."""
    import sympy

    symbol = sympy.Symbol(name, real=True)
    within = sympy.And(sympy.Ge(symbol, -sys.float_info.max), sympy.Le(symbol, sys.float_info.max))
    return Guard(None, ShapeHolds(within, ((name, number),)), None, "a symbolic float is finite")


def _is_float(fake: object) -> bool:
    return type(fake).__name__ in ("SymFloat", "float")
