"""Running autograd's engine inside a graph: what it may reach, and which results of the graph it used up.

The engine runs on the fakes, and what it dispatches is recorded like any other call. That is right as long as it meets
nothing from outside the graph: no history of an input, no hook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ..errors import Unsupported, UserLine
from .geometry import has_storage, is_dense, overlaps, same_geometry, storage_key
from .history import history
from .refusals import quiet_fakes
from .wrapper_tensors import is_fake

OUTER_HISTORY = "torch::autograd::Error"
"""The name of the node that a fake has in place of the history of the real input."""

_REMEDY = "compute gradients outside the compiled function, or compile the whole computation"


def engine_gradients(
    roots: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    seeds: Sequence[torch.Tensor | None],
    retain_graph: bool | None,
    create_graph: bool,
) -> tuple[torch.Tensor | None, ...]:
    """What backward() adds to the .grad of each leaf, laid out as it was captured: some formulas go another way, to
    another layout, where no dispatch mode looks on."""
    found = torch.autograd.grad(roots, leaves, seeds, retain_graph, create_graph, allow_unused=True)
    if create_graph:
        return found
    return tuple(map(_laid_out_like, found, leaves))


def _laid_out_like(gradient: torch.Tensor | None, leaf: torch.Tensor) -> torch.Tensor | None:
    if gradient is None or is_fake(gradient) or not (has_storage(gradient) and has_storage(leaf)):
        return gradient
    if same_geometry(gradient, leaf) or overlaps(leaf) or gradient.dtype is not leaf.dtype:
        return gradient
    if not is_dense(leaf):
        return gradient.contiguous()
    return torch.empty_like(leaf, requires_grad=False).copy_(gradient)


ENGINE_CALLS = (torch.autograd.grad, engine_gradients)


def leaves_behind(roots: Iterable[torch.Tensor], line: UserLine | None) -> list[torch.Tensor]:
    """The leaves whose gradients the engine computes, in the order in which it may reach them."""
    found: dict[int, torch.Tensor] = {}
    seen: set[Any] = set()
    waiting: list[Any] = []
    for root in roots:
        if root.grad_fn is not None:
            waiting.append(root.grad_fn)
        elif root.requires_grad:
            found[id(root)] = root
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name() == OUTER_HISTORY:
            raise outer_history("backward()", line)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            found[id(leaf)] = leaf
        waiting.extend(behind for behind, _ in reversed(node.next_functions) if behind is not None)
    return list(found.values())


def outer_history(what: str, line: UserLine | None) -> Unsupported:
    """The break for gradients that would flow on outside the graph."""
    return Unsupported(
        f"{what} meets an input whose gradient history lies outside the graph", where=line, remedy=_REMEDY
    )


def refuse_outer_gradients(inputs: Iterable[Any], reals: Iterable[torch.Tensor], line: UserLine | None) -> None:
    """torch.autograd.grad inside a graph can't see the history that an input has outside it, nor run its hooks."""
    if any(item.requires_grad and not item.is_leaf for item in inputs):
        raise outer_history("torch.autograd.grad", line)
    if any(real._backward_hooks for real in reals):
        raise Unsupported("torch.autograd.grad meets an input that has hooks", where=line, remedy=_REMEDY)


def spent_outputs(outputs: Sequence[Any], record: Any, fake_mode: Any) -> dict[int, str]:
    """Which outputs (GraphValues) carry a history that no backward can use, by place, and what autograd says to one.

    An engine run inside the graph has freed what the history needs, or the program has changed it in place since.
    """
    facts = record.facts if record is not None else ()
    edges = [fact.fake if fact.edge is None else fact.edge for fact in facts if fact and fact.requires_grad]
    found = {}
    with quiet_fakes(), torch.autograd.set_multithreading_enabled(False), fake_mode:
        for at, value in enumerate(outputs):
            if isinstance(value.fake, torch.Tensor) and history(value.fake) is not None and edges:
                words = _refusal(value.fake, edges)
                if words is not None:
                    found[at] = words
    if found and not torch.is_grad_enabled():
        raise Unsupported(
            "a result whose history a backward has used up leaves code that runs without gradients",
            remedy="detach() the result",
        )
    return found


def _refusal(fake: torch.Tensor, edges: Sequence[Any]) -> str | None:
    try:
        torch.autograd.grad(fake, edges, torch.empty_like(fake), retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        words = str(error)
        return words if any(part in words for part in _USED_UP) else None
    return None


_USED_UP = ("backward through the graph a second time", "modified by an inplace operation")


def known_storages(inputs: Iterable[Any], calls: Iterable[Any]) -> set[int]:
    """The storages of the inputs of a graph and of what it has computed so far (geometry.storage_key)."""
    found = {storage_key(item.fake) for item in inputs if item.is_tensor}
    found.update(storage._cdata for call in calls for storage in call.storages)
    return found
