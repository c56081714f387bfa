"""decode: a code object as Instructions with resolved arguments, jump targets, positions and protected ranges.

State shared between threads: `_cache`, under `_lock`. Results are shared, so nobody may write to them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType
from typing import Any

from .instruction import ExceptionEntry, Instruction, Position
from .opcodes import (
    BACKWARD,
    CACHES,
    COMPARE,
    COMPARE_OPERATORS,
    CONST,
    EXTENDED_ARG,
    FLAG_BITS,
    FLAGGED_NAME,
    FORWARD,
    FUSED,
    KIND,
    LOCAL,
    NAME,
    NO_ARGUMENT,
    OPNAME,
    TABLE,
)
from .tables import decode_exception_table

_CACHE_SIZE = 512


class DecodedCode:
    """The instructions of one code object and what hangs on them. Holds no reference to the code object itself.

    Iterates over, and has the length of, `instructions`. `exception_table` is in the order of the code's own table.
    """

    __slots__ = ("instructions", "exception_table", "local_names", "facts", "_indices", "_handlers")

    def __init__(
        self,
        instructions: list[Instruction],
        exception_table: list[ExceptionEntry],
        local_names: tuple[str, ...],
        indices: list[int],
    ) -> None:
        self.instructions = instructions
        self.exception_table = exception_table
        self.local_names = local_names  # one name a slot: locals, then cells that are no locals, then free variables
        self._indices = indices  # code unit -> index of the instruction that starts there, -1 inside one
        self._handlers: list[ExceptionEntry | None] | None = None
        self.facts: dict[str, Any] = {}  # results of analyses over this code (liveness, depths), computed once

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __len__(self) -> int:
        return len(self.instructions)

    def index_of(self, instruction: Instruction) -> int:
        """The place of one of our own instructions in the list."""
        index = self._indices[instruction.offset >> 1] if instruction.offset >= 0 else -1
        if index < 0 or self.instructions[index] is not instruction:
            raise ValueError(f"{instruction!r} is not an instruction of this code")
        return index

    def at(self, offset: int) -> Instruction:
        """The instruction that the byte offset lies in (an offset of `tb_lasti`, `f_lasti`, a prefix or a cache)."""
        return self.instructions[_index_at(self._indices, offset)]

    def next_of(self, instruction: Instruction) -> Instruction | None:
        """The instruction behind one, in the order of the code; None behind the last."""
        index = self.index_of(instruction) + 1
        return self.instructions[index] if index < len(self.instructions) else None

    def handler_of(self, instruction: Instruction) -> ExceptionEntry | None:
        """The protected range that catches what the instruction raises, None when it leaves the function."""
        return self.handlers()[self.index_of(instruction)]

    def handlers(self) -> list[ExceptionEntry | None]:
        """`handler_of` for each instruction, by index."""
        if self._handlers is None:
            handlers: list[ExceptionEntry | None] = [None] * len(self.instructions)
            for entry in self.exception_table:
                first, last = self.index_of(entry.start), self.index_of(entry.end)
                handlers[first : last + 1] = [entry] * (last + 1 - first)
            self._handlers = handlers
        return self._handlers


def _index_at(indices: list[int], offset: int) -> int:
    unit = offset >> 1
    while indices[unit] < 0:
        unit -= 1
    return indices[unit]


_lock = threading.Lock()
_cache: dict[int, tuple[weakref.ref[CodeType], DecodedCode]] = {}


def decode(code: CodeType) -> DecodedCode:
    """The decoded form of `code`; the same object again for the same code object while it is in the cache."""
    # Code objects compare by value and hash slowly, so the key is the identity, checked against a weak reference.
    key = id(code)
    known = _cache.get(key)
    if known is not None and known[0]() is code:
        return known[1]
    decoded = _decode(code)

    def forget(reference: weakref.ref[CodeType]) -> None:
        # No lock here: collection may run this callback in a thread that holds it.
        entry = _cache.get(key)
        if entry is not None and entry[0] is reference:
            _cache.pop(key, None)

    reference = weakref.ref(code, forget)
    with _lock:
        while len(_cache) >= _CACHE_SIZE:
            _cache.pop(next(iter(_cache)), None)
        _cache[key] = (reference, decoded)
    return decoded


def returns_none(code: CodeType) -> bool:
    """True where each `return` that the code has gives None, written out or not."""
    if code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR):
        return False
    instructions = decode(code).instructions
    targets = {id(instruction.target) for instruction in instructions if instruction.target is not None}
    before = None
    for instruction in instructions:
        if instruction.opname == "RETURN_CONST" and instruction.argval is not None:
            return False
        if instruction.opname == "RETURN_VALUE":
            known = before is not None and before.opname == "LOAD_CONST" and before.argval is None
            if not known or id(instruction) in targets:
                return False
        before = instruction
    return True


def local_names_of(code: CodeType) -> tuple[str, ...]:
    """The name of each slot of a frame: a cell that is also a local shares the local's slot."""
    own = code.co_varnames
    return own + tuple(name for name in code.co_cellvars if name not in own) + code.co_freevars


