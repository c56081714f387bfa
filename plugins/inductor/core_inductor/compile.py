"""compile_fx: from a functional ATen graph to a compiled program, all passes in order.

Enters: an fx.GraphModule of ATen overloads with fake values, placeholders first, one output tuple. Leaves: a
`CompiledProgram`. Nothing is built or run here: the runtime does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from .lower import GraphLowering
from .sched.schedule import schedule
from .wrapper import CompiledProgram, WrapperPrinter


def compile_fx(module: fx.GraphModule, ctx: Any = None) -> CompiledProgram:
    """lower -> schedule -> print.

    ctx: a CompileContext or None; its options may hold "strict" (round 16-bit intermediates after every operation, as
    eager does; False).
    """
    options: Mapping[str, Any] = getattr(ctx, "options", None) or {}
    strict = bool(options.get("strict", False))
    lowering = GraphLowering(module, strict=strict)
    graph = lowering.run()
    plan = schedule(graph, strict=strict)
    program = WrapperPrinter(plan).print()
    program.fallbacks = lowering.externs
    return program
