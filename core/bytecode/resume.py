"""build_resume: the code of a function that runs the rest of another function.

A resume function takes the values on the stack and the live locals as positional arguments and the cells of the
original as its closure; it puts the stack back and jumps to where the original stopped. Its instructions, lines and
protected ranges are the original's, so open `try` and `with` blocks go on to work; what can't be reached from there
is left out. A resume function can itself be resumed.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType

from ..errors import Unsupported
from . import emit
from .assemble import assemble
from .decode import DecodedCode, decode
from .instruction import CellName, ExceptionEntry, Instruction, copied, located
from .liveness import cell_slots, must_be_set
from .opcodes import FUSED, KIND, LOCAL, OPCODE, TABLE, TERMINATORS
from .stack import StackShape, stack_shapes
from .unbound_cells import raise_as_local

_MARK = ".<resume "
_STACK, _SLOT, _CELL = ".stack", ".slot ", ".cell "
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


@dataclass(frozen=True)
class ResumeCode:
    """The code of a resume function and how to call it.

    stack: positions of the stack, from the bottom, whose values are the first arguments (all but the NULLs, and but the
    places where handlers keep a position in the original code, which means nothing in another). locals:
    the names of the arguments behind them. freevars: the original's variables whose cells make up the closure, in
    order (its co_cellvars, then its co_freevars). handled: positions in `stack` that stand for a handler being run;
    the argument there is the exception being handled (what `sys.exception()` gives inside), not the value that lies
    on the stack. origins: for the byte offsets in `code`, the instruction of the original that stands there.
    """

    code: CodeType
    stack: tuple[int, ...]
    locals: tuple[str, ...]
    freevars: tuple[str, ...]
    handled: tuple[int, ...] = ()
    origins: Mapping[int, Instruction] = field(default_factory=dict, compare=False, repr=False)


def is_resume_code(code: CodeType) -> bool:
    """True for the code of a resume function."""
    return _MARK in code.co_qualname


def is_stack_name(name: str) -> bool:
    """True for the argument of a resume function that is a value on its stack."""
    return name.startswith(_STACK)


def entry_length(code: CodeType) -> int:
    """How many leading instructions only set the frame up: nothing can be resumed before the one behind them."""
    instructions = decode(code).instructions
    length = 0
    for index, instruction in enumerate(instructions):
        if instruction.opname == "RESUME":
            length = max(length, index + 1)
        elif isinstance(instruction.argval, str) and instruction.argval.startswith((_STACK, _SLOT, _CELL)):
            # Names of ours. What a slot or cell gave goes into its place with the instruction behind.
            length = index + (1 if instruction.argval.startswith(_STACK) else 2)
    behind = instructions[length : length + 3]
    if [i.opname for i in behind[:2]] == ["STORE_FAST", "LOAD_FAST_AND_CLEAR"] and behind[0].arg == behind[1].arg:
        length += 3 if behind[-1].opname == "MAKE_CELL" else 2  # as _enter_comprehension ends
    return length


def build_resume(
    code: CodeType,
    target: Instruction,
    *,
    depth: int,
    nulls: Collection[int] = (),
    arguments: Sequence[str] = (),
    unbound: Collection[str] = (),
) -> ResumeCode:
    """The resume code of `code` for going on at `target`, an instruction of `decode(code)`.

    depth: how many values, NULLs included, the stack holds before `target`; nulls: the positions of NULLs, from the
    bottom; arguments: the locals to pass, at least those that are live there and set. A cell variable may be named
    among them where an inlined comprehension keeps a plain value in its slot. unbound: the cell variables that may have
    no value when they are read.

    Raises Unsupported for code that can't be resumed (generators, coroutines, module and class bodies) and ValueError
    when the description does not fit the code.
    """
    _check_kind(code)
    decoded = decode(code)
    shape = _check_stack(code, decoded, target, depth, nulls)
    plain, covered, unset = _check_arguments(code, decoded, target, shape, arguments)
    originals, table = _reachable(decoded, target)
    closure = code.co_cellvars + tuple(name for name in code.co_freevars if not name.startswith(_CELL))
    taken = _taken_variables(code, decoded, originals, shape)
    kept, table = copied(originals, table)
    copies = dict(zip(kept, originals))
    start = kept[originals.index(target)]
    kept = _checked_loads(kept, table, unset)
    if "__class__" in closure:
        pairs = [(copies.get(instruction, instruction), instruction) for instruction in kept]
        kept, start = _explicit_super(code, decoded, pairs, start)
    kept, table = raise_as_local(kept, table, frozenset(unbound).difference(taken))
    freevars = tuple(_CELL + name if name in taken else name for name in closure)
    entry, entry_table = _entry(decoded, shape, nulls, taken, covered, freevars)
    if kept[0] is not start:
        entry += emit.jump(start)
    passed = tuple(place for place in range(depth) if place not in nulls and place not in shape.lasti)
    names = [f"{_STACK}{place}" for place in passed] + [*plain, *(_SLOT + name for name in covered)]
    places: dict[Instruction, int] = {}
    resumed = assemble(
        located(entry, target.position) + kept,
        code,
        exception_table=[*entry_table, *table],
        argcount=len(names),
        posonlyargcount=len(names),
        kwonlyargcount=0,
        varnames=_variables(code, decoded, originals, names) + list(taken),
        cellvars=taken,
        freevars=freevars,
        flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
        qualname=_qualname(code, target),
        places=places,
    )
    origins = {place: copies[instruction] for instruction, place in places.items() if instruction in copies}
    return ResumeCode(resumed, passed, (*plain, *covered), closure, shape.handled, origins)


def _check_kind(code: CodeType) -> None:
    if code.co_flags & _SUSPENDS:
        raise Unsupported(
            f"{code.co_qualname} is a generator or coroutine: the rest of it can't be made a function",
            instead="the frame is left to Python",
            remedy="move the part that should be compiled into a function that does not yield",
        )
    if not code.co_flags & inspect.CO_OPTIMIZED:
        raise Unsupported(
            f"{code.co_qualname} is the body of a class or module, which keeps its variables in a dict",
            instead="the frame is left to Python",
            remedy="compile the functions, not the body that defines them",
        )


def _check_stack(
    code: CodeType, decoded: DecodedCode, target: Instruction, depth: int, nulls: Collection[int]
) -> StackShape:
    index = decoded.index_of(target)
    shape = stack_shapes(decoded)[index]
    if shape is None:
        raise ValueError(f"control never comes to {target!r}")
    if shape.depth != depth:
        raise ValueError(f"the stack holds {shape.depth} values before {target!r}, not {depth}")
    if any(not 0 <= place < depth for place in nulls):
        raise ValueError(f"NULLs at {sorted(nulls)} do not lie on a stack of {depth}")
    before = [i.opname for i in decoded.instructions[max(0, index - 2) : index]]
    if before[-1:] == ["KW_NAMES"] or before == ["KW_NAMES", "PRECALL"]:
        raise ValueError(f"{target!r} is part of a call with keywords, which can't be entered in the middle")
    if index < entry_length(code):
        raise ValueError(f"{target!r} stands in the prologue of the code")
    return shape


def _check_arguments(
    code: CodeType, decoded: DecodedCode, target: Instruction, shape: StackShape, arguments: Sequence[str]
) -> tuple[list[str], list[str], frozenset[int]]:
    """The arguments that are plain locals, those whose slot is a cell's, taken over by a comprehension, and the slots
    that the code behind reads unchecked though no argument sets them."""
    cells = cell_slots(code, decoded)
    names = decoded.local_names
    slots = {names[i]: i for i in reversed(range(len(names)))}
    slots.update({name: i for i, name in enumerate(code.co_varnames) if i not in cells})
    if len(set(arguments)) != len(arguments):
        raise ValueError("an argument is named twice")
    plain, covered = [], []
    for name in arguments:
        slot = slots.get(name)
        if slot is None:
            raise ValueError(f"{name!r} is no variable of {code.co_qualname}")
        if slot not in cells:
            plain.append(name)
        elif slot in shape.plain_slots:
            covered.append(name)
        else:
            raise ValueError(f"{name!r} is a cell before {target!r}: it comes with the closure, not as an argument")
    given = {slots[name] for name in arguments}
    unset = frozenset(
        i for i in must_be_set(code, target) if i not in given and (i not in cells or i in shape.plain_slots)
    )
    return plain, covered, unset


def _checked_loads(kept: list[Instruction], table: list[ExceptionEntry], unset: frozenset[int]) -> list[Instruction]:
    """The instructions with every load of the `unset` slots checked.

    A variable that had no value when the frame was left raises where it is read, as it does in the frame itself: the
    compiler left out the check there because an earlier load, which is not part of this code, has one.
    """
    if not unset:
        return kept
    result: list[Instruction] = []
    for instruction in kept:
        result.append(instruction)
        if instruction.opname == "LOAD_FAST" and instruction.arg in unset:
            instruction.opname = "LOAD_FAST_CHECK"
        elif instruction.opname in TABLE.fused:
            second = _split_fused(instruction, unset)
            if second is not None:
                result.append(second)
                for entry in table:
                    if entry.end is instruction:
                        entry.end = second
    return result


def _split_fused(instruction: Instruction, unset: frozenset[int]) -> Instruction | None:
    """Make `instruction` its first half and return the second, or None where it loads none of the `unset` slots."""
    opnames, arg = TABLE.fused[instruction.opname], instruction.arg
    assert arg is not None
    slots = (arg >> 4, arg & 15)
    halves = ["LOAD_FAST_CHECK" if o == "LOAD_FAST" and s in unset else o for o, s in zip(opnames, slots)]
    if tuple(halves) == tuple(opnames):
        return None
    first, second = instruction.argval
    instruction.opname, instruction.arg, instruction.argval = halves[0], slots[0], first
    return Instruction(halves[1], slots[1], second, position=instruction.position)


def _reachable(decoded: DecodedCode, target: Instruction) -> tuple[list[Instruction], list[ExceptionEntry]]:
    """What control can reach from `target`, and the protected ranges cut to that."""
    instructions, handlers = decoded.instructions, decoded.handlers()
    seen = [False] * len(instructions)
    waiting = [decoded.index_of(target)]
    while waiting:
        at = waiting.pop()
        while not seen[at]:
            seen[at] = True
            instruction, entry = instructions[at], handlers[at]
            if entry is not None:
                waiting.append(decoded.index_of(entry.target))
            if instruction.target is not None:
                waiting.append(decoded.index_of(instruction.target))
            if instruction.opname in TERMINATORS:
                break
            at += 1
    table = []
    for entry in decoded.exception_table:
        inside = [i for i in range(decoded.index_of(entry.start), decoded.index_of(entry.end) + 1) if seen[i]]
        if inside:
            first, last = instructions[inside[0]], instructions[inside[-1]]
            table.append(ExceptionEntry(first, last, entry.target, entry.depth, entry.lasti))
    return [instruction for instruction, is_kept in zip(instructions, seen) if is_kept], table


def _taken_variables(
    code: CodeType, decoded: DecodedCode, kept: Iterable[Instruction], shape: StackShape
) -> tuple[str, ...]:
    """The cell variables whose slot an inlined comprehension takes over, now or later.

    Such a slot may hold a plain value, which Python bears in the slot of a cell variable but not in that of a free
    one. So these stay cell variables; their cells come in under another name and are put into the slot.
    """
    slots = {mark.slot for mark in shape.marks}
    slots.update(i.arg for i in kept if i.opname == "LOAD_FAST_AND_CLEAR" and i.arg is not None)
    cells = cell_slots(code, decoded)
    return tuple(decoded.local_names[slot] for slot in sorted(slots & cells))


def _entry(
    decoded: DecodedCode,
    shape: StackShape,
    nulls: Collection[int],
    taken: Sequence[str],
    covered: Sequence[str],
    freevars: Sequence[str],
) -> tuple[list[Instruction], list[ExceptionEntry]]:
    """The prologue: cells, the stack from the bottom up, then the slots that comprehensions take over.

    Handlers and comprehensions are entered by the opcodes that enter them in the original, so that the analyses find
    the same state when the resume function is itself resumed.
    """
    entry = emit.prologue((), freevars)
    table: list[ExceptionEntry] = []
    saved = {m.place: m for m in shape.marks if m.slot >= 0 and decoded.local_names[m.slot] in taken}
    for place in range(shape.depth):
        argument = f"{_STACK}{place}"
        if place in saved:
            variable = CellName(decoded.local_names[saved[place].slot])
            entry += _enter_comprehension(argument, place in nulls, variable, saved[place].plain)
        elif place in nulls:
            entry += emit.push_null()
        elif place in shape.lasti:
            entry += emit.load_const(0)
        elif place in shape.handled:
            entering, protected = _enter_handler(argument, place)
            entry += entering
            table.append(protected)
        else:
            entry += _take(argument)
    plain_now = {decoded.local_names[slot] for slot in shape.plain_slots}
    for name in taken:
        store = [Instruction("STORE_FAST", None, CellName(name))]
        if name in covered:
            entry += _take(_SLOT + name) + store
        elif name not in plain_now:
            entry += emit.load_cell(_CELL + name) + store
    return entry, table


def _enter_comprehension(argument: str, is_null: bool, name: CellName, plain: bool) -> list[Instruction]:
    """[] -> [what the comprehension saved], through the slot it took over."""
    saved = emit.push_null() if is_null else _take(argument)
    slot = [Instruction("STORE_FAST", None, name), Instruction("LOAD_FAST_AND_CLEAR", None, name)]
    return [*saved, *slot, *([] if plain else [Instruction("MAKE_CELL", None, name)])]


def _take(name: str) -> list[Instruction]:
    """[] -> [argument]; the variable lets go of it, so that the value lives no longer than on the original's stack."""
    if "LOAD_FAST_AND_CLEAR" in OPCODE:
        return [Instruction("LOAD_FAST_AND_CLEAR", None, name)]
    return emit.load_fast(name) + emit.delete_fast(name)


