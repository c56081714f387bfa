"""What a resume function raises for a variable of the original that is kept in a cell and has no value.

The cells of a function's own variables come into its resume functions as their closure. Reading or deleting what an
empty cell of a closure should hold is a NameError, and the original raises an UnboundLocalError with another text. So
each such instruction is protected, and what it raises leads to a raise of the original's error in the same place.
"""

from __future__ import annotations

from collections.abc import Collection
from types import CodeType

from . import emit
from .decode import decode
from .instruction import ExceptionEntry, Instruction, located

_MISSES = ("LOAD_DEREF", "DELETE_DEREF")


def emptied_cells(code: CodeType) -> frozenset[str]:
    """The cell variables of `code` that it or a function inside it deletes somewhere."""
    own = frozenset(code.co_cellvars)
    return own.intersection(_deleted(code)) if own else own


def _deleted(code: CodeType) -> set[str]:
    found = {str(i.argval) for i in decode(code).instructions if i.opname == "DELETE_DEREF"}
    for inner in code.co_consts:
        if isinstance(inner, CodeType) and inner.co_freevars:
            found |= _deleted(inner)
    return found


def raise_as_local(
    kept: list[Instruction], table: list[ExceptionEntry], names: Collection[str]
) -> tuple[list[Instruction], list[ExceptionEntry]]:
    """The instructions and protected ranges with the reads of `names`, where these are free variables, raising what
    they raise where these are cell variables."""
    places = [at for at, i in enumerate(kept) if i.opname in _MISSES and i.argval in names]
    if not places:
        return kept, table
    order = {instruction: at for at, instruction in enumerate(kept)}
    raising: list[Instruction] = []
    added: list[ExceptionEntry] = []
    outer: list[list[int]] = [[] for _ in table]
    for at in places:
        step = _raise(kept[at])
        raising += step
        depth = 0
        for index, entry in enumerate(table):
            if order[entry.start] <= at <= order[entry.end]:
                outer[index].append(at)
                depth = entry.depth
                added.append(ExceptionEntry(step[0], step[-1], entry.target, entry.depth, entry.lasti))
        added.append(ExceptionEntry(kept[at], kept[at], step[0], depth))
    split = [part for entry, inside in zip(table, outer) for part in _around(entry, inside, kept, order)]
    return kept + raising, split + added


def _raise(instruction: Instruction) -> list[Instruction]:
    """[NameError] -> raises; nothing has begun to handle that error, so it is no context of the other."""
    text = f"cannot access local variable '{instruction.argval}' where it is not associated with a value"
    error = [*emit.load_const(UnboundLocalError), *emit.load_const(text), *emit.call_function(1)]
    return located([*emit.pop_top(), *error, *emit.raise_varargs()], instruction.position)


def _around(
    entry: ExceptionEntry, inside: list[int], kept: list[Instruction], order: dict[Instruction, int]
) -> list[ExceptionEntry]:
    """The range without the places `inside` it."""
    parts, begin = [], order[entry.start]
    for at in [*inside, order[entry.end] + 1]:
        if begin < at:
            parts.append(ExceptionEntry(kept[begin], kept[at - 1], entry.target, entry.depth, entry.lasti))
        begin = at + 1
    return parts
