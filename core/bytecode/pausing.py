"""Code that shows as another and runs none of it: its generator, never begun, has a frame for a traceback."""

from __future__ import annotations

from types import CodeType

from .opcodes import OPCODE

_GENERATOR = 0x20  # CO_GENERATOR
_ARGUMENTS = 0x04 | 0x08  # CO_VARARGS, CO_VARKEYWORDS
_PAUSE = bytes((OPCODE["RETURN_GENERATOR"], 0, OPCODE["POP_TOP"], 0, OPCODE["RESUME"], 0))
_NOTHING = bytes((OPCODE["NOP"], 0))


def pausing(code: CodeType) -> CodeType:
    """A generator's code with the name, the file and the lines of `code`, offset for offset, and no arguments.

    The frame of a generator is asked for by no caller, so it holds nothing but its globals.
    """
    length = max(len(code.co_code), len(_PAUSE) + len(_NOTHING))
    return code.replace(
        co_code=_PAUSE + _NOTHING * ((length - len(_PAUSE)) // 2),
        co_exceptiontable=b"",
        co_argcount=0,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_cellvars=(),
        co_freevars=(),
        co_flags=code.co_flags & ~_ARGUMENTS | _GENERATOR,
    )