def _enter_handler(name: str, depth: int) -> tuple[list[Instruction], ExceptionEntry]:
    """[] -> [what was handled outside], with the exception in `name` as the one being handled.

    RERAISE neither adds a traceback line nor sets `__context__`, so the exception arrives as it left the original.
    """
    raising = emit.reraise()
    caught = [Instruction("PUSH_EXC_INFO"), *emit.pop_top()]
    # RERAISE trusts its operand; anything but an exception would crash Python.
    check = [*emit.load_const(BaseException), Instruction("CHECK_EXC_MATCH")]
    check += emit.pop_jump_if_true(raising[0], is_bool=True)
    refuse = emit.load_const(TypeError("a resume function inside a handler takes the exception being handled"))
    entering = [*_take(name), *check, *refuse, *emit.raise_varargs(), *raising, *caught]
    return entering, ExceptionEntry(raising[0], raising[0], caught[0], depth)


def _variables(code: CodeType, decoded: DecodedCode, kept: Sequence[Instruction], first: list[str]) -> list[str]:
    """co_varnames: the arguments, then the other locals that the kept instructions mention."""
    cells = cell_slots(code, decoded)
    used: set[int] = set()
    for instruction in kept:
        kind = KIND[OPCODE[instruction.opname]] if instruction.opname in OPCODE else None
        if instruction.arg is None:
            continue
        if kind == LOCAL:
            used.add(instruction.arg)
        elif kind == FUSED:
            used.update((instruction.arg >> 4, instruction.arg & 15))
    names = decoded.local_names
    return first + [names[slot] for slot in sorted(used) if slot not in cells and names[slot] not in first]


