"""Hooks that the traced code registers on tensors.

A hook on a tensor from outside is registered when the graph has run. One on a tensor that the graph makes is traced
where it is registered and becomes part of the backward; what it reads is read then and guarded, and it may change
nothing. A hook that can't be had so ends the graph before its registration, and Python registers it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import torch_compat
from ..errors import Unsupported
from ..graph.geometry import has_storage, storage_key
from ..graph.hook_region import TensorHook, hooked
from ..graph.mutation import written_arguments
from ..graph.region import Region
from ..variables.base import VariableTracker
from ..variables.hook import HookHandleVariable, InnerHookVariable, InputHookVariable
from ..variables.tensor import TensorVariable
from .regions import refuse_escapes, trace_body
from .side_effects import NotGivenBack

VT = VariableTracker

OUTSIDE = "register the hook outside the compiled function"


def register(tx: Any, tensor: TensorVariable, method: str, hook: VT) -> VT:
    """tensor.register_hook(hook) or tensor.register_post_accumulate_grad_hook(hook)."""
    hook = hook.realize(tx)
    _raise_as_eager(tx, tensor, method)
    if tx.builder.in_region:
        raise Unsupported(
            "registering a hook in the body of a traced Function or transform is not traced", remedy=OUTSIDE
        )
    step = tx.trace.step
    handle: HookHandleVariable
    if tensor.source is not None:
        handle = InputHookVariable(_unwritten(tx, tensor, step), tensor, method, hook)
    elif method != "register_hook" or tensor.real is not None:
        raise Unsupported(f"Tensor.{method}() on this tensor is not traced", remedy=OUTSIDE)
    else:
        handle = _register_inside(tx, tensor, hook, step)
    tx.side_effects.mutated(handle)
    return handle


def refuse_pending(tx: Any) -> None:
    """Raise Unsupported when a tensor from outside was given a hook, which gradients in the graph would not meet."""
    if any(not handle.removed for handle in tx.side_effects.of_kind("hook_handle")):
        raise Unsupported("gradients are computed after a hook was registered in the same graph", remedy=OUTSIDE)


def _raise_as_eager(tx: Any, tensor: TensorVariable, method: str) -> None:
    """Raise in the traced program what registering raises: the tensor needs no gradient, or is no leaf."""
    try:
        getattr(tensor.fake, method)(print).remove()
    except RuntimeError as error:
        tx.raise_exception(RuntimeError, *error.args)


def _unwritten(tx: Any, tensor: TensorVariable, step: int) -> Callable[[], None]:
    """A hook belongs to the value that the tensor has when it is registered: refuse where the graph writes to it."""
    value = tensor.value

    def settle() -> None:
        if tensor.value is not value or is_written(tx.builder.recorded_calls, value.fake):
            raise NotGivenBack("a tensor with a hook is written to in the same graph", step, remedy=OUTSIDE)

    return settle


def is_written(calls: Any, fake: torch.Tensor) -> bool:
    """Whether one of the recorded calls writes to the memory of a fake tensor."""
    return any(
        has_storage(written) and storage_key(written) == storage_key(fake)
        for call in calls
        for written in written_arguments(call)
    )


# -- hooks inside the graph --------------------------------------------------------------------------------------------


def _register_inside(tx: Any, tensor: TensorVariable, function: VT, step: int) -> VT:
    if tensor.fake._is_view():
        raise Unsupported("a hook on a view is not traced", remedy="register it on a copy, or " + OUTSIDE)
    moment = VariableTracker().made
    region, outputs = _traced(tx, tensor, function)
    refuse_escapes(tx, moment, (region,))
    free = tuple(region.inputs())
    graph = region.close(outputs)
    hook = TensorHook()
    tx.builder.call_function(hooked, (tensor.value, hook, graph, free), {}, line=tx.line)
    calls = _written_down(graph)

    def settle() -> None:
        """The hook reads its surroundings when the gradient arrives: what the frame does after it must not matter."""
        again, results = _traced(tx, tensor, function)
        same = tuple(map(id, again.inputs())) == tuple(map(id, free))
        if not same or _written_down(again.close(results)) != calls:
            raise NotGivenBack("what a hook reads changes after its registration", step, remedy=OUTSIDE)

    return InnerHookVariable(settle, hook)


def _traced(tx: Any, tensor: TensorVariable, function: VT) -> tuple[Region, list[Any]]:
    """The hook's code as an open region, and the values it returns: the gradient in place of the one given, or none."""
    builder, fake = tx.builder, tensor.fake
    sealed = tx.side_effects.sealed("a tensor hook changes something outside of it", OUTSIDE)
    with torch_compat.without_autocast(), builder.region("hook", grad=False) as region, sealed:
        region.open_layouts = True
        with builder.fake_mode:
            gradient = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        value = builder.add_region_input(region, gradient)
        mark = len(builder.recorded_calls)
        result = trace_body(tx, "a tensor hook", lambda: tx.call_function(function, [tx.graph_result(value)]))
        if is_written(builder.recorded_calls[mark:], gradient):
            raise Unsupported("a tensor hook writes to the gradient it is given", remedy="return a new tensor")
        if result.is_constant() and result.as_constant() is None:
            return region, []
        if not isinstance(result, TensorVariable) or not _is_like(result.fake, fake):
            raise Unsupported("a tensor hook returns something unlike the gradient", remedy=OUTSIDE)
        return region, [result.value]


def _is_like(result: Any, fake: Any) -> bool:
    return result.shape == fake.shape and result.dtype == fake.dtype and result.device == fake.device


def _written_down(graph: Any) -> list[tuple[Any, ...]]:
    return [(node.op, node.target, str(node.args), str(node.kwargs)) for node in graph.graph.nodes]
