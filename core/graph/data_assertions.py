"""What tracing took for granted of sizes and numbers that only the data gives: two masks that select equally many.

Eager raises where it does not hold. A kernel that was compiled for it would read past the end of a tensor, so the
record asserts it, before the operation that relies on it.
"""

from __future__ import annotations

import torch

from .. import torch_compat
from ..errors import UserLine
from ..torch_compat.assumptions import condition_as_made
from .recorder import AtenRecord, Call
from .symbols import input_symbols

ASSERT = torch.ops.aten._assert_scalar.default


def note_assertions(record: AtenRecord, mark: int, line: UserLine | None) -> None:
    """Write down what the calls from `mark` on take for granted, in front of them; the program's own assertions are
    there already, and conditions on sizes of inputs are guarded."""
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
        call = Call(ASSERT, (condition, f"assumed of the data: {promise}"), {}, None)
        call.line = line
        record.calls.insert(mark, call)


def is_assertion(call: Call) -> bool:
    """True for an assertion about numbers of the data."""
    return call.op is ASSERT and isinstance(call.args[0], torch.SymBool)
