"""Grad mode and autocast as they were, when a graph that switches them raises between two switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import torch_compat
from ..graph.captured import CapturedGraph


def restoring(captured: CapturedGraph, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` itself for a graph without switches, else one that leaves the modes alone also when it raises."""
    enter = torch_compat.enter_autocast_function()
    nodes = [node for node in captured.module.graph.nodes if node.op == "call_function"]
    devices = {node.args[0] for node in nodes if node.target is enter}
    if not devices and not any(node.target is torch_compat.set_grad_enabled_function() for node in nodes):
        return call

    def run(*inputs: Any) -> Any:
        grad_mode = torch.is_grad_enabled()
        autocast = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices]
        depth = _autocast_depth() if devices else 0
        try:
            return call(*inputs)
        except BaseException:
            torch.set_grad_enabled(grad_mode)
            for device, enabled, dtype in autocast:
                torch.set_autocast_enabled(device, enabled)
                torch.set_autocast_dtype(device, dtype)
            for _ in range(_autocast_depth() - depth if devices else 0):
                if torch.autocast_decrement_nesting() == 0:
                    torch.clear_autocast_cache()
            raise

    return run


def _autocast_depth() -> int:
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth
