"""Inputs that share memory, of which one is written to: one of them stands for the memory, the others are its views.

Enters: an AtenRecord. Leaves: for an input, the other one in whose memory it lies. The capture guards how far apart
inputs begin and what sizes and strides they have, so the relation holds on every call of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .geometry import extent, is_static, overlaps, storage_key
from .mutation import written_arguments
from .recorder import AtenRecord, InputFacts


def owners(record: AtenRecord) -> dict[int, int]:
    """Input -> the input that covers its memory without gaps. Only for storages that some call writes to, inference,
    sizes that are numbers and one dtype; what is left out is refused where it is written to.
    """
    groups: dict[int, list[int]] = {}
    for index, facts in enumerate(record.facts):
        if facts is not None:
            groups.setdefault(facts.storage._cdata, []).append(index)
    if all(len(group) == 1 for group in groups.values()):
        return {}
    written = {storage_key(fake) for call in record.calls for fake in written_arguments(call) if _is_strided(fake)}
    found: dict[int, int] = {}
    for key, group in groups.items():
        if len(group) > 1 and key in written:
            fakes = [record.inputs[index] for index in group]
            owner = _owner(fakes)
            if owner is not None:
                found.update((index, group[owner]) for at, index in enumerate(group) if at != owner)
    return found


def is_counted(facts: InputFacts) -> bool:
    """Whether autograd counts a write of the program's to the input itself."""
    return facts.version is not None and facts.fake._version != facts.version


def count_of(facts: InputFacts | None) -> int:
    """The same for inputs that share one count of writes: a tensor and its views."""
    assert facts is not None
    fake = facts.fake
    return id(fake._base if fake._is_view() else fake)


def _owner(fakes: Sequence[Any]) -> int | None:
    if not all(_is_strided(fake) and is_static(fake) and not fake.requires_grad for fake in fakes):
        return None
    if len({fake.dtype for fake in fakes}) > 1 or any(overlaps(fake) for fake in fakes):
        return None
    low = min(fake.storage_offset() for fake in fakes)
    high = max(fake.storage_offset() + extent(fake) for fake in fakes)
    for at, fake in enumerate(fakes):
        if fake.storage_offset() == low and low + extent(fake) == high and extent(fake) == fake.numel():
            return at
    return None


def _is_strided(fake: Any) -> bool:
    return isinstance(fake, torch.Tensor) and fake.layout is torch.strided and isinstance(fake.storage_offset(), int)
