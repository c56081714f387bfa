"""assemble: Instructions back to a code object.

Passes, in order: lower (tables and slots -> numeric arguments, one-instruction forms that the version lacks -> two),
layout (offsets and jump lengths to a fixed point), emit (bytes), then both packed tables and the stack size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from types import CodeType
from typing import Any

from .decode import local_names_of
from .instruction import CellName, ExceptionEntry, Instruction
from .opcodes import (
    BACKWARD,
    CACHES,
    COMPARE,
    CONST,
    EXTENDED_ARG,
    FLAG_BITS,
    FLAGGED_NAME,
    FORWARD,
    FUSED,
    KIND,
    LOCAL,
    NAME,
    OPCODE,
    TABLE,
)
from .stack import stack_size
from .tables import encode_exception_table, encode_line_table

_NO_SPAN = (None, None, None, None)
_CACHE_BYTES = [bytes(2 * units) for units in range(max(CACHES) + 1)]


class AssemblyError(ValueError):
    """The instructions do not make a code object."""


class _Constants:
    """co_consts under construction: the template's constants first, new ones behind them."""

    def __init__(self, consts: Sequence[Any]) -> None:
        self.values = list(consts)
        self._index: dict[Any, int] | None = None

    @staticmethod
    def _key(value: Any) -> Any:
        # Equal is not enough: 1, 1.0 and True are equal, 0.0 and -0.0 too. Only kinds for which equality within one
        # type means the same constant are shared by value; all else by identity.
        kind = type(value)
        if kind in (int, str, bytes, bool) or value is None or value is ...:
            return kind, value
        return id(value)

    def index(self, value: Any) -> int:
        if self._index is None:
            self._index = {}
            for i, known in enumerate(self.values):
                self._index.setdefault(self._key(known), i)
        key = self._key(value)
        found = self._index.get(key)
        if found is None:
            found = self._index[key] = len(self.values)
            self.values.append(value)
        return found


class _Names:
    """co_names under construction."""

    def __init__(self, names: Sequence[str]) -> None:
        self.values = list(names)
        self._index: dict[str, int] | None = None

    def index(self, name: str) -> int:
        if self._index is None:
            self._index = {known: i for i, known in enumerate(self.values)}
        found = self._index.get(name)
        if found is None:
            found = self._index[name] = len(self.values)
            self.values.append(name)
        return found


class _Slots:
    """The frame's slots: which index a name has, and where a slot of the template moved to."""

    def __init__(
        self, template: CodeType, varnames: Sequence[str], cellvars: Sequence[str], freevars: Sequence[str]
    ) -> None:
        self.varnames = list(varnames)
        self.cellvars = tuple(cellvars)
        self.freevars = tuple(freevars)
        self._template = template
        self._place()

    def _place(self) -> None:
        own = {name: i for i, name in enumerate(self.varnames)}
        cells: dict[str, int] = {}
        size = len(self.varnames)
        for name in self.cellvars:
            if name in own:
                cells[name] = own[name]
            else:
                cells[name] = size
                size += 1
        for name in self.freevars:
            cells[name] = size
            size += 1
        self.local_index, self.cell_index = own, cells
        self.moved = self._moved()

    def _moved(self) -> dict[int, int] | None:
        old = self._template
        if (
            tuple(self.varnames) == old.co_varnames
            and self.cellvars == old.co_cellvars
            and self.freevars == old.co_freevars
        ):
            return None
        moved: dict[int, int] = {}
        first_free = len(local_names_of(old)) - len(old.co_freevars)
        cells = frozenset(old.co_cellvars)
        for slot, name in enumerate(local_names_of(old)):
            is_cell = slot >= first_free or name in cells
            new = self.cell_index.get(name) if is_cell else self.local_index.get(name)
            if new is not None:
                moved[slot] = new
        return moved

    def add_local(self, name: str) -> None:
        if name not in self.local_index:
            self.varnames.append(name)
            self._place()

    def of_name(self, opname: str, name: str) -> int:
        first, second = self.local_index, self.cell_index
        if opname in _CELL_OPS or isinstance(name, CellName):
            first, second = second, first
        found = first.get(name)
        if found is None:
            found = second.get(name)
        if found is None:
            raise AssemblyError(f"{opname} of {name!r}, which is no variable of the code")
        return found

    def of_slot(self, instruction: Instruction, slot: int) -> int:
        if self.moved is None:
            return slot
        found = self.moved.get(slot)
        if found is None:
            raise AssemblyError(f"{instruction!r} uses a variable that the new code does not have")
        return found


