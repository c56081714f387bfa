"""Gradients that a compiled backward can't give: of gradients (create_graph), in torch.func transforms, of subclasses.

The torch-level graph is run again on the inputs, in eager, and autograd differentiates that run; so the result is
eager's, of any order. Where the run can't be repeated (random numbers, inputs changed or gone) the error says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.fx as fx

from .. import torch_compat
from ..errors import NotTwiceDifferentiable
from ..graph.captured import CapturedGraph
from ..graph.functional import JointGraph
from ..graph.held_views import HeldView
from ..graph.hidden_cuts import HiddenStart
from ..graph.outputs import Slot, ViewOfSlot
from ..graph.partition import Partition, is_random, operator_name
from .wrapper import CallState

_Place = int | HiddenStart | HeldView
"""Of a start: a slot, or what is known of one that is none."""

_RUNNING_STATISTICS = {
    "_native_batch_norm_legit_functional": ((3, 4), 5, (3, 4)),
    "native_batch_norm_backward": ((3, 4), 7, ()),
}
"""Operator -> (operands, flag, results): where the flag operand is true, those operands reach only those results."""


class EagerBackward:
    """Callable `(ctx, gradients of the slots) -> gradients of the inputs`.

    scalars, held, versioned: inputs of which the forward keeps, on ctx, the number, a weak reference, the version.
    refusal: why no run of this graph can be repeated, empty when it can. saved_of: what ctx has saved, for a backward
    with these gradients of the slots.
    """

    def __init__(
        self,
        captured: CapturedGraph,
        joint: JointGraph,
        parts: Partition,
        state: CallState,
        group: tuple[Sequence[_Place], Sequence[int], Sequence[_Place]] | None = None,
    ) -> None:
        """group: of a function for a part of the graph, the slots that it gives, the inputs that it takes, the slots
        that it takes behind them."""
        self.module = captured.module
        self.inputs = joint.inputs
        self.epilogue = joint.epilogue
        self._graph, self._results = joint.module.graph, joint.outputs()
        self.autocast = state.autocast
        self.mutated = frozenset(write.input for write in joint.epilogue.write_backs)
        self.refusal = repeat_refusal(joint)
        self.saved_of: Callable[[Any, Sequence[Any]], Sequence[Any]] = lambda ctx, _: ctx.saved_tensors
        tensors = [value for value in parts.saved if not value.is_number]
        self._saved = {v.index: at for at, v in enumerate(tensors) if v.kind == "input"}
        tensor_inputs = [item.index for item in joint.inputs if item.is_tensor]
        unsaved = [index for index in tensor_inputs if index not in self._saved]
        self._start_slots = joint.tangent_slots
        every = range(len(joint.epilogue.slots)), range(len(joint.inputs)), ()
        self.slots, self.arguments, self.cuts = every if group is None else group
        self._beyond = () if group is None else (None,)  # what a forward keeps values of is an argument there
        self.wanted = [item.index for item in joint.inputs if item.is_tensor and item.requires_grad]
        if group is not None:
            self.wanted = list(self.arguments)
        self._edges = {index: at for at, index in enumerate(tensor_inputs if group is None else self.arguments)}
        self.scalars = [item.index for item in joint.inputs if not item.is_tensor]
        self.held = [index for index in unsaved if not self._is_leaf_parameter(index)]
        self.versioned = [i for i in unsaved if i not in self.mutated and not joint.inputs[i].fake.is_inference()]

    def _is_leaf_parameter(self, index: int) -> bool:
        """Its accumulation node leads to it; no reference is needed."""
        item = self.inputs[index]
        return index in self._edges and item.is_parameter and item.requires_grad and item.is_leaf

    def __call__(self, ctx: Any, gradients: Sequence[Any]) -> tuple[Any, ...]:
        if self.refusal:
            raise not_twice(self.refusal)
        create_graph = torch.is_grad_enabled()
        originals = self._recover(ctx, gradients)
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            values = [self._private(index, value) for index, value in enumerate(originals)]
            ends = [torch.autograd.graph.get_gradient_edge(values[index]) for index in self.wanted]
            outputs = self.module(*values)
            roots, incoming = self._roots(outputs, values, gradients)
            cuts = self.cut(outputs, values)
        try:
            found = torch.autograd.grad(
                roots,
                [*ends, *(edge for edge, _ in cuts)],
                incoming,
                create_graph=create_graph,
                retain_graph=create_graph,
                allow_unused=True,
            )
        finally:
            for _, handle in cuts:
                handle.remove()
        by_input = dict(zip(self.wanted, found))
        return (*(by_input.get(index) for index in self.arguments), *found[len(ends) :], *self._beyond)

    def cut(self, outputs: Sequence[Any], values: Sequence[Any]) -> list[tuple[Any, Any]]:
        """The edges at which gradients end besides those of the inputs, each with the handle of a hook that keeps them
        from what lies behind it: those of the results that belong to other nodes."""
        found = []
        for slot in self.cuts:
            edge = self._edge(slot, outputs, values)

            def kept_back(gradients: Sequence[Any], place: int = edge.output_nr) -> tuple[Any, ...]:
                return tuple(None if at == place else gradient for at, gradient in enumerate(gradients))

            found.append((edge, edge.node.register_prehook(kept_back)))
        return found

    def _recover(self, ctx: Any, gradients: Sequence[Any]) -> list[Any]:
        """The inputs of the forward, from what autograd saved, the graph of gradients, and weak references."""
        saved = self.saved_of(ctx, gradients)
        values: list[Any] = [None] * len(self.inputs)
        for index, at in self._saved.items():
            values[index] = saved[at]
        for at, index in enumerate(self.scalars):
            values[index] = ctx.scalars[at]
        for at, index in enumerate(self.held):
            values[index] = ctx.held[at]()
        for index, item in enumerate(self.inputs):
            if values[index] is None and item.is_tensor and self._is_leaf_parameter(index):
                values[index] = ctx.next_functions[self._edges[index]][0].variable
            if values[index] is None and item.is_tensor and not self._matters(index, gradients):
                values[index] = _stand_in(item.fake)
            elif values[index] is None and item.is_tensor:
                raise not_twice(f"input {index} of the graph no longer exists")
        for at, index in enumerate(self.versioned):
            if torch_compat.tensor_version(values[index]) != ctx.versions[at] and self._matters(index, gradients):
                raise not_twice(f"input {index} of the graph was modified in place since the forward")
        return values

    def _matters(self, index: int, gradients: Sequence[Any]) -> bool:
        """Whether a result that a gradient came for is made of an input."""
        slots = [slot for slot, gradient in zip(self.slots, gradients) if gradient is not None]
        known = [slot for slot in slots if isinstance(slot, int)]
        if len(known) < len(slots):
            return True
        nodes = [node for node in self._graph.nodes if node.op == "placeholder"]
        return _reaches(nodes[index], [self._results[slot] for slot in known])

    def _private(self, index: int, value: Any) -> Any:
        """A tensor with its own gradient edge: hooks of the original run in the outer backward, not here."""
        if not isinstance(value, torch.Tensor):
            return value
        if index in self.mutated:  # written since: neither its history nor its requires_grad are those of the forward
            fresh = value.detach().clone()
            return fresh.requires_grad_().clone() if self.inputs[index].requires_grad else fresh
        return value.view_as(value) if value.requires_grad else value

    def _roots(
        self, outputs: Sequence[Any], values: Sequence[Any], gradients: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """The tensors of the repeated run that the slots with a gradient stand for, and those gradients."""
        roots, incoming = [], []
        for slot, gradient in zip(self.slots, gradients):
            if gradient is None:
                continue
            if not isinstance(slot, int):
                roots.append(self._edge(slot, outputs, values))
                incoming.append(gradient)
                continue
            if not self.epilogue.slots[slot].differentiable:
                continue
            root = self._slot_value(slot, outputs, values, gradient.shape)
            if root.requires_grad:
                roots.append(root)
                incoming.append(gradient)
        return roots, incoming

    def _edge(self, slot: _Place, outputs: Sequence[Any], values: Sequence[Any]) -> Any:
        """The gradient edge of a start in the repeated run."""
        if isinstance(slot, HeldView):
            return torch.autograd.graph.get_gradient_edge(outputs[slot.output])
        if isinstance(slot, int):
            return torch.autograd.graph.get_gradient_edge(self._slot_value(slot, outputs, values, None))
        edge = slot.edge(self._slot_value(self._start_slots[slot.start], outputs, values, None))
        if edge is None:
            raise not_twice("a repeated run has another history")
        return edge

    def _slot_value(self, slot: int, outputs: Sequence[Any], values: Sequence[Any], shape: Any) -> torch.Tensor:
        """shape: that of the slot, None where it is not known."""
        for write in self.epilogue.write_backs:
            if write.slot == slot:
                return values[write.input]
        for output, value in zip(self.epilogue.outputs, outputs):
            if output == Slot(slot) or output == ViewOfSlot(slot, ()):
                return value
        for output, value in zip(self.epilogue.outputs, outputs):
            base = torch_compat.view_base(value) if isinstance(output, ViewOfSlot) and output.index == slot else None
            if base is not None and shape in (None, base.shape):
                return base
        raise not_twice("an output is a view of a tensor that the program does not return")


def _stand_in(fake: Any) -> torch.Tensor:
    """A tensor in the place of an input that no wanted result is made of."""
    sizes = [size if isinstance(size, int) else 1 for size in fake.shape]
    made = torch.zeros(sizes, dtype=fake.dtype, device=fake.device)
    return made.requires_grad_(fake.requires_grad)


def not_twice(reason: str) -> NotTwiceDifferentiable:
    """The error for a graph whose run can't be repeated."""
    return NotTwiceDifferentiable(
        f"a compiled graph can't be differentiated twice here: {reason}",
        instead="no gradient was computed",
        remedy="call that part uncompiled (core.disable), or compile it with backend='eager'",
    )


