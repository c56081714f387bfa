"""Branches on a tensor of which one way raises: `assert (x > 0).all()`, `if not valid.all(): raise ValueError(...)`.

Tracing goes the other way and notes what it assumed. The replacement code asks the tensor when the graph has run and
nothing else has been done; where it says otherwise, the frame runs as it was written, from its start, and raises what
eager raises. That a program may run again needs a graph without effects: one that writes to its inputs or calls
operators of unknown effect ends before the branch instead; random numbers of the CPU are drawn again as they were.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

import torch

from .. import _C
from ..bytecode import emit
from ..bytecode.instruction import ExceptionEntry, Instruction
from ..bytecode.opcodes import JUMPS, UNCONDITIONAL_JUMPS
from ..errors import UserLine
from ..events import FellBack
from ..events import emit as emit_event
from ..graph.captured import CapturedGraph
from ..graph.tree import leaves
from ..options import strict
from ..variables.base import VariableTracker
from .side_effects import NotGivenBack

VT = VariableTracker
LONGEST_WAY = 400
"""Instructions looked at between a branch and its `raise`: the longest message in torch's own checks takes about 80."""
ENDS = frozenset(("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "RERAISE", "SEND"))
PURE_NAMESPACES = ("aten", "prims")


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


class AsWritten:
    """The frame's own code, run from its start on what the frame was called with."""

    def __init__(self, code: types.CodeType, globals_dict: dict[str, Any], grad_mode: bool) -> None:
        self.code = code.replace()
        self.globals = globals_dict
        self.grad_mode = grad_mode
        _C.skip_code(self.code)

    def __call__(self, slots: tuple[Any, ...], closure: tuple[Any, ...], failure: Exception | None) -> Any:
        """failure: what the graph raised. It must have been the check's to prevent: a frame that then runs well shows a
        fault of the graph's, which CORE_STRICT=1 raises."""
        code = self.code
        what = "a check on a tensor failed" if failure is None else f"the graph raised {type(failure).__name__}"
        emit_event(FellBack("assumption", f"{code.co_qualname}: {what}"))
        if torch.is_grad_enabled() != self.grad_mode:
            torch.set_grad_enabled(self.grad_mode)  # a graph that failed may have been inside no_grad
        function = types.FunctionType(code, self.globals, code.co_name, None, closure)
        named = code.co_argcount + code.co_kwonlyargcount
        rest = list(slots[named:])
        keywords = dict(zip(code.co_varnames[code.co_argcount : named], slots[code.co_argcount : named]))
        extra = rest.pop(0) if code.co_flags & 0x04 else ()
        result = function(*slots[: code.co_argcount], *extra, **keywords, **(rest[0] if rest else {}))
        if failure is not None and strict():
            raise failure
        return result


@dataclass(frozen=True)
class WayOut:
    """Where an exception of the graph goes, for what was assumed may be what keeps it from failing; and where the way
    of a check that fails meets it."""

    failed: Instruction
    wrong: Instruction


def write(emitter: Any, trace: Any, names: tuple[str, ...]) -> WayOut:
    """Ask each tensor; where one says otherwise, leave by way of the code as written. names: the argument slots."""
    frame = trace.frame
    as_written = AsWritten(frame.code, frame.globals, trace.grad_mode)
    failed, wrong, right, other = (emit.nop()[0] for _ in range(4))
    failure = emitter.temporary()
    emitter.add([*emit.load_const(None), *emit.store_fast(failure)])
    for assumption in trace.assumptions:
        jump = emit.pop_jump_if_false if assumption.expected else emit.pop_jump_if_true
        emitter.load(assumption.condition)
        emitter.add(jump(wrong))
    emitter.add(emit.jump(right))
    emitter.add([failed, *emit.load_const(Exception), Instruction("CHECK_EXC_MATCH")])
    emitter.add(emit.pop_jump_if_false(other, is_bool=True))
    emitter.add([*emit.store_fast(failure), wrong])
    emitter.load_const(as_written)
    for name in names:
        emitter.add(emit.load_fast(name))
    emitter.build_tuple(len(names))
    emitter.add(emit.load_closure_tuple(frame.code.co_freevars))
    emitter.add(emit.load_fast_bound(failure))
    emitter.call(3)
    emitter.add(emit.return_value())
    emitter.add([other, Instruction("RERAISE", 0, 0), right])
    return WayOut(failed, wrong)


def guarded_call(trace: Any, emitter: Any, way_out: WayOut, graph: CapturedGraph, call: list[Instruction]) -> Any:
    """(instructions, exception entry) of a call of the graph whose failure goes the way out."""
    entry = ExceptionEntry(call[0], call[-1], way_out.failed, 0)
    if not any(_draws(call) for call in graph.record.calls):  # type: ignore[union-attr]
        return call, entry
    saved, generator = emitter.temporary(), torch.default_generator
    before = [*emit.load_const(generator.get_state), *emit.call_function(0), *emit.store_fast(saved)]
    restore = [*emit.load_const(generator.set_state), *emit.load_fast_bound(saved), *emit.call_function(1)]
    place = emitter.out.index(way_out.wrong) + 1
    emitter.out[place:place] = [*restore, *emit.pop_top()]
    return [*before, *call], entry


def _draws(call: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(call.op, "tags", ())


def _draws_elsewhere(call: Any) -> bool:
    """True for random numbers that the CPU's default generator doesn't give."""
    made = [leaf for leaf in leaves((call.args, call.kwargs, call.result)) if isinstance(leaf, torch.Tensor)]
    return _draws(call) and (
        call.kwargs.get("generator") is not None or any(tensor.device.type != "cpu" for tensor in made)
    )


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
    elif any(_draws_elsewhere(call) for call in record.calls):
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
