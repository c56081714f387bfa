"""Cheats that act when their module is imported. Import it only in a process of its own.

It imports nothing of the suite, for the same reason.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from core.plugin import Artifact, Backend, Capabilities, CompileContext

torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
torch.set_default_dtype(torch.float64)
os.environ["EVIL_IMPORT"] = "1"
warnings.simplefilter("ignore")


class ChangesSettingsOnImport(Backend):
    """Takes threads, changes the default dtype, the environment and the filters of warnings when it is imported."""

    name = "evil-changes-on-import"
    version = "1.0"
    capabilities = Capabilities(graph_level="aten-functional")

    def compile(self, graph: Any, fake_inputs: Sequence[Any], ctx: CompileContext) -> Artifact:
        calls = [node.name for node in graph.graph.nodes if node.op == "call_function"]
        return Artifact(call=graph.forward, extern_calls=len(calls), provenance=dict.fromkeys(calls, "library"))
