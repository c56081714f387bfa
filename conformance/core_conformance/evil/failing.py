"""Cheats in failures: the wrong exception, no exception at all, no end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from core.plugin import Artifact, CompileContext, Probe

from .interpreter import Interpreted, Program


def _is_foreign(target: Any) -> bool:
    return getattr(target, "namespace", "aten") not in ("aten", "prims", "")


class ForeignNodesAreUnforeseen(Interpreted):
    """Meets an operator that it does not know with an exception that says nothing."""

    name = "evil-wrong-exception"

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        for node in graph.graph.nodes:
            if node.op == "call_function" and _is_foreign(node.target):
                raise KeyError(node.name)
        return super().compile(graph, fake_inputs, ctx)


class ErrorsBecomeZeros(Interpreted):
    """Swallows what goes wrong in a node, an operator that it does not know included, and goes on with zeros."""

    name = "evil-errors-become-zeros"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            if _is_foreign(target):
                raise NotImplementedError(str(target))
            return target(*args, **kwargs)
        except (RuntimeError, IndexError, ValueError, NotImplementedError):
            return next((torch.zeros_like(value) for value in args if isinstance(value, torch.Tensor)), None)


class SleepsPastTheDeadline(Interpreted):
    """Compiles as long as it likes."""

    name = "evil-sleeps-past-deadline"
    seconds = 3.0

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        if ctx.deadline_s is not None and ctx.deadline_s < self.seconds:
            time.sleep(self.seconds)
        return super().compile(graph, fake_inputs, ctx)


class ProbeRaises(Interpreted):
    """Answers the question whether it works here with an exception."""

    name = "evil-probe-raises"

    def probe(self, device: str) -> Probe:
        if device != "cpu":
            raise OSError("no driver")
        return Probe(True)


class ReturnsOneOutputLess(Interpreted):
    """Loses the last of several results."""

    name = "evil-one-output-less"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return outputs[:-1] if len(outputs) > 1 else outputs


class RaisesAnotherClass(Interpreted):
    """Turns what a node raises into an exception of another class."""

    name = "evil-another-exception-class"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return target(*args, **kwargs)
        except (RuntimeError, IndexError) as error:
            raise TypeError("bad operands") from error
