"""Where inputs and results of a capture lie: buffers for inputs, and what becomes of each result after a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Result:
    """One result of a capture.

    kind: "constant", `value` on every call; "input", the input at `source` itself; "view", a view of the input at
    `source` that begins `offset` elements after it; "copied", copied out of `tensor` after each replay; "leased", a
    tensor over the memory of `tensor`; "again", the result at `source` once more.
    """

    kind: str
    value: Any = None
    source: int = -1
    offset: int = 0
    tensor: Any = None


def plan_results(results: Sequence[Any], arguments: Sequence[Any], leased: frozenset[int]) -> tuple[Result, ...]:
    """What becomes of each result of a call with `arguments`."""
    inputs = {id(value): at for at, value in enumerate(arguments) if isinstance(value, torch.Tensor)}
    storages = {storage_address(value): at for at, value in enumerate(arguments) if isinstance(value, torch.Tensor)}
    storages.pop(0, None)
    seen: dict[int, int] = {}
    plan: list[Result] = []
    for at, value in enumerate(results):
        if not isinstance(value, torch.Tensor):
            plan.append(Result("constant", value))
        elif id(value) in seen:
            plan.append(Result("again", source=seen[id(value)]))
        elif id(value) in inputs:
            plan.append(Result("input", source=inputs[id(value)]))
        elif (source := _viewed(value, storages, arguments)) is not None:
            offset = value.storage_offset() - arguments[source].storage_offset()
            plan.append(Result("view", source=source, offset=offset, tensor=value))
        else:
            kind = "leased" if at in leased and value.numel() else "copied"
            plan.append(Result(kind, tensor=value))
        if isinstance(value, torch.Tensor):
            seen.setdefault(id(value), at)
    return tuple(plan)


def _viewed(value: torch.Tensor, storages: dict[int, int], arguments: Sequence[Any]) -> int | None:
    """The argument in whose storage a result of the same dtype lies."""
    source = storages.get(storage_address(value))
    return source if source is not None and arguments[source].dtype is value.dtype else None


def storage_address(value: torch.Tensor) -> int:
    """Where the storage of a tensor begins; 0 for one without memory."""
    return value.untyped_storage().data_ptr() if value.layout is torch.strided else 0


def span(value: torch.Tensor) -> int:
    """How many elements of its storage a tensor reaches over, from its first to its last."""
    if value.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))


def overlaps_itself(value: torch.Tensor) -> bool:
    """Whether two elements may be one place in memory; such a tensor can't be written to element by element."""
    reached = 1
    for stride, size in sorted((stride, size) for size, stride in zip(value.shape, value.stride()) if size > 1):
        if stride < reached:
            return True
        reached = stride * (size - 1) + reached
    return False


def is_dense(value: torch.Tensor) -> bool:
    """Whether its elements are all places of one stretch of memory, each once: a clone has its strides then."""
    return span(value) == value.numel() and not overlaps_itself(value)


def flat(value: torch.Tensor) -> torch.Tensor:
    """The stretch of memory that a tensor reaches over, in one dimension."""
    return value.as_strided((span(value),), (1,))


def buffer_like(value: torch.Tensor) -> torch.Tensor:
    """New memory with the sizes, strides and values of a tensor."""
    with torch.inference_mode(False), torch.no_grad():
        buffer = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        value = value.detach()
        if overlaps_itself(value):
            flat(buffer).copy_(flat(value))
        else:
            buffer.copy_(value)
    return buffer
