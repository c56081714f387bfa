"""Writes to memory that the same call reads in another order, or to a tensor whose elements share memory.

Most real kernels refuse these; fake kernels don't look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..errors import Unsupported, UserLine
from .geometry import extent, has_storage, hint, overlaps, same_geometry, storage_key
from .mutation import written_arguments
from .recorder import AtenRecord, Call
from .refusals import eager_exception
from .tree import leaves


def refuse_overlapping_writes(
    record: AtenRecord,
    mark: int,
    fn: Callable[..., Any],
    name: str,
    args: Any,
    kwargs: Any,
    line: UserLine | None,
) -> Exception | None:
    """What eager raises for such a write among the calls since `mark`; raises Unsupported where it can't be asked."""
    written = [(call, fake) for call in record.calls[mark:] if call.before is None for fake in _written(call)]
    folded = any(overlaps(fake) for _, fake in written)
    if not folded and not any(_reads_across(call, fake) for call, fake in written):
        return None
    found = eager_exception(fn, args, kwargs)
    if found is False and not folded:  # the kernel takes care of it
        return None
    del record.calls[mark:]
    if isinstance(found, Exception):
        return found
    what = "a tensor whose elements share memory" if folded else "memory that it reads in another order"
    raise Unsupported(f"{name} writes to {what}", where=line, remedy="clone() the tensor first")


def _written(call: Call) -> Iterator[Any]:
    return (fake for fake in written_arguments(call) if has_storage(fake))


def _reads_across(call: Call, written: Any) -> bool:
    """True when another tensor of the call has some of the memory written to, but not the same in the same order."""
    low, high = _span(written)
    for fake in leaves((call.args, call.kwargs)):
        if not isinstance(fake, torch.Tensor) or fake is written or not has_storage(fake):
            continue
        if storage_key(fake) != storage_key(written):
            continue
        start, end = _span(fake)
        if start < high and low < end and not (start == low and same_geometry(fake, written)):
            return True
    return False


def _span(fake: Any) -> tuple[int, int]:
    start = hint(fake.storage_offset())
    return start, start + extent(fake)
