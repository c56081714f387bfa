"""Instruction, Position and ExceptionEntry: the model of bytecode that the rest of core works with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import UserLine


class Position(NamedTuple):
    """Where an instruction comes from. Columns are byte offsets in the UTF-8 line, as in `co_positions`."""

    line: int | None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None

    def user_line(self, filename: str, function: str = "") -> UserLine | None:
        """The same place as errors and events carry it; None when the instruction has no line."""
        if self.line is None:
            return None
        columns = None
        if self.end_line == self.line and self.column is not None and self.end_column is not None:
            columns = (self.column, self.end_column)
        return UserLine(filename, self.line, function, columns)


class CellName(str):
    """A variable's name that means its cell, in an opcode that would take the local of that name first."""


class Instruction:
    """One instruction; EXTENDED_ARG prefixes and inline caches are folded into it.

    `arg` is the whole argument, None for opcodes without one. `argval` is what it stands for: the constant, the name
    (a pair of names for an opcode that acts on two locals), the comparison operator, else `arg` itself. `flags` are
    the low bits that an opcode packs under a table index (LOAD_GLOBAL: 1 = also push NULL; LOAD_ATTR: 1 = method call
    form). `target` is the Instruction a jump goes to. `offset` is the byte offset of the first unit, -1 for a new
    instruction.

    A new instruction leaves `arg` None and gives `argval` (and `flags`): the assembler finds the index. An instruction
    that has an `arg` belongs to the tables of the code it was decoded from; `detached()` gives a copy that may move to
    another code. Decoded instructions are shared by everyone who decodes the same code: never write to them.
    """

    __slots__ = ("opname", "arg", "argval", "flags", "target", "offset", "position")

    def __init__(
        self,
        opname: str,
        arg: int | None = None,
        argval: Any = None,
        flags: int = 0,
        target: Instruction | None = None,
        offset: int = -1,
        position: Position | None = None,
    ) -> None:
        self.opname = opname
        self.arg = arg
        self.argval = argval
        self.flags = flags
        self.target = target
        self.offset = offset
        self.position = position

    @property
    def line(self) -> int | None:
        """The line number in the user's file, None where Python keeps none."""
        return self.position.line if self.position is not None else None

    def user_line(self, filename: str, function: str = "") -> UserLine | None:
        """The user's place for errors and events."""
        return self.position.user_line(filename, function) if self.position is not None else None

    def copy(self) -> Instruction:
        """An equal instruction with the same target."""
        return Instruction(self.opname, self.arg, self.argval, self.flags, self.target, self.offset, self.position)

    def detached(self) -> Instruction:
        """A copy that belongs to no code's tables: its constant, name or local is looked up again by `argval`."""
        from .opcodes import FUSED, KIND, NO_ARGUMENT, OPCODE, PLAIN

        kind = KIND[OPCODE[self.opname]] if self.opname in OPCODE else PLAIN
        keep = kind in (PLAIN, NO_ARGUMENT)
        if kind == FUSED:
            keep = False
        return Instruction(
            self.opname, self.arg if keep else None, self.argval, self.flags, self.target, -1, self.position
        )

    def __repr__(self) -> str:
        where = f"{self.offset}: " if self.offset >= 0 else ""
        what = ""
        if self.target is not None:
            what = f" -> {self.target.offset}" if self.target.offset >= 0 else f" -> {self.target.opname}"
        elif self.arg is not None or self.argval is not None:
            what = f" {self.argval!r}"
        return f"<{where}{self.opname}{what}>"


@dataclass(eq=False)
class ExceptionEntry:
    """A protected range. Instructions from `start` to `end`, both included, go to `target` when they raise.

    `depth` values stay on the stack; `lasti` also pushes the offset of the raising instruction; then the exception.
    """

    start: Instruction
    end: Instruction
    target: Instruction
    depth: int
    lasti: bool = False


def located(instructions: Iterable[Instruction], position: Position | None) -> list[Instruction]:
    """The same (new, unshared) instructions, with `position` set where they have none."""
    result = list(instructions)
    for instruction in result:
        if instruction.position is None:
            instruction.position = position
    return result


def copied(
    instructions: Sequence[Instruction], exception_table: Sequence[ExceptionEntry] = ()
) -> tuple[list[Instruction], list[ExceptionEntry]]:
    """Copies that may be changed: jumps and exception entries among them point to the copies."""
    twin = {instruction: instruction.copy() for instruction in instructions}
    for new in twin.values():
        if new.target is not None:
            new.target = twin.get(new.target, new.target)
    entries = [ExceptionEntry(twin[e.start], twin[e.end], twin[e.target], e.depth, e.lasti) for e in exception_table]
    return list(twin.values()), entries