def _explicit_super(
    code: CodeType, decoded: DecodedCode, pairs: list[tuple[Instruction, Instruction]], start: Instruction
) -> tuple[list[Instruction], Instruction]:
    """Give `super()` its two arguments: it looks for them in the frame, whose first argument is another one here.

    pairs: each kept instruction with its copy; returns the copies with what was put in, and where to start.
    """
    result: list[Instruction] = []
    for at, (original, kept) in enumerate(pairs):
        explicit: list[Instruction] = []
        if original.opname == "LOAD_SUPER_ATTR" and not original.flags & _SUPER_HAS_ARGUMENTS:
            explicit = _super_attribute(decoded, original, kept, pairs[at + 1][1])
        elif original.opname in ("PRECALL", "CALL") and _calls_bare_super(decoded, original):
            if original.opname == "CALL" and at and pairs[at - 1][0].opname == "PRECALL":
                explicit = []
            else:
                behind = pairs[at + (2 if original.opname == "PRECALL" else 1)][1]
                explicit = _super_call(code, kept, behind)
        if explicit:
            result += located(explicit, original.position)
            start = explicit[0] if kept is start else start
        result.append(kept)
    return result, start


_SUPER_HAS_ARGUMENTS = 2


def _calls_bare_super(decoded: DecodedCode, call: Instruction) -> bool:
    """Whether a PRECALL or CALL is that of `super()`. Where it was made explicit, the load is no longer beside it."""
    index = decoded.index_of(call) - 1
    if decoded.instructions[index].opname == "PRECALL":
        index -= 1
    load = decoded.instructions[index]
    return call.arg == 0 and load.opname == "LOAD_GLOBAL" and load.argval == "super" and bool(load.flags)


