"""Calls that write to several tensors at once, as calls that write to one after the other.

Kernels take the tensors of a list in turn: what is written to the first is there for those that share its memory.
"""

from __future__ import annotations

from typing import Any

import torch

from .geometry import has_storage, storage_key
from .recorder import Call
from .tree import leaves

_PREFIX = "aten::_foreach_"


def interferes(call: Call) -> bool:
    """True for a call on lists in which a tensor that is written to shares memory with another element's operand."""
    if not call.op._schema.name.startswith(_PREFIX) or not call.op._schema.is_mutable:
        return False
    count = len(call.args[0])
    owners: dict[int, set[int]] = {}
    for value in (*call.args, *call.kwargs.values()):
        for at, item in enumerate(value if isinstance(value, (list, tuple)) else [value] * count):
            if isinstance(item, torch.Tensor) and has_storage(item):
                owners.setdefault(storage_key(item), set()).add(at)
    return any(len(owners[storage_key(target)]) > 1 for target in leaves(call.args[0]) if has_storage(target))


def one_by_one(call: Call) -> list[Call]:
    """The call for each element of its lists."""
    count = len(call.args[0])

    def of_one(value: Any, at: int) -> Any:
        return [value[at]] if isinstance(value, (list, tuple)) and len(value) == count else value

    made = []
    for at in range(count):
        kwargs = {name: of_one(value, at) for name, value in call.kwargs.items()}
        single = Call(call.op, tuple(of_one(value, at) for value in call.args), kwargs, None)
        single.node, single.line, single.grad, single.backward = call.node, call.line, call.grad, call.backward
        made.append(single)
    return made
