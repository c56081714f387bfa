"""schedule: the passes from a LoopGraph to a Plan, in order."""

from __future__ import annotations

from ..ir.graph import LoopGraph
from ..ir.nodes import Extern, Node
from .fuse import Fuser, Group, Unit
from .inline import inline, pinned_nodes, remove_dead
from .kernel import Kernel, KernelBuilder
from .loops import order_loops
from .memory import CallStep, KernelStep, MemoryPlanner, NumberStep, Plan, Step
from .realize import Realizer


def schedule(graph: LoopGraph) -> Plan:
    """realize -> remove_dead -> inline -> fuse -> kernel -> loops -> memory."""
    Realizer(graph).run()
    remove_dead(graph)
    inline(graph)
    units = Fuser(graph).run()
    steps = build_steps(graph, units)
    return MemoryPlanner(graph, steps).run()


def build_steps(graph: LoopGraph, units: list[Unit]) -> list[Step]:
    """Kernels of the groups, with the nodes that must be stored: those that others read."""
    needed = set(pinned_nodes(graph))
    home: dict[Node, Group] = {n: u for u in units if isinstance(u, Group) for n in u.nodes}
    for unit in units:
        if isinstance(unit, Group):
            for source in unit.reads:
                if home.get(source) is not unit:
                    needed.add(source)
    steps: list[Step] = []
    for unit in units:
        if isinstance(unit, Group):
            steps.append(KernelStep(build_kernel(f"k{len(steps)}", unit, needed)))
        elif isinstance(unit, Extern):
            steps.append(CallStep(unit))
        else:
            steps.append(NumberStep(unit))
    return steps


def build_kernel(name: str, group: Group, needed: set[Node]) -> Kernel:
    """The kernel of one group, loops in order."""
    kernel = KernelBuilder(name, group, [n for n in group.nodes if n in needed]).build()
    order_loops(kernel)
    return kernel
