"""Decode and assemble code objects of the standard library unchanged; print what differs as JSON."""

import json
import sys
import sysconfig
import types
from pathlib import Path

from core.bytecode import assemble, decode
from core.bytecode.stack import stack_shapes
from core.bytecode.tables import decode_exception_table, decode_line_table, encode_exception_table

KEPT = ("co_code", "co_exceptiontable", "co_linetable", "co_consts", "co_names", "co_varnames", "co_flags")


def codes_in(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def differences(code):
    decoded = decode(code)
    new = assemble(decoded.instructions, code, exception_table=decoded.exception_table)
    for name in KEPT:
        if getattr(new, name) != getattr(code, name):
            yield name
    if list(new.co_positions()) != list(code.co_positions()):
        yield "positions"
    if decode_line_table(code.co_linetable, code.co_firstlineno) != list(code.co_positions()):
        yield "decoded line table"
    if encode_exception_table(decode_exception_table(code.co_exceptiontable)) != code.co_exceptiontable:
        yield "decoded exception table"
    if new.co_stacksize < code.co_stacksize:
        yield "stack size"
    shapes = [shape for shape in stack_shapes(decoded) if shape is not None]
    if not all(0 <= shape.depth <= code.co_stacksize + 1 for shape in shapes):
        yield "stack shapes"


def main(step, offset):
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted([*library.glob("*.py"), *library.glob("asyncio/*.py"), *library.glob("email/*.py")])
    count, wrong = 0, []
    for path in files[int(offset) :: int(step)]:
        module = compile(path.read_text(encoding="utf8"), path.name, "exec", dont_inherit=True)
        for code in codes_in(module):
            count += 1
            wrong += [f"{path.name} {code.co_qualname}: {what}" for what in differences(code)]
    print(json.dumps({"codes": count, "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
