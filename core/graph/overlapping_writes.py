"""Writes to memory that the same call reads as another operand, or to a tensor whose elements share memory.

Most real kernels refuse these; fake kernels don't look. Some go ahead, and what they read is partly written already:
matrix products, masked_scatter_, reductions into their own operand. No value of the memory before gives that result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import torch_compat
from ..errors import Unsupported, UserLine
from .geometry import extent, has_storage, hint, overlaps, same_geometry, storage_key
from .mutation import written_arguments
from .recorder import AtenRecord, Call
from .refusals import LARGEST_TRIAL_BYTES, eager_exception
from .tree import leaves

_READ_FIRST = frozenset("fill_ masked_fill_ index_fill_".split())
"""Operators whose kernels have read the number that they write before they write."""

_IN_STEP = frozenset(
    "copy cumsum cumprod cummax cummin logcumsumexp sort tril triu renorm _softmax _log_softmax".split()
)
"""Operators beside the pointwise ones that may write to the very elements which they read."""


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
    if not folded and not any(_reads_what_it_writes(call, fake) for call, fake in written):
        return None
    found = eager_exception(fn, args, kwargs)
    del record.calls[mark:]
    if isinstance(found, Exception):
        return found
    what = "a tensor whose elements share memory" if folded else "memory that it reads as another operand"
    raise Unsupported(f"{name} writes to {what}", where=line, remedy="clone() the tensor first")


def _written(call: Call) -> Iterator[Any]:
    return (fake for fake in written_arguments(call) if has_storage(fake))


def _reads_what_it_writes(call: Call, written: Any) -> bool:
    """True when another operand has some of the memory written to, and the kernel may read it too late."""
    name = call.op._schema.name.partition("::")[2]
    in_step = torch.Tag.pointwise in call.op.tags or name.startswith("_foreach_") or name.removesuffix("_") in _IN_STEP
    for fake in _read(call):
        if name in _READ_FIRST and fake.dim() == 0:
            continue
        if has_storage(fake) and storage_key(fake) == storage_key(written) and _meet(fake, written):
            start, first = (hint(one.storage_offset()) for one in (fake, written))
            if not (in_step and start == first and same_geometry(fake, written)):
                return True
    return False


def _meet(left: Any, right: Any) -> bool:
    """Whether two tensors of one memory have elements in common, on the sizes of this call."""
    spans = [_span(left), _span(right)]
    if left.dtype != right.dtype:  # in bytes then
        spans = [(start * fake.itemsize, end * fake.itemsize) for fake, (start, end) in zip((left, right), spans)]
    low, high = min(start for start, _ in spans), max(end for _, end in spans)
    if spans[0][1] <= spans[1][0] or spans[1][1] <= spans[0][0]:
        return False
    if left.dtype != right.dtype or high - low > LARGEST_TRIAL_BYTES:
        return True
    with torch_compat.beside_dispatch_modes():
        taken = torch.zeros(high - low, dtype=torch.bool)
        parts = []
        for fake, (start, _) in zip((left, right), spans):
            geometry = ([hint(size) for size in fake.shape], [hint(stride) for stride in fake.stride()])
            parts.append(taken.as_strided(*geometry, start - low))
        parts[0].fill_(True)
        return bool(parts[1].any())


def _read(call: Call) -> list[Any]:
    """The tensors among the operands but those written to, as often as they are written to."""
    once = Counter(map(id, written_arguments(call)))
    found = []
    for fake in leaves((call.args, call.kwargs)):
        if isinstance(fake, torch.Tensor):
            if once[id(fake)]:
                once[id(fake)] -= 1
            else:
                found.append(fake)
    return found


def _span(fake: Any) -> tuple[int, int]:
    """Where its first element lies, and where the last ends, in elements of its dtype."""
    start = hint(fake.storage_offset())
    return start, start + extent(fake)
