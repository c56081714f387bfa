"""Cheats with a GPU: its streams, its memory, graphs of its calls. They run where there is one."""

from __future__ import annotations

from typing import Any

import torch

from core.plugin import Capabilities

from .interpreter import Interpreted, Program


class UsesTheDefaultStream(Interpreted):
    """Launches on the default stream, whichever stream the program is on."""

    name = "evil-uses-the-default-stream"

    def calculate(self, program: Program, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.cuda.stream(torch.cuda.default_stream()):
            return target(*args, **kwargs)


class WaitsForTheDevice(Interpreted):
    """Lets the host wait until the device has done everything."""

    name = "evil-waits-for-the-device"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        torch.cuda.synchronize()
        return outputs


class KeepsMemoryOfTheDevice(Interpreted):
    """Takes memory of the device on each call, and never gives it back."""

    name = "evil-keeps-memory-of-the-device"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        program.memory[program.runs] = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        return outputs


class ClaimsToBeCaptured(Interpreted):
    """Declares that its calls may stand in a CUDA graph, and looks at values on the host."""

    name = "evil-claims-to-be-captured"
    capabilities = Capabilities(graph_level="aten-functional", deterministic="on-request", cudagraph_safe="yes")

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        for value in inputs:
            value.flatten()[:1].cpu()
        return inputs


class LeavesTensorCoresOn(Interpreted):
    """Lets float32 products be calculated in less while it compiles, and leaves it so."""

    name = "evil-leaves-tensor-cores-on"

    def compiled(self, program: Program) -> None:
        torch.set_float32_matmul_precision("high")