def _decode(code: CodeType) -> DecodedCode:
    raw = code.co_code
    names, consts = code.co_names, code.co_consts
    local_names = local_names_of(code)
    spans = list(code.co_positions())
    positions: dict[Any, Position] = {}
    new_position = partial(tuple.__new__, Position)  # a third of the cost of Position(*span)
    instructions: list[Instruction] = []
    indices = [-1] * (len(raw) >> 1)
    jumps: list[tuple[Instruction, int]] = []
    compare_shift = TABLE.compare_shift
    compare_mask = (1 << compare_shift) - 1
    start = at = extended = 0
    size = len(raw)
    while at < size:
        opcode = raw[at]
        arg: int | None = raw[at + 1] | extended
        if opcode == EXTENDED_ARG:
            extended = arg << 8  # type: ignore[operator]
            at += 2
            continue
        kind = KIND[opcode]
        argval: Any = arg
        flags = 0
        behind = at + 2 + 2 * CACHES[opcode]
        if kind == LOCAL:
            argval = local_names[arg]  # type: ignore[index]
        elif kind == NO_ARGUMENT:
            arg = argval = None
        elif kind == CONST:
            argval = consts[arg]  # type: ignore[index]
        elif kind == NAME:
            argval = names[arg]  # type: ignore[index]
        elif kind == FLAGGED_NAME:
            bits = FLAG_BITS[opcode]
            flags = arg & (1 << bits) - 1  # type: ignore[operator]
            argval = names[arg >> bits]  # type: ignore[operator]
        elif kind == COMPARE:
            flags = arg & compare_mask  # type: ignore[operator]
            argval = COMPARE_OPERATORS[arg >> compare_shift]  # type: ignore[operator]
        elif kind == FUSED:
            argval = (local_names[arg >> 4], local_names[arg & 15])  # type: ignore[operator]
        span = spans[at >> 1]
        position = positions.get(span)
        if position is None:
            position = positions[span] = new_position(span)
        instruction = Instruction(OPNAME[opcode], arg, argval, flags, None, start, position)
        if kind == FORWARD:
            jumps.append((instruction, behind + 2 * arg))  # type: ignore[operator]
        elif kind == BACKWARD:
            jumps.append((instruction, behind - 2 * arg))  # type: ignore[operator]
        indices[start >> 1] = len(instructions)
        instructions.append(instruction)
        start = at = behind
        extended = 0
    for instruction, offset in jumps:
        target = instructions[indices[offset >> 1]]
        instruction.target = target
        instruction.argval = target.offset
    table = [
        ExceptionEntry(
            instructions[indices[first >> 1]],
            instructions[_index_at(indices, end - 2)],
            instructions[indices[target >> 1]],
            depth,
            lasti,
        )
        for first, end, target, depth, lasti in decode_exception_table(code.co_exceptiontable)
    ]
    return DecodedCode(instructions, table, local_names, indices)
