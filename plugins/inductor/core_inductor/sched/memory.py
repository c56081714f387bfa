"""memory: which buffer lives how long, and which new one takes over the storage of a dead one.

Enters: kernels and calls in order. Leaves: a `Plan` of steps, each with the buffers that die behind it, and for each
kernel output or out= call the dead buffer it is written over. In place is safe where the last reader reads each
element at the position where, in the same iteration and in the last walk, it writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir import expr
from ..ir.expr import Index
from ..ir.graph import LoopGraph, PythonValue, leaves
from ..ir.nodes import Extern, ExternResult, Input, Loops, Node, Strided
from .kernel import Kernel

OUT_BYTES = 1024 * 1024
"""Smaller results of extern calls are cheaper to allocate than to hand over: the allocator still has their pages."""


@dataclass
class KernelStep:
    """A kernel call. extra: dead buffers passed for their storage alone. reuse: for each output, index into
    arguments."""

    kernel: Kernel
    extra: list[Node] = field(default_factory=list)
    reuse: list[int | None] = field(default_factory=list)
    dies: list[Node] = field(default_factory=list)

    @property
    def arguments(self) -> list[Node]:
        """Tensor arguments in call order."""
        return [*self.kernel.inputs, *self.extra]


@dataclass
class CallStep:
    """An extern call. out: the dead buffer it writes into."""

    call: Extern
    out: Node | None = None
    dies: list[Node] = field(default_factory=list)


@dataclass
class NumberStep:
    """A Python number computed between kernels."""

    number: PythonValue
    dies: list[Node] = field(default_factory=list)


Step = KernelStep | CallStep | NumberStep


@dataclass
class Plan:
    """Everything the wrapper printer needs."""

    graph: LoopGraph
    steps: list[Step]


def reads(step: Step) -> list[Node]:
    """The nodes whose tensors a step takes."""
    if isinstance(step, KernelStep):
        return step.kernel.inputs
    source = (step.call.args, step.call.kwargs) if isinstance(step, CallStep) else step.number.args
    return [leaf.node for leaf in leaves(source) if isinstance(leaf, Strided)]


def storage_size(node: Node) -> Index:
    """Elements of the smallest storage that holds the node."""
    if any(s == 0 for s in node.sizes):
        return 0
    return expr.add(expr.total(expr.mul(expr.sub(s, 1), t) for s, t in zip(node.sizes, node.strides)), 1)


class MemoryPlanner:
    """Assigns storage for one list of steps."""

    def __init__(self, graph: LoopGraph, steps: list[Step]) -> None:
        self.graph = graph
        self.steps = steps
        self.kept = {o.node for o in graph.outputs if isinstance(o, Strided)}
        self.last: dict[Node, int] = {}
        self.pool: list[tuple[Node, int]] = []
        self.taken: set[Node] = set()
        self.aliased: set[Node] = set()

    def run(self) -> Plan:
        """The plan with reuse and deaths filled in."""
        self._last_uses()
        for number, step in enumerate(self.steps):
            if isinstance(step, KernelStep):
                self._kernel(step, number)
            elif isinstance(step, CallStep):
                self._extern(step, number)
            self.pool.extend((n, number) for n in self._dying(number) if self._owned(n) and n not in self.taken)
        for node, last in self.last.items():
            if node not in self.kept and node not in self.taken:
                self.steps[last].dies.append(node)
        for node in self.taken:
            # The new owner's name keeps the storage; the old name goes right behind the step that took it.
            self.steps[self.last[node]].dies.append(node)
        return Plan(self.graph, self.steps)

    def _last_uses(self) -> None:
        for number, step in enumerate(self.steps):
            for node in reads(step):
                self.last[node] = number
            for node in self._makes(step):
                self.last.setdefault(node, number)
        for number in range(len(self.steps) - 1, -1, -1):
            step = self.steps[number]
            if isinstance(step, CallStep) and not step.call.fresh:
                end = max((self.last.get(r, number) for r in step.call.results), default=number)
                returned = any(r in self.kept for r in step.call.results)
                for node in reads(step):
                    self.last[node] = max(self.last[node], end)
                    self.aliased.add(node)
                    if returned:
                        self.kept.add(node)
                self.aliased.update(step.call.results)

    @staticmethod
    def _makes(step: Step) -> list[Node]:
        if isinstance(step, KernelStep):
            return step.kernel.outputs
        return list(step.call.results) if isinstance(step, CallStep) else []

    def _dying(self, number: int) -> list[Node]:
        step = self.steps[number]
        nodes = dict.fromkeys([*reads(step), *self._makes(step)])
        return [n for n in nodes if self.last[n] == number and n not in self.kept]

    def _owned(self, node: Node) -> bool:
        """Buffers whose storage is surely the program's own, whole, and at offset 0."""
        if node in self.kept or node in self.aliased or isinstance(node, Input):
            return False
        return isinstance(node, Loops) or (
            isinstance(node, ExternResult) and node.extern.fresh and node.trusted_strides and node.strided
        )

    def _fits(self, old: Node, new: Node) -> bool:
        return old.dtype == new.dtype and storage_size(old) == storage_size(new)

    def _kernel(self, step: KernelStep, number: int) -> None:
        kernel = step.kernel
        dying = [n for n in self._dying(number) if n in kernel.inputs and self._owned(n)]
        for output in kernel.outputs:
            over = next((n for n in dying if self._fits(n, output) and self._in_place(kernel, n, output)), None)
            if over is not None:
                dying.remove(over)
                self.taken.add(over)
                step.reuse.append(kernel.inputs.index(over))
                continue
            over = self._from_pool(output)
            if over is None:
                step.reuse.append(None)
                continue
            step.reuse.append(len(kernel.inputs) + len(step.extra))
            step.extra.append(over)
            self.last[over] = number

    def _from_pool(self, output: Node) -> Node | None:
        for k, (node, _) in enumerate(self.pool):
            if self._fits(node, output):
                del self.pool[k]
                self.taken.add(node)
                return node
        return None

    @staticmethod
    def _in_place(kernel: Kernel, source: Node, target: Node) -> bool:
        store = next(s for s in kernel.stores if s.buffer is target)
        if kernel.reduces and (store.level == 0 or store.stage != kernel.walks - 1):
            return False
        return all(
            v.attr[1] == store.offset
            for v in kernel.values
            if v.name in ("load", "masked_load") and v.attr[0] is source
        )

    def _extern(self, step: CallStep, number: int) -> None:
        call = step.call
        if call.out_path is None or len(call.results) != 1 or call.results[0] in self.kept and not self.pool:
            return
        result = call.results[0]
        size = expr.hint(result.numel) * result.item_bytes
        if size < OUT_BYTES:
            return
        for k, (node, _) in enumerate(self.pool):
            if node.dtype == result.dtype and node.sizes == result.sizes and node.strides == result.strides:
                del self.pool[k]
                self.taken.add(node)
                self.last[node] = number
                step.out = node
                return
