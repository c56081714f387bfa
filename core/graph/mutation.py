"""Which inputs a record writes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .geometry import has_storage, storage_key
from .recorder import AtenRecord, Call
from .tree import leaves
from .wrapper_tensors import is_wrapper, plain_tensors

UNDECLARED = {
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
}
"""Operators that write to arguments (by position) without saying so in their schema, when argument 5 (training) is
true.
"""


def written_arguments(call: Call) -> Iterator[Any]:
    """The tensors a call writes to."""
    schema = call.op._schema
    undeclared = UNDECLARED.get(schema.name)
    if undeclared is not None and call.args[5]:
        yield from (call.args[at] for at in undeclared if call.args[at] is not None)
    if not schema.is_mutable:
        return
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = (
                call.kwargs.get(argument.name)
                if argument.kwarg_only or position >= len(call.args)
                else call.args[position]
            )
            yield from (leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor))


def mutated_inputs(record: AtenRecord) -> frozenset[int]:
    """Indices of the inputs whose storage some call writes to."""
    by_storage: dict[int, list[int]] = {}
    for index, facts in enumerate(record.facts):
        if facts is not None:
            by_storage.setdefault(facts.storage._cdata, []).append(index)
        for inner in plain_tensors(facts.fake) if facts is not None and is_wrapper(facts.fake) else ():
            by_storage.setdefault(storage_key(inner), []).append(index)
    found: set[int] = set()
    for call in record.calls:
        for fake in written_arguments(call):
            if has_storage(fake):
                found.update(by_storage.get(storage_key(fake), ()))
    return frozenset(found)


def fixed_offsets(record: AtenRecord) -> tuple[tuple[int, int], ...]:
    """(input, storage offset) of the inputs that as_strided reads: it counts from the beginning of the storage."""
    storages = {
        storage_key(call.args[0])
        for call in record.calls
        if call.op is torch.ops.aten.as_strided.default and has_storage(call.args[0])
    }
    if not storages:
        return ()
    facts = [(index, item) for index, item in enumerate(record.facts) if item is not None]
    return tuple(
        (index, item.offset)
        for index, item in facts
        if item.storage._cdata in storages and isinstance(item.offset, int)
    )