_CELL_OPS = frozenset(("LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "MAKE_CELL", "LOAD_CLASSDEREF")) | {
    "LOAD_FROM_DICT_OR_DEREF"
}


class _Lowered:
    """Numeric records, one a code instruction: parallel lists, and the record each Instruction starts at."""

    def __init__(self) -> None:
        self.opcodes: list[int] = []
        self.args: list[int] = []
        self.spans: list[Any] = []
        self.jumps: list[tuple[int, Instruction]] = []  # record, target
        self.first: dict[Instruction, int] = {}
        self.last: dict[Instruction, int] = {}

    def add(self, opcode: int, arg: int, span: Any) -> int:
        self.opcodes.append(opcode)
        self.args.append(arg)
        self.spans.append(span)
        return len(self.opcodes) - 1


def assemble(
    instructions: Iterable[Instruction],
    template: CodeType,
    *,
    exception_table: Sequence[ExceptionEntry] = (),
    argcount: int | None = None,
    posonlyargcount: int | None = None,
    kwonlyargcount: int | None = None,
    varnames: Sequence[str] | None = None,
    cellvars: Sequence[str] | None = None,
    freevars: Sequence[str] | None = None,
    consts: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    stacksize: int | None = None,
    flags: int | None = None,
    name: str | None = None,
    qualname: str | None = None,
    filename: str | None = None,
    firstlineno: int | None = None,
    places: dict[Instruction, int] | None = None,
) -> CodeType:
    """A code object of `instructions`; what is not given comes from `template`.

    Instructions with an `arg` are read in the template's tables (their slots follow when variables are added or move);
    new ones (`arg` None) by `argval`: constants, names and locals that are missing are appended. `consts` and `names`,
    when given, must begin with the template's. Jumps take the form their direction needs. Give the argument counts
    whenever `varnames` changes what the first names mean. `places` is filled with the byte offset of each instruction.
    Raises AssemblyError for what can't be expressed.
    """
    listed = list(instructions)
    slots = _Slots(
        template,
        template.co_varnames if varnames is None else varnames,
        template.co_cellvars if cellvars is None else cellvars,
        template.co_freevars if freevars is None else freevars,
    )
    constants = _Constants(template.co_consts if consts is None else consts)
    symbols = _Names(template.co_names if names is None else names)
    _declare_locals(listed, slots)
    lowered = _lower(listed, slots, constants, symbols)
    targets = _resolve(lowered)
    starts = _layout(lowered, targets)
    if places is not None:
        places.update((instruction, starts[index]) for instruction, index in lowered.first.items())
    first_line = template.co_firstlineno if firstlineno is None else firstlineno
    units = [(after - start) >> 1 for start, after in zip(starts, starts[1:])]
    if stacksize is None:
        stacksize = _stack_size(lowered, targets, exception_table)
    return template.replace(
        co_code=_emit(lowered, starts),
        co_consts=tuple(constants.values),
        co_names=tuple(symbols.values),
        co_varnames=tuple(slots.varnames),
        co_cellvars=slots.cellvars,
        co_freevars=slots.freevars,
        co_nlocals=len(slots.varnames),
        co_argcount=template.co_argcount if argcount is None else argcount,
        co_posonlyargcount=template.co_posonlyargcount if posonlyargcount is None else posonlyargcount,
        co_kwonlyargcount=template.co_kwonlyargcount if kwonlyargcount is None else kwonlyargcount,
        co_stacksize=stacksize,
        co_flags=template.co_flags if flags is None else flags,
        co_name=template.co_name if name is None else name,
        co_qualname=template.co_qualname if qualname is None else qualname,
        co_filename=template.co_filename if filename is None else filename,
        co_firstlineno=first_line,
        co_linetable=encode_line_table(zip(lowered.spans, units), first_line),
        co_exceptiontable=encode_exception_table(_ranges(lowered, starts, exception_table)),
    )


def _declare_locals(instructions: Iterable[Instruction], slots: _Slots) -> None:
    for instruction in instructions:
        if instruction.arg is None and instruction.opname in _FAST_OPS:
            name = instruction.argval
            for one in name if isinstance(name, tuple) else (name,):
                if one not in slots.local_index and one not in slots.cell_index:
                    slots.add_local(one)


_FAST_OPS = frozenset(name for name, code in OPCODE.items() if KIND[code] in (LOCAL, FUSED) and name not in _CELL_OPS)


def _lower(instructions: Iterable[Instruction], slots: _Slots, constants: _Constants, symbols: _Names) -> _Lowered:
    out = _Lowered()
    aliases = TABLE.aliases
    moved = slots.moved is not None
    add_opcode, add_arg, add_span = out.opcodes.append, out.args.append, out.spans.append
    first, last = out.first, out.last
    index = 0
    for instruction in instructions:
        opname = instruction.opname
        opcode = OPCODE.get(opname)
        if opcode is None:
            opcode = OPCODE.get(aliases.get(opname, ""))
            if opcode is None:
                raise AssemblyError(f"this interpreter has no opcode {opname}")
        if instruction in first:
            raise AssemblyError(f"{instruction!r} stands twice in the list")
        first[instruction] = index
        arg = instruction.arg
        span = instruction.position or _NO_SPAN
        kind = KIND[opcode]
        if kind == FORWARD or kind == BACKWARD:
            if instruction.target is None:
                raise AssemblyError(f"{opname} has no target")
            out.jumps.append((index, instruction.target))
            arg = 0
        elif kind == FUSED:
            arg = _lower_fused(out, instruction, slots)
            if arg is None:
                index = len(out.opcodes)
                last[instruction] = index - 1
                continue
        elif arg is None:
            arg = _argument(instruction, opcode, kind, slots, constants, symbols)
        elif moved and kind == LOCAL:
            arg = slots.of_slot(instruction, arg)
        last[instruction] = index
        add_opcode(opcode)
        add_arg(arg)
        add_span(span)
        index += 1
    return out


def _argument(
    instruction: Instruction, opcode: int, kind: int, slots: _Slots, constants: _Constants, symbols: _Names
) -> int:
    value = instruction.argval
    if kind == CONST:
        return constants.index(value)
    if kind == NAME:
        return symbols.index(value)
    if kind == FLAGGED_NAME:
        return symbols.index(value) << FLAG_BITS[opcode] | instruction.flags
    if kind == LOCAL:
        return slots.of_name(instruction.opname, value)
    if kind == COMPARE:
        return TABLE.compare[value] | instruction.flags
    if value is None:
        return 0
    if not isinstance(value, int):
        raise AssemblyError(f"{instruction.opname} takes a number, not {value!r}")
    return value


def _lower_fused(out: _Lowered, instruction: Instruction, slots: _Slots) -> int | None:
    """The argument of an opcode on two locals, or None when it had to be written as two opcodes."""
    names = TABLE.fused[instruction.opname]
    if instruction.arg is not None:
        pair = (slots.of_slot(instruction, instruction.arg >> 4), slots.of_slot(instruction, instruction.arg & 15))
    else:
        pair = (slots.of_name(names[0], instruction.argval[0]), slots.of_name(names[1], instruction.argval[1]))
    if pair[0] < 16 and pair[1] < 16:
        return pair[0] << 4 | pair[1]
    for opname, slot in zip(names, pair):
        out.add(OPCODE[opname], slot, instruction.position or _NO_SPAN)
    return None


def _resolve(lowered: _Lowered) -> dict[int, int]:
    """Jump targets by record; gives each jump the form of its direction."""
    targets: dict[int, int] = {}
    for at, target in lowered.jumps:
        there = lowered.first.get(target)
        if there is None:
            raise AssemblyError(f"a jump goes to {target!r}, which is not in the list")
        targets[at] = there
    reversed_conditionals = []
    for at, there in targets.items():
        opcode = lowered.opcodes[at]
        backward = there <= at
        if backward == (KIND[opcode] == BACKWARD):
            continue
        opname = _OPNAME_OF[opcode]
        twin = TABLE.twins.get(opname)
        if twin is not None:
            lowered.opcodes[at] = OPCODE[twin]
        elif opname in TABLE.inverses:
            reversed_conditionals.append(at)
        else:
            raise AssemblyError(f"{opname} can't jump {'backward' if backward else 'forward'}")
    if reversed_conditionals:
        return _split_backward_conditionals(lowered, targets, reversed_conditionals)
    return targets


_OPNAME_OF = {code: name for name, code in OPCODE.items()}


def _split_backward_conditionals(lowered: _Lowered, targets: dict[int, int], where: list[int]) -> dict[int, int]:
    """Write `if c: jump back` as `if not c: skip the next; jump back`, for versions with forward conditionals only."""
    split = frozenset(where)
    new_index: list[int] = []
    opcodes: list[int] = []
    args: list[int] = []
    spans: list[Any] = []
    for at, opcode in enumerate(lowered.opcodes):
        new_index.append(len(opcodes))
        opcodes.append(OPCODE[TABLE.inverses[_OPNAME_OF[opcode]]] if at in split else opcode)
        args.append(lowered.args[at])
        spans.append(lowered.spans[at])
        if at in split:
            opcodes.append(OPCODE["JUMP_BACKWARD"])
            args.append(0)
            spans.append(lowered.spans[at])
    new_index.append(len(opcodes))
    moved: dict[int, int] = {}
    for at, there in targets.items():
        if at in split:
            moved[new_index[at]] = new_index[at] + 2
            moved[new_index[at] + 1] = new_index[there]
        else:
            moved[new_index[at]] = new_index[there]
    lowered.opcodes, lowered.args, lowered.spans = opcodes, args, spans
    lowered.first = {instruction: new_index[at] for instruction, at in lowered.first.items()}
    lowered.last = {instruction: new_index[at + 1] - 1 for instruction, at in lowered.last.items()}
    return moved


def _size(arg: int, opcode: int) -> int:
    prefixes = 0 if arg < 256 else 1 if arg < 65536 else 2 if arg < 16777216 else 3
    return 2 + 2 * prefixes + 2 * CACHES[opcode]


def _layout(lowered: _Lowered, targets: dict[int, int]) -> list[int]:
    """Byte offsets of the records, and the end; fills in jump arguments. Sizes only grow, so this ends."""
    opcodes, args = lowered.opcodes, lowered.args
    sizes = [2 + 2 * CACHES[opcode] if arg < 256 else _size(arg, opcode) for opcode, arg in zip(opcodes, args)]
    while True:
        starts = [0, *accumulate(sizes)]
        grown = False
        for jump, there in targets.items():
            behind = starts[jump + 1]
            distance = (behind - starts[there] if there <= jump else starts[there] - behind) >> 1
            args[jump] = distance
            if distance > 255:
                size = _size(distance, opcodes[jump])
                if size > sizes[jump]:
                    sizes[jump] = size
                    grown = True
        if not grown:
            return starts


def _emit(lowered: _Lowered, starts: Sequence[int]) -> bytes:
    out = bytearray()
    add = out.append
    at = 0
    for opcode, arg, after in zip(lowered.opcodes, lowered.args, starts[1:]):
        caches = CACHES[opcode]
        # A jump may keep a prefix that its final length no longer needs, so the prefixes follow from the size.
        if after - at - 2 != 2 * caches:
            for place in range((after - at - 2 >> 1) - caches, 0, -1):
                add(EXTENDED_ARG)
                add(arg >> 8 * place & 255)
            arg &= 255
        add(opcode)
        add(arg)
        if caches:
            out += _CACHE_BYTES[caches]
        at = after
    return bytes(out)


def _ranges(
    lowered: _Lowered, starts: Sequence[int], table: Iterable[ExceptionEntry]
) -> list[tuple[int, int, int, int, bool]]:
    first, last = lowered.first, lowered.last
    try:
        ranges = [
            (starts[first[e.start]], starts[last[e.end] + 1], starts[first[e.target]], e.depth, e.lasti) for e in table
        ]
    except KeyError as missing:
        raise AssemblyError(f"a protected range names {missing.args[0]!r}, which is not in the list") from None
    ranges.sort()
    for before, behind in zip(ranges, ranges[1:]):
        if before[1] > behind[0]:
            raise AssemblyError("two protected ranges overlap")
    return ranges


def _stack_size(lowered: _Lowered, targets: dict[int, int], table: Iterable[ExceptionEntry]) -> int:
    # At a handler the stack holds the kept values, the offset when asked for, and the exception.
    handlers = {lowered.first[entry.target]: entry.depth + entry.lasti + 1 for entry in table}
    return max(1, stack_size(lowered.opcodes, lowered.args, targets, list(handlers.items())))
