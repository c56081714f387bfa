"""Liveness: which variables the rest of a function may still read, for each of its instructions.

Exception edges count: whatever a handler reads is live at every instruction it protects. Code that looks at its own
frame (`locals()`, `eval`, ..) keeps every variable live; `super()` keeps the first argument and `__class__`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType

from .decode import DecodedCode, decode
from .instruction import Instruction
from .opcodes import TABLE, TERMINATORS
from .stack import stack_shapes

# Reading one of these names may look at the frame's own variables.
FRAME_READERS = frozenset(("locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"))

_Effect = Callable[[Instruction], tuple[int, int]]  # (slots read, slots that hold nothing needed before), bit masks


class Liveness:
    """Live variables of one code object, by instruction. Variables are named in the order of the frame's slots."""

    def __init__(self, decoded: DecodedCode, cells: frozenset[int], co_names: tuple[str, ...]) -> None:
        self._decoded = decoded
        self._cells = cells
        self._live = _flow(decoded, _reader(decoded, co_names))

    def _names(self, instruction: Instruction, wants_cells: bool) -> tuple[str, ...]:
        index = self._decoded.index_of(instruction)
        mask = self._live[index]
        cells = self._cells
        if TABLE.late_cells and cells:
            shape = stack_shapes(self._decoded)[index]
            cells = cells - shape.plain_slots if shape is not None else cells
        names = self._decoded.local_names
        return tuple(names[i] for i in range(len(names)) if mask >> i & 1 and (i in cells) == wants_cells)

    def locals_at(self, instruction: Instruction) -> tuple[str, ...]:
        """Locals whose plain value before `instruction` may still be read.

        A cell variable is among them where an inlined comprehension of the same name keeps a plain value in its slot.
        """
        return self._names(instruction, False)

    def cells_at(self, instruction: Instruction) -> tuple[str, ...]:
        """Cell and free variables whose cell may still be used from `instruction` on."""
        return self._names(instruction, True)


def liveness(code: CodeType) -> Liveness:
    """The live variables of `code`, computed once while its decoded form is cached."""
    decoded = decode(code)
    known = decoded.facts.get("liveness")
    if known is None:
        known = decoded.facts["liveness"] = Liveness(decoded, cell_slots(code, decoded), code.co_names)
    assert isinstance(known, Liveness)
    return known


def cell_slots(code: CodeType, decoded: DecodedCode) -> frozenset[int]:
    """The slots of a frame that hold cells: cell variables, also those that are arguments, and free variables."""
    names = decoded.local_names
    first_free = len(names) - len(code.co_freevars)
    own = frozenset(code.co_cellvars)
    return frozenset(i for i, name in enumerate(names) if i >= first_free or name in own)


def must_be_set(code: CodeType, instruction: Instruction) -> frozenset[int]:
    """Slots that an unchecked load reads before anything else sets or checks them: unset, they crash Python."""
    if not TABLE.unchecked_load_fast:
        return frozenset()
    decoded = decode(code)
    masks = decoded.facts.get("must_be_set")
    if masks is None:
        masks = decoded.facts["must_be_set"] = _flow(decoded, _unchecked)
    mask = masks[decoded.index_of(instruction)]
    return frozenset(i for i in range(mask.bit_length()) if mask >> i & 1)


_SLOT_READS = frozenset(
    ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "MAKE_CELL")
) | {"LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_READ_AND_CLEAR = frozenset(("LOAD_FAST_AND_CLEAR", "DELETE_FAST"))


def _fused_effect(instruction: Instruction) -> tuple[int, int]:
    first, second = TABLE.fused[instruction.opname]
    assert instruction.arg is not None
    one, other = 1 << (instruction.arg >> 4), 1 << (instruction.arg & 15)
    reads = one if first == "LOAD_FAST" else 0
    writes = one if first == "STORE_FAST" else 0
    if second == "LOAD_FAST":
        reads |= other & ~writes
    else:
        writes |= other
    return reads, writes


def _reader(decoded: DecodedCode, co_names: tuple[str, ...]) -> _Effect:
    at_calls = _frame_reads(decoded, co_names)

    def effect(instruction: Instruction) -> tuple[int, int]:
        opname = instruction.opname
        if opname in _SLOT_READS:
            assert instruction.arg is not None
            return 1 << instruction.arg, 0
        if opname == "STORE_FAST":
            assert instruction.arg is not None
            return 0, 1 << instruction.arg
        if opname in _READ_AND_CLEAR:
            assert instruction.arg is not None
            return 1 << instruction.arg, 1 << instruction.arg
        if opname in TABLE.fused:
            return _fused_effect(instruction)
        return (at_calls, 0) if opname in _CALLS else (0, 0)

    return effect


_CALLS = frozenset(("CALL", "CALL_KW", "CALL_FUNCTION_EX"))


def _frame_reads(decoded: DecodedCode, co_names: tuple[str, ...]) -> int:
    """The slots that any call may read, because the code names something that looks at its caller's frame."""
    names = decoded.local_names
    if FRAME_READERS.intersection(co_names):
        return (1 << len(names)) - 1
    if "super" in co_names and "__class__" in names:
        return 1 | 1 << names.index("__class__")
    return 0


def _unchecked(instruction: Instruction) -> tuple[int, int]:
    opname = instruction.opname
    if opname == "LOAD_FAST":
        assert instruction.arg is not None
        return 1 << instruction.arg, 0
    if opname in ("STORE_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"):
        assert instruction.arg is not None
        return 0, 1 << instruction.arg
    if opname in TABLE.fused:
        return _fused_effect(instruction)
    return 0, 0


def _flow(decoded: DecodedCode, effect: _Effect) -> list[int]:
    """The backward fixed point of in = (out - writes) | reads | in of the handler."""
    instructions = decoded.instructions
    effects = [effect(instruction) for instruction in instructions]
    targets = [None if i.target is None else decoded.index_of(i.target) for i in instructions]
    handlers = [None if entry is None else decoded.index_of(entry.target) for entry in decoded.handlers()]
    falls = [instruction.opname not in TERMINATORS for instruction in instructions]
    live = [0] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for at in range(len(instructions) - 1, -1, -1):
            out = live[at + 1] if falls[at] else 0
            target, handler = targets[at], handlers[at]
            if target is not None:
                out |= live[target]
            reads, writes = effects[at]
            out = out & ~writes | reads
            if handler is not None:
                out |= live[handler]
            if out != live[at]:
                live[at] = out
                changed = True
    live.pop()
    return live
