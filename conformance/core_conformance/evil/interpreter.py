"""The honest backend that every cheat deviates from: it runs the graph node by node and says so.

A cheat overrides one of four points: `receive` (the inputs of a call), `calculate` (one node), `deliver` (the results
of a call) and `compiled` (once, while a graph is compiled). What it remembers between calls lives in the Program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.fx as fx

from core.plugin import Artifact, Backend, Capabilities, CompileContext, Option


class Program:
    """One compiled graph. `memory` is what a backend keeps from one call to the next; `runs` counts the calls."""

    def __init__(self, backend: Interpreted, graph: Any, ctx: CompileContext) -> None:
        self.backend = backend
        self.graph = graph
        self.ctx = ctx
        self.memory: dict[Any, Any] = {}
        self.runs = 0

    def call_on(self, *inputs: Any) -> tuple[Any, ...]:
        """One call of the compiled graph."""
        self.runs += 1
        given = self.backend.receive(self, list(inputs))
        outputs = _Evaluation(self).run(*given)
        return tuple(self.backend.deliver(self, given, list(outputs)))


class _Evaluation(fx.Interpreter):
    """The values of one call: two threads have two, and nothing of a call outlives it."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.graph, garbage_collect_values=False)
        self.program = program

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A node of the graph, through the backend's `calculate`."""
        return self.program.backend.calculate(self.program, target, args, kwargs)


class Interpreted(Backend):
    """Runs each node through torch and declares each as a call of a library."""

    name = "interpreted"
    version = "1.0"
    capabilities = Capabilities(graph_level="aten-functional", deterministic="on-request")
    claim: ClassVar[str] = "library"
    """What the backend says of every node: "library" is the truth."""

    def options(self) -> Mapping[str, Option]:
        return {}

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        program = Program(self, graph, ctx)
        self.compiled(program)
        calls = [node.name for node in graph.graph.nodes if node.op.startswith("call_")]
        return Artifact(
            call=program.call_on,
            extern_calls=len(calls) if self.claim == "library" else 0,
            kernels=0 if self.claim == "library" else len(calls),
            provenance=dict.fromkeys(calls, self.claim),
            describe=lambda: str(graph.code),
        )

    def compiled(self, program: Program) -> None:
        """Called once for each graph, while it is compiled."""

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        """The inputs that the graph is run on."""
        return inputs

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of one node."""
        return target(*args, **kwargs)

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        """What the call returns."""
        return outputs


TORCH_LEVEL = Capabilities(graph_level="torch", mutation="native", aliasing="native")
"""The claim to do everything around a graph oneself: gradients, mutation, aliasing, strides."""


def overload_name(target: Any) -> str:
    """`relu` for aten.relu.default; the function's own name at torch level."""
    packet = getattr(target, "overloadpacket", None)
    return str(getattr(packet or target, "__name__", ""))


def replaced(values: Any, change: Any) -> Any:
    """`values` (nested lists and tuples) with `change` applied to every tensor."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, (list, tuple)):
        return type(values)(replaced(value, change) for value in values)
    return values
