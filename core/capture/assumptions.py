"""Branches on a tensor of which one way raises: `assert (x > 0).all()`, `if not valid.all(): raise ValueError(...)`.

Tracing goes the other way and notes what it assumed. The replacement code asks the tensor when the graph has run and
nothing else has been done; where it says otherwise, the frame runs as it was written, from its start (as_written.py),
and raises what eager raises. That a program may run again needs a graph without effects: one that writes to its inputs
or calls operators of unknown effect ends before the branch instead; random numbers of the CPU are drawn again as they
were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..bytecode import emit
from ..bytecode.opcodes import JUMPS, UNCONDITIONAL_JUMPS
from ..errors import UserLine
from ..graph.captured import CapturedGraph
from ..graph.data_errors import PURE_NAMESPACES
from ..graph.repeatable import draws_elsewhere
from ..variables.base import VariableTracker
from .as_written import WayOut
from .side_effects import NotGivenBack

VT = VariableTracker
LONGEST_WAY = 400
"""Instructions looked at between a branch and its `raise`: the longest message in torch's own checks takes about 80."""
ENDS = frozenset(("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "RERAISE", "SEND"))


@dataclass(frozen=True)
class Assumption:
    """A tensor's truth that tracing took for granted. step: of the root frame; version: counts writes to the tensor."""

    condition: VT
    expected: bool
    version: int
    step: int
    line: UserLine | None


def assume(tx: Any, instruction: Any, wanted: bool) -> bool | None:
    """The truth of the tensor on the stack that avoids an exception, noted; None where neither or both ways raise.

    wanted: the truth for which `instruction` jumps.
    """
    condition = tx.stack[-1].realize(tx)
    if condition.kind not in ("tensor", "tensor_truth") or not _is_single(condition.fake.shape) or tx.builder.in_region:
        return None
    if condition.fake.is_inference():  # nothing counts the writes to it
        return None
    there = _raises(tx, tx.decoded.index_of(instruction.target))
    here = _raises(tx, tx.index)
    if there == here or any(_catches(frame) for frame in _frames(tx)):
        return None
    expected = wanted if here else not wanted
    version = condition.fake._version
    tx.trace.assumptions.append(Assumption(condition, expected, version, tx.trace.step, tx.line))
    return expected


def _is_single(shape: Any) -> bool:
    return all(type(size) is int and size == 1 for size in shape)


def _raises(tx: Any, index: int) -> bool:
    """True when the way from here does nothing but make an exception and raise it."""
    for _ in range(LONGEST_WAY):
        instruction = tx.instructions[index]
        if instruction.opname == "RAISE_VARARGS":
            return bool(instruction.arg)
        if instruction.opname in UNCONDITIONAL_JUMPS and instruction.target is not None:
            index = tx.decoded.index_of(instruction.target)
        elif instruction.opname in JUMPS or instruction.opname in ENDS:
            return False
        else:
            index += 1
    return False


def _frames(tx: Any) -> list[Any]:
    found = []
    while tx is not None:
        found.append(tx)
        tx = tx.parent
    return found


def _catches(frame: Any) -> bool:
    """True where an except or finally of this frame would see the exception: it may be the program's usual way."""
    entry = frame.decoded.handler_of(frame.current)
    if entry is None:
        return False
    start = frame.decoded.index_of(entry.target)
    return all(instruction.opname != "WITH_EXCEPT_START" for instruction in frame.instructions[start : start + 2])


def write(emitter: Any, trace: Any, way_out: WayOut) -> None:
    """Ask each tensor; where one says otherwise, leave by way of the code as written."""
    for assumption in trace.assumptions:
        jump = emit.pop_jump_if_false if assumption.expected else emit.pop_jump_if_true
        emitter.load(assumption.condition)
        emitter.add(jump(way_out.wrong))


def verify(trace: Any, graph: CapturedGraph) -> None:
    """Raise NotGivenBack for a graph that can't have run in vain."""
    if not trace.assumptions:
        return
    record = graph.record
    if record is None or record.refused is not None:
        why = "calls what its record does not show"
    elif graph.mutated:
        why = "writes to a tensor that the caller has"
    elif any(item.condition.fake._version != item.version for item in trace.assumptions):  # type: ignore[attr-defined]
        why = "writes to the tensor that is checked"
    elif graph.spent:
        why = "uses up the history of a tensor that the caller has"
    elif any(draws_elsewhere(call) for call in record.calls):
        why = "draws random numbers of a generator of their own"
    elif any(call.op.namespace not in PURE_NAMESPACES for call in record.calls):
        why = "calls an operator of unknown effect"
    else:
        return
    first = trace.assumptions[0]
    raise NotGivenBack(
        f"a check depends on the value of a tensor, and the graph {why}",
        first.step,
        where=first.line,
        remedy="make the check outside the compiled function, or before anything changes",
    )