def _if_builtin_super(depth: int, otherwise: Instruction) -> list[Instruction]:
    """Go on when the value `depth` places down is the builtin `super`, else to `otherwise`."""
    test = emit.copy(depth) + emit.load_const(builtins.super) + emit.is_op()
    return test + emit.pop_jump_if_false(otherwise, is_bool=True)


def _super_attribute(
    decoded: DecodedCode, original: Instruction, otherwise: Instruction, behind: Instruction
) -> list[Instruction]:
    """[super, class, self] -> the attribute, with a super object made of the two rather than of the frame."""
    if decoded.instructions[decoded.index_of(original) - 1].opname in TERMINATORS:
        return []  # the fallback that an earlier resume function put in
    flags = original.flags | _SUPER_HAS_ARGUMENTS
    explicit = Instruction("LOAD_SUPER_ATTR", None, original.argval, flags)
    return [*_if_builtin_super(3, otherwise), explicit, *emit.jump(behind)]


def _super_call(code: CodeType, otherwise: Instruction, behind: Instruction) -> list[Instruction]:
    """With the callable and its NULL on the stack: call it as `super(__class__, first)` if it is the builtin."""
    if not code.co_argcount:
        raise Unsupported(
            f"{code.co_qualname} calls super() but has no first argument",
            instead="the frame is left to Python",
            remedy="write super(Class, self)",
        )
    first = code.co_varnames[0]
    load_first = emit.load_deref(first) if first in code.co_cellvars else emit.load_fast(first)
    return [
        *_if_builtin_super(1 if TABLE.null_before_callable else 2, otherwise),
        *emit.load_deref("__class__"),
        *load_first,
        *emit.call_function(2, with_null=True),
        *emit.jump(behind),
    ]


def _qualname(code: CodeType, target: Instruction) -> str:
    original = code.co_qualname.split(_MARK, 1)[0]
    return f"{original}{_MARK}at line {target.line}>"
