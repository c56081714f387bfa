"""What tracing took for granted of sizes and numbers that only the data gives: two masks that select equally many.

Eager raises where it does not hold. A kernel that was compiled for it would read past the end of a tensor, so the
record asserts it, before the operation that relies on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch

from .. import torch_compat
from ..errors import UserLine
from ..torch_compat.assumptions import condition_as_made
from .recorder import AtenRecord, Call
from .symbols import expression, input_symbols
from .tree import leaves

ASSERT = torch.ops.aten._assert_scalar.default


def note_assertions(record: AtenRecord, mark: int, line: UserLine | None) -> None:
    """Write down what the calls from `mark` on take for granted, in front of them, or behind the one of them that gives
    the number; the program's own assertions are there already, and conditions on sizes of inputs are guarded.

    A symbol that no call gives as a number or a size was made up by a rule for fakes and has no value to ask about.
    """
    promises = torch_compat.deferred_assertions(record.shape_env)
    if len(promises) == len(record.asserted):
        return
    own = any(call.op is ASSERT for call in record.calls[mark:])
    of_inputs = input_symbols(facts.size for facts in record.facts if facts is not None)
    for promise in promises:
        if promise in record.asserted:
            continue
        record.asserted.add(promise)
        if own or promise.free_symbols <= of_inputs:
            continue
        condition = condition_as_made(record.shape_env, promise)
        place = _where_known(record, mark, torch_compat.original_expression(condition).free_symbols - of_inputs)
        if place is None:
            continue
        call = Call(ASSERT, (condition, f"assumed of the data: {promise}"), {}, None)
        call.line = line
        record.calls.insert(place, call)


def _where_known(record: AtenRecord, mark: int, symbols: Collection[Any]) -> int | None:
    """The first place from `mark` on where calls before it have given all of the symbols; None where there is none."""
    missing = set(symbols)
    place = mark
    for at, call in enumerate(record.calls):
        if not missing:
            break
        found = missing.intersection(_given_by(call))
        if found:
            missing -= found
            place = max(mark, at + 1)
    return None if missing else place


def _given_by(call: Call) -> Iterator[Any]:
    """The symbols that can be read from the results of a call: numbers, and sizes of tensors. Those of a view follow
    from its arguments."""
    if any(result.alias_info is not None for result in call.op._schema.returns):
        return
    for leaf in leaves(call.result):
        for number in leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,):
            if isinstance(number, (torch.SymInt, torch.SymFloat)):
                yield from (torch_compat.original_expression(number), expression(number))


def is_assertion(call: Call) -> bool:
    """True for an assertion about numbers of the data."""
    return call.op is ASSERT and isinstance(call.args[0], torch.SymBool)
