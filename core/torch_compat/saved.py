"""What autograd's nodes save: asked of nodes of eager's, and kept beyond the backward that frees it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _C

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
        return [value for value in node.saved_tensors if value is not None] or None
    except RuntimeError:  # written to since
        return []


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


def edges_run(node: Any) -> frozenset[int]:
    """The edges of a node with which the backward that runs now goes on."""
    return frozenset(at for at, (following, _) in enumerate(node.next_functions) if _is_run(following))


def _is_run(node: Any) -> bool:
    try:
        return node is not None and torch._C._will_engine_execute_node(node)
    except RuntimeError:  # a leaf whose gradient is asked for: of these it won't speak
        return True


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
