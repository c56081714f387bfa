"""What autograd's nodes save: asked of nodes of eager's, and kept beyond the backward that frees it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _C
from . import active_modes

_RAW = "_raw_saved_"
_USED_UP = frozenset(("CopySlices",))
"""Nodes that a backward uses up although they show no saved tensors."""


def saved_by(node: Any) -> list[torch.Tensor] | None:
    """The tensors that a node of autograd keeps until a backward has run it (those that it shows); None for none."""
    if type(node).__name__ in _USED_UP:
        return []
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return _python_saved(node)
    found = [each for name in _names(type(node)) for each in _opened(node, name, getattr(node, name))]
    return [each for each in found if isinstance(each, torch.Tensor)] if found else None  # hooks put others there


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(name for name in dir(cls) if name.startswith(_RAW))


def _python_saved(node: Any) -> list[torch.Tensor] | None:
    try:
        raw = node._raw_saved_tensors
        unopened = all(hasattr(each, "data") for each in raw)  # hooks would run: that of a checkpoint, its region
        values = [each.data for each in raw] if unopened else node.saved_tensors
        found = [value for value in values if value is not None]
    except RuntimeError:  # written to since
        return []
    return [value for value in found if isinstance(value, torch.Tensor)] if found else None


def _opened(node: Any, name: str, raw: Any) -> list[Any]:
    """What was saved in one place; an operator leaves places empty that no gradient needs."""
    if isinstance(raw, tuple | list):
        return [each for item in raw for each in _opened(node, name, item)]
    # 2.13: the saved tensor shows it, before: the node does, and checks whether it was written to
    try:
        value = raw.data if hasattr(raw, "data") else getattr(node, name.replace(_RAW, "_saved_", 1))
    except RuntimeError:
        return []
    values = value if isinstance(value, tuple | list) else (value,)
    return [each for each in values if each is not None]


def is_below_autograd() -> bool:
    """Whether this thread calls past autograd, as the kernels of custom operators do: no result has a history."""
    return torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)  # type: ignore[no-any-return]


def keeps_graph_function() -> Callable[[], bool]:
    """() -> whether the backward that runs now leaves the saved tensors to later ones (retain_graph)."""
    return torch._C._autograd._get_current_graph_task_keep_graph  # type: ignore[no-any-return]


def raw_saved_tensors(ctx: Any) -> Sequence[Any]:
    """What an autograd.Function's context has saved, unopened. Raises autograd's error where it was freed."""
    return ctx._raw_saved_tensors  # type: ignore[no-any-return]


def has_unpack_hooks(ctx: Any) -> bool:
    """Whether what the context has saved went through hooks: then autograd checks no versions."""
    return any(getattr(raw, "unpack_hook", None) is not None for raw in ctx._raw_saved_tensors)


def runs_part_function() -> Callable[[], bool]:
    """() -> whether the backward that runs now is for some of the inputs only; where torch doesn't tell, it may be."""
    return (lambda: True) if _C.backward_runs_part() is None else _C.backward_runs_part  # type: ignore[return-value]


@functools.cache
def edges_run_function() -> Callable[[tuple[Any, ...], tuple[int, ...], Callable[[Any], bool]], bytes]:
    """(a node's next_functions, places, runs_node) -> a byte for each: 1 where the backward goes on with it.

    From the engine's table, where that is read right; else torch is asked for each node, and is slow about leaves.
    """
    return _C.backward_edges_run if _table_is_read_right() else edges_asked


def edges_asked(edges: tuple[Any, ...], wanted: tuple[int, ...], ask: Callable[[Any], bool]) -> bytes:
    """What edges_run_function() tells, from `ask` alone."""
    return bytes(edges[at][0] is not None and ask(edges[at][0]) for at in wanted)


def runs_node(node: Any) -> bool:
    """Whether the backward that runs now runs a node."""
    try:
        return torch._C._will_engine_execute_node(node)  # type: ignore[no-any-return]
    except RuntimeError:  # a leaf whose gradient is asked for: of these it won't speak
        return True


def _table_is_read_right() -> bool:
    """Tried with a backward for one of two leaves: it ends at one node, runs another, and leaves two alone."""
    read = []
    with active_modes.beside_modes():
        asked, other = (torch.ones((), device="cpu", requires_grad=True) for _ in range(2))
        inner = -asked, -other  # which save nothing: hooks of the program's are not called
        nodes = [value.grad_fn for value in inner]
        edges = tuple((node, 0) for node in (*nodes, *(node.next_functions[0][0] for node in nodes)))
        result = inner[0] + inner[1]
        result.register_hook(lambda _: read.append(_C.backward_edges_run(edges, (0, 1, 2, 3), None)))
        torch.autograd.grad(result, asked)
    return read == [bytes((1, 0, 1, 0))]


def written_to(shape: Sequence[int], version: int, expected: int) -> RuntimeError:
    """The error for a saved tensor that was written to, in autograd's terms."""
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of "
        f"shape {list(shape)} is at version {version}, and was saved at version {expected}"
    )


class KeptTensor:
    """A tensor that a later backward may ask for, unless it is written to until then. weak: as long as it lives."""

    def __init__(self, tensor: torch.Tensor, weak: bool = False) -> None:
        self._reference = weakref.ref(tensor) if weak else lambda: tensor
        self._version = None if tensor.is_inference() else tensor._version

    def get(self) -> torch.Tensor | None:
        """The tensor. Raises RuntimeError in autograd's terms where it was written to."""
        tensor = self._reference()
        if tensor is not None and self._version is not None and tensor._version != self._version:
            raise written_to(tensor.shape, tensor._version, self._version)
        return tensor


def defaults_of(function: type) -> type:
    """The class of an autograd.Function's contexts: its attributes are what a context has until it is given its own."""
    return function._backward_cls  # type: ignore[attr-defined, no-any-return]
