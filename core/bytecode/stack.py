"""How deep the value stack gets, and what the code alone tells about the values on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dis import stack_effect

from .decode import DecodedCode
from .instruction import Instruction
from .opcodes import KIND, NO_ARGUMENT, OPCODE, OPNAME, TABLE, TERMINATORS

_TERMINATOR_CODES = frozenset(OPCODE[name] for name in TERMINATORS if name in OPCODE)

_effects: dict[int, tuple[int, int]] = {}  # opcode and argument -> effect, and effect of the jump; only ever added to


def effect(opcode: int, arg: int, jump: bool) -> int:
    """How many values the opcode leaves on the stack beyond those it found, when it jumps or when it does not."""
    return _both_effects(opcode, arg)[jump]


def _both_effects(opcode: int, arg: int) -> tuple[int, int]:
    key = opcode | arg << 8
    known = _effects.get(key)
    if known is None:
        known = _effects[key] = (_effect(opcode, arg, False), _effect(opcode, arg, True))
    return known


def _effect(opcode: int, arg: int, jump: bool) -> int:
    opname = OPNAME[opcode]
    if TABLE.has_precall and opname in ("PRECALL", "CALL"):
        # 3.11 books the pop of the arguments at PRECALL; in truth CALL takes them.
        return 0 if opname == "PRECALL" else -1 - arg
    change: int = stack_effect(opcode, None if KIND[opcode] == NO_ARGUMENT else arg, jump=jump)
    # A generator starts with the value that send() gives it on the stack; the interpreter's own table counts that push
    # at the first instruction behind only in some versions.
    return max(change, 1) if opname == "RETURN_GENERATOR" else change


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
    end = len(opcodes)
    depths = [-1] * end
    deepest = 0
    waiting = [(entry, 0), *handlers]
    known_effects = _effects.get
    while waiting:
        at, depth = waiting.pop()
        if depth > deepest:
            deepest = depth
        while at < end and depths[at] < depth:
            depths[at] = depth
            opcode, arg = opcodes[at], args[at]
            both = known_effects(opcode | arg << 8) or _both_effects(opcode, arg)
            if at in targets:
                waiting.append((targets[at], depth + both[1]))
            if opcode in _TERMINATOR_CODES:
                break
            depth += both[0]
            if depth > deepest:
                deepest = depth
            elif depth < 0:
                raise StackUnderflow(f"{OPNAME[opcode]} at index {at} takes more values than the stack holds")
            at += 1
    return deepest


HANDLED, LASTI = -1, -2


@dataclass(frozen=True)
class Mark:
    """A place on the stack that holds bookkeeping of Python itself.

    With `slot` HANDLED: what `sys.exception()` was before the running handler was entered (PUSH_EXC_INFO put it there,
    POP_EXCEPT takes it back). With LASTI: where in this very code the exception was raised, for RERAISE to set the
    frame back to. Else: what the frame's slot held before an inlined comprehension took it over; `plain`
    says that the comprehension keeps a plain value there, not a cell.
    """

    place: int
    slot: int = HANDLED
    plain: bool = False


@dataclass(frozen=True)
class StackShape:
    """The value stack before one instruction, as far as the code alone tells; `depth` counts NULLs too."""

    depth: int
    marks: tuple[Mark, ...] = ()

    @property
    def handled(self) -> tuple[int, ...]:
        """Places, from the bottom, of the marks of running handlers."""
        return tuple(sorted(mark.place for mark in self.marks if mark.slot == HANDLED))

    @property
    def lasti(self) -> frozenset[int]:
        """Places of positions in the code."""
        return frozenset(mark.place for mark in self.marks if mark.slot == LASTI)

    @property
    def plain_slots(self) -> frozenset[int]:
        """Slots that hold a plain value now because the innermost comprehension using them wants it so."""
        innermost = {mark.slot: mark.plain for mark in sorted(self.marks, key=lambda mark: mark.place)}
        return frozenset(slot for slot, plain in innermost.items() if slot >= 0 and plain)


def stack_shapes(decoded: DecodedCode) -> list[StackShape | None]:
    """The shape before each instruction; None where control never comes. Computed once for a decoded code."""
    known: list[StackShape | None] | None = decoded.facts.get("stack_shapes")
    if known is None:
        known = decoded.facts["stack_shapes"] = _shapes(decoded)
    return known


def _shapes(decoded: DecodedCode) -> list[StackShape | None]:
    instructions = decoded.instructions
    shapes: list[StackShape | None] = [None] * len(instructions)
    handlers = decoded.handlers()
    waiting = [(0, StackShape(0))]
    while waiting:
        at, shape = waiting.pop()
        while at < len(instructions) and shapes[at] is None:
            shapes[at] = shape
            instruction, entry = instructions[at], handlers[at]
            if entry is not None:
                kept = tuple(mark for mark in shape.marks if mark.place < entry.depth)
                if entry.lasti:
                    kept += (Mark(entry.depth, LASTI),)
                waiting.append((decoded.index_of(entry.target), StackShape(entry.depth + entry.lasti + 1, kept)))
            if instruction.target is not None:
                waiting.append((decoded.index_of(instruction.target), _after(decoded, instruction, shape, True)))
            if instruction.opname in TERMINATORS:
                break
            shape = _after(decoded, instruction, shape, False)
            at += 1
    return shapes


def _after(decoded: DecodedCode, instruction: Instruction, shape: StackShape, jump: bool) -> StackShape:
    depth = shape.depth + effect(OPCODE[instruction.opname], instruction.arg or 0, jump)
    marks, opname = shape.marks, instruction.opname
    if opname == "PUSH_EXC_INFO":
        marks += (Mark(shape.depth - 1),)
    elif opname == "LOAD_FAST_AND_CLEAR":
        assert instruction.arg is not None
        following = decoded.next_of(instruction)
        makes_cell = following is not None and following.opname == "MAKE_CELL" and following.arg == instruction.arg
        marks += (Mark(shape.depth, instruction.arg, not makes_cell),)
    elif marks:
        if opname == "SWAP" and instruction.arg is not None:
            top, other = shape.depth - 1, shape.depth - instruction.arg
            swapped = {top: other, other: top}
            marks = tuple(replace(mark, place=swapped.get(mark.place, mark.place)) for mark in marks)
        elif opname == "POP_EXCEPT":
            # What it takes is often a copy; either way the innermost handler is left and its mark means nothing more.
            left = max((mark.place for mark in marks if mark.slot == HANDLED), default=-1)
            marks = tuple(mark for mark in marks if mark.slot != HANDLED or mark.place != left)
        marks = tuple(mark for mark in marks if mark.place < depth)
    return StackShape(depth, marks)
