"""A call of a user's `autograd.Function` as one node of a graph: its forward and backward are graphs.

The node's function runs both through a stand-in `autograd.Function`, so that autograd sees what it sees in eager: the
same inputs, outputs, saved tensors and marks. The recorder, which runs the node on fakes under the real engine, finds
the ATen calls of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class FunctionPlan:
    """How the two graphs of a Function fit together. Each value the graphs take is named by (kind, index):

    "input": a tensor that the Function was applied to; "free": a tensor that its code reads from elsewhere; "output": a
    tensor it returned; "inner": a tensor that only its forward made; "grad": the gradient of an output.
    forward_takes, backward_takes: the arguments of the graphs. saved: given to save_for_backward. inner: how many
    inner tensors the forward graph returns behind the outputs. gradients: for each input the place of its gradient in
    what the backward graph returns, None where that is None. function: the stand-in.
    """

    forward_takes: tuple[tuple[str, int], ...]
    backward_takes: tuple[tuple[str, int], ...] = ()
    saved: tuple[tuple[str, int], ...] = ()
    outputs: int = 1
    inner: int = 0
    dirty: tuple[int, ...] = ()
    non_differentiable: tuple[int, ...] = ()
    gradients: tuple[int | None, ...] = ()
    function: type = field(default=torch.autograd.Function)


class TracedFunction(torch.autograd.Function):
    """The stand-in. Tensors reach it one by one, for autograd looks at those; what it reads freely comes in a tuple."""

    @staticmethod
    def forward(ctx: Any, plan: FunctionPlan, graphs: tuple[Any, Any], free: tuple[Any, ...], *inputs: Any) -> Any:
        values = {"input": inputs, "free": free}
        results = graphs[0].forward(*(values[kind][at] for kind, at in plan.forward_takes))
        values["output"], values["inner"] = results[: plan.outputs], results[plan.outputs :]
        if plan.dirty:
            ctx.mark_dirty(*(inputs[at] for at in plan.dirty))
        ctx.mark_non_differentiable(*(results[at] for at in plan.non_differentiable))
        ctx.save_for_backward(*(values[kind][at] for kind, at in plan.saved))
        kept = [place for place in plan.backward_takes if place[0] != "grad" and place not in plan.saved]
        ctx.kept = {place: values[place[0]][place[1]] for place in kept}
        ctx.plan, ctx.backward_graph = plan, graphs[1]
        return results[: plan.outputs]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        plan = ctx.plan
        saved = dict(zip(plan.saved, ctx.saved_tensors)) if plan.saved else {}

        def value(place: tuple[str, int]) -> Any:
            if place[0] == "grad":
                return grads[place[1]]
            return saved[place] if place in saved else ctx.kept[place]

        results = ctx.backward_graph.forward(*map(value, plan.backward_takes))
        return (None, None, None, *(None if at is None else results[at] for at in plan.gradients))


def stand_in(name: str, once: bool) -> type[TracedFunction]:
    """The stand-in for a Function of this name, which autograd's messages show; once: its backward is
    once_differentiable."""
    members = {"backward": staticmethod(torch.autograd.function.once_differentiable(TracedFunction.backward))}
    return type(name, (TracedFunction,), members if once else {})


def traced_function(
    plan: FunctionPlan, forward: Any, backward: Any, free: tuple[Any, ...], *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Apply a traced Function; the tensors that its forward returned."""
    return plan.function.apply(plan, (forward, backward), free, *inputs)  # type: ignore[attr-defined]
