"""How deep the value stack gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dis import stack_effect
from functools import cache

from .opcodes import KIND, NO_ARGUMENT, OPCODE, OPNAME, TERMINATORS

_TERMINATOR_CODES = frozenset(OPCODE[name] for name in TERMINATORS if name in OPCODE)


@cache
def effect(opcode: int, arg: int, jump: bool) -> int:
    """How many values the opcode leaves on the stack beyond those it found, when it jumps or when it does not."""
    effective = None if KIND[opcode] == NO_ARGUMENT else arg
    change: int = stack_effect(opcode, effective, jump=jump)
    if OPNAME[opcode] == "RETURN_GENERATOR":
        # The generator starts with the value that send() gives it on the stack; the interpreter's own table counts
        # that push at the first instruction behind only in some versions.
        return max(change, 1)
    return change


class StackUnderflow(ValueError):
    """Instructions take more values from the stack than there are."""


def stack_size(
    opcodes: Sequence[int],
    args: Sequence[int],
    targets: Mapping[int, int],
    handlers: Sequence[tuple[int, int]] = (),
    entry: int = 0,
) -> int:
    """The greatest depth reached. targets: index of a jump -> index it goes to; handlers: (index, depth there)."""
    depths: dict[int, int] = {}
    deepest = 0
    waiting = [(entry, 0), *handlers]
    end = len(opcodes)
    while waiting:
        at, depth = waiting.pop()
        while at < end:
            known = depths.get(at)
            if known is not None and known >= depth:
                break
            depths[at] = depth
            if depth > deepest:
                deepest = depth
            opcode, arg = opcodes[at], args[at]
            target = targets.get(at)
            if target is not None:
                there = depth + effect(opcode, arg, True)
                if there > deepest:
                    deepest = there
                waiting.append((target, there))
            if opcode in _TERMINATOR_CODES:
                break
            depth += effect(opcode, arg, False)
            if depth < 0:
                raise StackUnderflow(f"{OPNAME[opcode]} at index {at} takes more values than the stack holds")
            if depth > deepest:
                deepest = depth
            at += 1
    return deepest
