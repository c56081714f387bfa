"""Results that lie in their operand's memory although autograd takes them for tensors of their own.

`unsafe_split` and its kin promise autograd that operand and results are not both used after a write to one of them. In
memory they are views all the same. A program that keeps the promise is recorded with separate stores: no view has to be
taken again, and no base scattered into. One that breaks it sees the writes, and one that returns both returns tensors
that share memory: there the results are views in the memory model, while gradients stay those that the engine records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .geometry import has_storage, storage_key
from .recorder import AtenRecord, Call
from .tree import leaves

SEPARATE = frozenset("aten::_unsafe_view aten::unsafe_split aten::unsafe_split_with_sizes aten::unsafe_chunk".split())


def joined_calls(record: AtenRecord, outputs: Sequence[Any]) -> frozenset[int]:
    """The ids of the calls whose results the program tells from memory of their own."""
    found = []
    for at, call in enumerate(record.calls):
        if call.op._schema.name in SEPARATE and not call.backward and has_storage(call.args[0]):
            if _is_told(record, at, outputs):
                found.append(id(call))
    return frozenset(found)


def _is_told(record: AtenRecord, at: int, outputs: Sequence[Any]) -> bool:
    call = record.calls[at]
    key = storage_key(call.args[0])
    results = {id(leaf) for leaf in _tensors(call.result)}
    written = [False, False]  # through the operand's side, through the results' side
    for later in record.calls[at + 1 :]:
        operands = [leaf for leaf in _tensors((later.args, later.kwargs)) if _lies_in(leaf, key)]
        if not operands:
            continue
        if any(written[id(leaf) not in results] for leaf in operands):
            return True
        if any(id(leaf) in results for leaf in operands):
            results |= {id(leaf) for leaf in _tensors(later.result) if _lies_in(leaf, key)}
        for leaf in _written(later):
            if _lies_in(leaf, key):
                written[id(leaf) in results] = True
    shared = [leaf for leaf in _tensors(list(outputs)) if _lies_in(leaf, key)]
    inner = any(id(leaf) in results for leaf in shared)
    outer = any(id(leaf) not in results for leaf in shared) or _is_input(record, key)
    return inner and (outer or written[False]) or outer and written[True]


def _is_input(record: AtenRecord, key: Any) -> bool:
    return any(facts is not None and storage_key(facts.fake) == key for facts in record.facts)


def _lies_in(leaf: Any, key: Any) -> bool:
    return has_storage(leaf) and storage_key(leaf) == key


def _tensors(tree: Any) -> Iterator[Any]:
    return (leaf for leaf in leaves(tree) if isinstance(leaf, torch.Tensor))


def _written(call: Call) -> Iterator[Any]:
    for at, argument in enumerate(call.op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(call.kwargs.get(argument.name, call.args[at] if at < len(call.args) else None))
