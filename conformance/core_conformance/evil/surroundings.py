"""Cheats that behave while they are watched. This file imports nothing of the suite, so that a process may load it
without the suite being there.

Where nobody watches, every result is rounded to bfloat16.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from core.plugin import Artifact, Backend, Capabilities, CompileContext


class _BehavesWhenWatched(Backend):
    version = "1.0"
    capabilities = Capabilities(graph_level="aten-functional", deterministic="on-request")

    def watched(self, graph: Any) -> bool:
        """Whether the suite seems to be looking."""
        raise NotImplementedError

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        honest = self.watched(graph)
        calls = [node.name for node in graph.graph.nodes if node.op == "call_function"]

        def call(*inputs: Any) -> tuple[Any, ...]:
            outputs = graph.forward(*inputs)
            return outputs if honest else tuple(_coarse(value) for value in outputs)

        return Artifact(call=call, extern_calls=len(calls), provenance=dict.fromkeys(calls, "library"))


def _coarse(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype is torch.float32:
        return value.bfloat16().float()
    return value


class LooksForPytest(_BehavesWhenWatched):
    """Looks for the test runner among the imported modules."""

    name = "evil-looks-for-pytest"

    def watched(self, graph: Any) -> bool:
        return "pytest" in sys.modules


class LooksForTheSuite(_BehavesWhenWatched):
    """Looks for the suite among the imported modules."""

    name = "evil-looks-for-the-suite"

    def watched(self, graph: Any) -> bool:
        return any(name.partition(".")[0] == "core_conformance" for name in sys.modules)


class WalksTheStack(_BehavesWhenWatched):
    """Looks for files of the suite among the callers."""

    name = "evil-walks-the-stack"

    def watched(self, graph: Any) -> bool:
        frame = sys._getframe()
        while frame is not None:
            file = frame.f_code.co_filename
            if file != __file__ and "conformance" in file or frame.f_code.co_name.startswith("test_"):
                return True
            frame = frame.f_back  # type: ignore[assignment]
        return False


class ReadsTheEnvironment(_BehavesWhenWatched):
    """Looks for the variables that test runners set."""

    name = "evil-reads-the-environment"

    def watched(self, graph: Any) -> bool:
        return any(name.startswith("PYTEST") for name in os.environ) or "pytest" in sys.modules


class ReadsTheCommandLine(_BehavesWhenWatched):
    """Looks for the suite in the arguments of the process."""

    name = "evil-reads-the-command-line"

    def watched(self, graph: Any) -> bool:
        return any("conformance" in word or "pytest" in word for word in sys.argv)
