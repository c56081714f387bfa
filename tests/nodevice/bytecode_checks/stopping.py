"""Stop a real function before one of its instructions and run the rest in a resume function.

A stopping function is the original with a question inserted before the target: on yes it takes its own stack apart
into locals and hands everything over. What is handed over is all a resume function gets, so a variable that liveness
forgot, a wrong stack or a lost handler shows in the result.
"""

import sys
import types

from core.bytecode import emit
from core.bytecode.assemble import assemble
from core.bytecode.decode import decode
from core.bytecode.instruction import ExceptionEntry, Instruction, copied, located
from core.bytecode.liveness import liveness
from core.bytecode.resume import build_resume, entry_length
from core.bytecode.stack import stack_shapes

_SLOT = ".s{}"


def points(code):
    """The instructions of the code that a function can be stopped before."""
    decoded = decode(code)
    result = []
    for index, (instruction, shape) in enumerate(zip(decoded, stack_shapes(decoded))):
        before = [i.opname for i in decoded.instructions[max(0, index - 2) : index]]
        # FOR_ITER goes past these without running them.
        passed_over = instruction.opname == "END_FOR" or (
            before[-1:] == ["END_FOR"] and instruction.opname == "POP_TOP"
        )
        # The slot of a cell variable is empty between these two, which no closure can express.
        between = instruction.opname == "MAKE_CELL" and before[-1:] == ["LOAD_FAST_AND_CLEAR"]
        if index >= entry_length(code) and shape is not None:
            in_call = before[-1:] == ["KW_NAMES"] or before == ["KW_NAMES", "PRECALL"]
            if not passed_over and not between and not in_call:
                result.append(index)
    return result


def stopping(function, index, ask, receive):
    """A function that does as `function` until `ask()` is true before the instruction at `index`.

    Then it returns `receive(code, index, locals, cells)`; the stack lies in the locals `.s0`, `.s1`, ...
    """
    code = function.__code__
    decoded = decode(code)
    shape = stack_shapes(decoded)[index]
    instructions, table = copied(decoded.instructions, decoded.exception_table)
    target = instructions[index]
    handover, guarded = _handover(code, shape, index, receive)
    question = [*emit.load_const(ask), *emit.call_function(0), *emit.pop_jump_if_true(handover[0], is_bool=True)]
    for other in instructions:
        if other.target is target:
            other.target = question[0]
    for entry in table:
        if entry.start is target:
            entry.start = question[0]
        if entry.target is target:
            entry.target = question[0]
    located(question + handover, target.position)
    new = assemble(
        instructions[:index] + question + instructions[index:] + handover, code, exception_table=table + guarded
    )
    stopped = types.FunctionType(
        new, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    stopped.__kwdefaults__ = function.__kwdefaults__
    return stopped


UNSET = object()


def _handover(code, shape, index, receive):
    taken = []
    for place in range(shape.depth - 1, -1, -1):
        if place in shape.handled:
            # What is passed for the place is the exception being handled; leaving the handler brings back the outer.
            taken += emit.load_const(sys.exception) + emit.call_function(0)
            taken += emit.store_fast(_SLOT.format(place)) + [Instruction("POP_EXCEPT")]
        else:
            taken += emit.store_fast(_SLOT.format(place))  # storing a NULL unsets the variable
    decoded = decode(code)
    names = [name for name in code.co_cellvars + code.co_freevars if not name.startswith(".")]
    plain = [decoded.local_names[slot] for slot in shape.plain_slots]
    cells = []
    for name in names:
        if name in plain:
            cells += emit.load_const(types.CellType) + emit.call_function(0)
        else:
            cells += emit.load_cell(name)
    variables = [_SLOT.format(place) for place in range(shape.depth)] + plain
    variables += [name for name in code.co_varnames if name not in code.co_cellvars]

    def received(code, index, cells, *values):
        return receive(code, index, {n: v for n, v in zip(variables, values) if v is not UNSET}, cells)

    loads, guarded = _load_what_is_set(variables, 4)
    return [
        *taken,
        *emit.load_const(received),
        *emit.load_const(code),
        *emit.load_const(index),
        *cells,
        *emit.build_tuple(len(names)),
        *loads,
        *emit.call_function(3 + len(variables)),
        *emit.return_value(),
    ], guarded


def _load_what_is_set(names, depth):
    """Push each variable, UNSET for one that is not set. `locals()` would do, but it crashes CPython 3.13.0 in an
    inlined comprehension whose variable is also a cell variable."""
    instructions, table = [], []
    for place, name in enumerate(names):
        load, behind = emit.load_fast(name), emit.nop()
        unset = [*emit.pop_top(), *emit.load_const(UNSET)]
        instructions += load + emit.jump(behind[0]) + unset + behind
        table.append(ExceptionEntry(load[0], load[0], unset[0], depth + place))
    return instructions, table


def resume(code, index, variables, cells, function_globals):
    """(resume function, arguments) for what a stopping function handed over."""
    decoded = decode(code)
    target, shape = decoded.instructions[index], stack_shapes(decoded)[index]
    nulls = {place for place in range(shape.depth) if _SLOT.format(place) not in variables}
    passed = [name for name in liveness(code).locals_at(target) if name in variables]
    built = build_resume(code, target, depth=shape.depth, nulls=nulls, arguments=passed)
    function = types.FunctionType(built.code, function_globals, code.co_name, None, cells or None)
    arguments = [variables[_SLOT.format(place)] for place in built.stack]
    return function, arguments + [variables[name] for name in built.locals]
