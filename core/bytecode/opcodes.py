"""The opcodes of the running interpreter: its VersionTable and what kind of argument each opcode has."""

from __future__ import annotations

import dis
import sys
from importlib import import_module

from ..errors import UnsupportedPython
from .version import VersionTable

SUPPORTED = ((3, 11), (3, 12), (3, 13))


def _running_table() -> VersionTable:
    version = sys.version_info[:2]
    if version not in SUPPORTED:
        raise UnsupportedPython(
            f"CPython {version[0]}.{version[1]} has a bytecode that core does not know",
            instead="core was not imported",
            remedy="use CPython 3.11, 3.12 or 3.13",
        )
    table: VersionTable = import_module(f".py{version[0]}{version[1]}", __package__).TABLE
    return table


TABLE = _running_table()

LOOP_EXIT = TABLE.loop_exit
SEND_KEEPS_RECEIVER = TABLE.send_keeps_receiver

PLAIN, NO_ARGUMENT, CONST, NAME, FLAGGED_NAME, LOCAL, FORWARD, BACKWARD, COMPARE, FUSED = range(10)

COMPARE_OPERATORS = ("<", "<=", "==", "!=", ">", ">=")
_PLAIN_OPERATORS = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
BINARY_OPERATORS = _PLAIN_OPERATORS + tuple(operator + "=" for operator in _PLAIN_OPERATORS)

EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
# 3.12 and later also list pseudo opcodes, numbered from 256 up, which never stand in a code object.
OPCODE = {name: code for name, code in dis.opmap.items() if code < 256 and not name.startswith("INSTRUMENTED_")}
OPNAME = tuple(dis.opname[:256])

_LOCAL_OPS = frozenset(dis.haslocal) | frozenset(dis.hasfree)


def _kind(name: str, code: int) -> int:
    if name in TABLE.fused:
        return FUSED
    if code in dis.hasjrel:
        return BACKWARD if "BACKWARD" in name else FORWARD
    if code in dis.hasconst:
        return CONST
    if code in dis.hasname:
        return FLAGGED_NAME if name in TABLE.flag_bits else NAME
    if code in _LOCAL_OPS:
        return LOCAL
    if name == "COMPARE_OP":
        return COMPARE
    return PLAIN if code >= dis.HAVE_ARGUMENT else NO_ARGUMENT


KIND = [NO_ARGUMENT] * 256
CACHES = [0] * 256
FLAG_BITS = [0] * 256
for _name, _code in OPCODE.items():
    KIND[_code] = _kind(_name, _code)
    CACHES[_code] = TABLE.caches.get(_name, 0)
    FLAG_BITS[_code] = TABLE.flag_bits.get(_name, 0)

JUMPS = frozenset(name for name, code in OPCODE.items() if KIND[code] in (FORWARD, BACKWARD)) | frozenset(TABLE.aliases)
UNCONDITIONAL_JUMPS = frozenset(
    name for name in ("JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT") if name in JUMPS
)
# Control never goes from one of these to the next instruction.
TERMINATORS = UNCONDITIONAL_JUMPS | {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"}