def repeat_refusal(joint: JointGraph) -> str:
    """Why a run of this graph can't be repeated with the same result."""
    nodes = list(joint.module.graph.nodes)
    if any(node.op == "call_function" and is_random(node) for node in nodes):
        return "it draws random numbers, which a repeated run would draw anew"
    placeholders = [node for node in nodes if node.op == "placeholder"]
    written = {write.slot for write in joint.epilogue.write_backs}
    results = [
        value
        for at, value in enumerate(joint.outputs())
        if isinstance(value, fx.Node) and (at not in written or joint.epilogue.slots[at].differentiable)
    ]
    for write in joint.epilogue.write_backs:
        if _reaches(placeholders[write.input], results):
            return f"it overwrites input {write.input}, whose former value the gradients depend on"
    return ""


def _reaches(start: fx.Node, results: Sequence[fx.Node]) -> bool:
    """Whether a value influences one of `results`; running statistics of a batch norm in training don't."""
    wanted, pending, seen = set(results), [start], {start}
    while pending:
        node = pending.pop()
        if node in wanted:
            return True
        for user in _influenced(node):
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return False


def _influenced(node: fx.Node) -> list[fx.Node]:
    users: list[fx.Node] = []
    for user in node.users:
        operands, flag, results = _RUNNING_STATISTICS.get(operator_name(user), ((), 0, ()))
        used_at = [at for at, arg in enumerate(user.args) if arg is node]
        if operands and user.args[flag] is True and set(used_at) <= set(operands):
            users += [item for item in user.users if item.args[1] in results]
        elif user.op != "output":
            users.append(user)
    return users
