"""Operations that raise for some values, inside a `try` of the program's that would see it, where the frame can't begin
anew because the graph has left something behind: the graph ends before them, and Python runs them.

Asked after each operation is added to the graph. Code without such a `try` loses nothing, nor does a graph that only
computes: as_written.py sees to it. A `finally` of a block that begins in the traced code is not asked about: what it
would undo, the graph that failed has not done. Under fullgraph, where a break is no way out, the entry keeps what the
graph writes to as it was, and puts it back for the frame to begin anew.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ..bytecode.instruction import ExceptionEntry
from ..bytecode.resume import is_resume_code
from ..errors import Unsupported
from ..graph.data_errors import may_raise
from ..graph.repeatable import is_lasting, writes_to

OF_KERNELS = (RuntimeError, IndexError, ValueError)
"""What torch's kernels raise."""

OF_ABSENT_KERNELS = NotImplementedError
"""What torch raises where an operation has no kernel: the same for all values."""

LIBRARIES = ("torch", "core")
"""Their handlers put torch's own state back, which the graph's failure does as well."""

CLAUSE = 12
"""Instructions looked at for the classes of an `except`: those of a tuple of so many names, or fewer with dots."""


def refuse_uncatchable(tx: Any, mark: int) -> None:
    """Raise Unsupported where an operation just added could raise into a handler that the graph's failure can't reach.

    mark: the number of recorded calls before it.
    """
    calls = tx.builder.recorded_calls
    added = calls[mark:]
    trace = tx.trace
    if trace.raises_into is not None and any(is_lasting(call) for call in added):
        raise _refusal(tx, trace.raises_into)  # a functional graph runs them in the order that suits it
    if tx.builder.in_region or not any(map(may_raise, added)):
        return
    unknown = any(is_lasting(call) for call in added)
    seen_by = _seen_by(tx, (Exception,) if unknown else OF_KERNELS)
    if seen_by is None:
        return
    storages = tx.builder.input_storages() if trace.in_order else frozenset()
    if trace.options.fullgraph:
        trace.undoes = trace.undoes or any(writes_to(call, storages) for call in calls)
        return
    if any(is_lasting(call) or writes_to(call, storages) for call in calls):
        refusal = _refusal(tx, str(added[-1].op))
        refusal.from_around = seen_by is not tx
        raise refusal
    if not trace.in_order:
        trace.raises_into = str(added[-1].op)


def may_come_later(tx: Any) -> bool:
    """Whether an error found while capturing may come when the graph runs instead: no handler of the program's would
    see it, and the frame can begin anew."""
    calls, storages = tx.builder.recorded_calls, tx.builder.input_storages()
    if tx.builder.in_region or _seen_by(tx, OF_KERNELS) is not None:
        return False
    return not any(is_lasting(call) or writes_to(call, storages) for call in calls)


def _refusal(tx: Any, name: str) -> Unsupported:
    return Unsupported(
        f"{name} may raise inside a try, and the graph would have left something behind by then",
        where=tx.line,
        remedy="check the values before anything is written, or handle the error outside of the compiled function",
    )


def may_be_caught(tx: Any) -> bool:
    """Whether a handler of the program's would see some exception that is raised here."""
    return _seen_by(tx, (Exception,)) is not None


def _seen_by(tx: Any, kinds: tuple[type[Exception], ...]) -> Any:
    """The frame with a handler of the program's that would see the operation raise: this one or one of its callers that
    are traced as well; None without one."""
    frame = tx
    while frame is not None:
        if str(frame.globals_dict.get("__name__", "")).partition(".")[0] not in LIBRARIES:
            if any(_handles(frame, entry, kinds) for entry in _entries(frame)):
                return frame
        frame = frame.parent
    return None


def _entries(frame: Any) -> Iterator[ExceptionEntry]:
    """The protected ranges around the current instruction, the innermost first."""
    entry = frame.decoded.handler_of(frame.current)
    while entry is not None:
        yield entry
        entry = frame.decoded.handler_of(entry.target)


def _handles(frame: Any, entry: ExceptionEntry, kinds: tuple[type[Exception], ...]) -> bool:
    """Whether the handler runs code of the program's for such an exception: an `except` of its class, the `finally` of
    a block that plain Python has entered."""
    at = frame.decoded.index_of(entry.target)
    if frame.instructions[at].opname != "PUSH_EXC_INFO":
        return False  # what Python puts around a handler
    at += 1
    named = any(instruction.opname == "CHECK_EXC_MATCH" for instruction in frame.instructions[at : at + CLAUSE])
    catches = named or frame.instructions[at].opname == "POP_TOP"
    while True:
        names: list[str] = []
        for instruction in frame.instructions[at : at + CLAUSE]:
            if instruction.opname == "LOAD_GLOBAL":
                names.append(str(instruction.argval))
            elif instruction.opname == "CHECK_EXC_MATCH":
                break
            elif instruction.opname == "WITH_EXCEPT_START":
                return _suppresses(frame.stack[entry.depth - 1])
            elif instruction.opname != "BUILD_TUPLE":
                return catches or is_resume_code(frame.code)
        else:
            return True
        if any(_matches(frame, name, kinds) for name in names):
            return True
        jump = frame.instructions[frame.decoded.index_of(instruction) + 1]
        if jump.target is None or jump.target.opname == "RERAISE":
            return False
        at = frame.decoded.index_of(jump.target)


def _suppresses(leave: Any) -> bool:
    """Whether what leaves a with block is that of contextlib.suppress; other managers of a program hand errors on."""
    receiver = getattr(leave, "receiver", None)
    return receiver is not None and receiver.kind == "user_object" and issubclass(receiver.python_type(), suppress)


def _matches(frame: Any, name: str, kinds: tuple[type[Exception], ...]) -> bool:
    found = frame.globals_dict.get(name, getattr(builtins, name, None))
    if not isinstance(found, type):
        return True  # a tuple of classes, say
    if kinds is OF_KERNELS and issubclass(found, OF_ABSENT_KERNELS):
        return False
    return any(issubclass(found, kind) or issubclass(kind, found) for kind in kinds)
