"""compile_fx: from a functional ATen graph to a compiled program, all passes in order.

Enters: an fx.GraphModule of ATen overloads with fake values, placeholders first, one output tuple. Leaves: a
`CompiledProgram`. Nothing is built or run here: the runtime does that.
"""

from __future__ import annotations

from torch import fx

from .lower import GraphLowering
from .sched.schedule import schedule
from .wrapper import CompiledProgram, WrapperPrinter


def compile_fx(module: fx.GraphModule) -> CompiledProgram:
    """lower -> schedule -> print."""
    lowering = GraphLowering(module)
    graph = lowering.run()
    plan = schedule(graph)
    program = WrapperPrinter(plan).print()
    program.fallbacks = lowering.externs
    return program
