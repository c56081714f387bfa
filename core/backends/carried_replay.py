"""Gradients that the compiled backward of a graph with wrapper tensors can't give: the graph runs again, in eager.

They are those of another class than was recorded, of gradients (create_graph), and in torch.func transforms.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from .. import torch_compat
from ..graph.captured import CapturedGraph
from ..graph.desugar import Desugared
from ..graph.functional import Carried, JointGraph
from ..graph.outputs import Slot
from ..graph.wrapper_tensors import is_wrapper
from .double_backward import not_twice, repeat_refusal
from .wrapper import CallState


class CarriedReplay:
    """Callable `(ctx, gradients of the slots and roots) -> gradients of the plain inputs, the anchors, and None`.

    versioned: the inputs of the capture whose versions the forward keeps; it keeps the inputs themselves too, for an
    incoming gradient may be of any class.
    """

    def __init__(
        self, captured: CapturedGraph, plain: Desugared, joint: JointGraph, carried: Carried, state: CallState
    ) -> None:
        self.captured = captured
        self.plain = plain
        self.joint = joint
        self.carried = carried
        self.autocast = state.autocast
        self.refusal = repeat_refusal(joint)
        self.versioned = [i for i in captured.inputs if i.is_tensor and not i.fake.is_inference()]
        self.wanted = [item.index for item in captured.inputs if item.is_tensor and item.requires_grad]

    def __call__(self, ctx: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        if self.refusal:
            raise not_twice(self.refusal)
        for item, version in zip(self.versioned, ctx.versions):
            if torch_compat.tensor_version(ctx.originals[item.index]) != version:
                raise not_twice(f"input {item.index} of the graph was modified in place since the forward")
        create_graph = torch.is_grad_enabled()
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            values = [self._private(value) for value in ctx.originals]
            starts = [torch.autograd.graph.get_gradient_edge(values[index]) for index in self.wanted]
            outputs = self.captured.module(*values)
        roots, incoming = self._roots(outputs, gradients)
        found = torch.autograd.grad(
            roots, starts, incoming, create_graph=create_graph, retain_graph=create_graph, allow_unused=True
        )
        by_input = dict(zip(self.wanted, found))
        parts = [None if part.path else by_input.get(part.index) for part in self.plain.parts]
        return (*parts, *(by_input.get(index) for index in self.carried.anchors), None)

    @staticmethod
    def _private(value: Any) -> Any:
        """A tensor with its own gradient edge: hooks of the original run in the outer backward, not here. A wrapper
        is taken as it is, for its class may make something else of a view."""
        plain = isinstance(value, torch.Tensor) and not is_wrapper(value)
        return value.view_as(value) if plain and value.requires_grad else value

    def _roots(self, outputs: Sequence[Any], gradients: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        slots = len(self.joint.epilogue.slots)
        roots, incoming = [], []
        for slot, gradient in enumerate(gradients[:slots]):
            if gradient is not None and self.joint.epilogue.slots[slot].differentiable:
                roots.append(self._of_slot(slot, outputs))
                incoming.append(gradient)
        for root, gradient in zip(self.carried.roots, gradients[slots:]):
            if gradient is not None:
                roots.append(outputs[root.output])
                incoming.append(gradient)
        return roots, incoming

    def _of_slot(self, slot: int, outputs: Sequence[Any]) -> Any:
        for at, output in enumerate(self.plain.outputs):
            if output.build is None and output.places:
                if self.joint.epilogue.outputs[output.places[0]] == Slot(slot):
                    return outputs[at]
        raise not_twice("an output is a view of a tensor that the program does not return")
