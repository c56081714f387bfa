"""Operations that raise for some values, inside a `try` of the program's that would see it, where the frame can't begin
anew because the graph has left something behind: the graph ends before them, and Python runs them.

Asked after each operation is added to the graph. Code without such a `try` loses nothing, nor does a graph that only
computes: as_written.py sees to it. Under fullgraph, where a break is no way out, the error leaves the function.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

from ..bytecode.instruction import ExceptionEntry
from ..errors import Unsupported
from ..graph.repeatable import is_lasting, may_raise, writes_to

OF_KERNELS = (RuntimeError, IndexError, ValueError)
"""What torch's kernels raise."""

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
    if tx.builder.in_region or trace.options.fullgraph or not any(map(may_raise, added)) or not _is_seen(tx, added):
        return
    storages = tx.builder.input_storages() if trace.in_order else frozenset()
    if any(is_lasting(call) or writes_to(call, storages) for call in calls):
        raise _refusal(tx, str(added[-1].op))
    if not trace.in_order:
        trace.raises_into = str(added[-1].op)


def _refusal(tx: Any, name: str) -> Unsupported:
    return Unsupported(
        f"{name} may raise inside a try, and the graph would have left something behind by then",
        where=tx.line,
        remedy="check the values before anything is written, or handle the error outside of the compiled function",
    )


def _is_seen(tx: Any, calls: Any) -> bool:
    """Whether a handler of the program's, here or in a caller that is traced as well, would see the operation raise."""
    unknown = any(is_lasting(call) for call in calls)
    kinds = (Exception,) if unknown else OF_KERNELS
    frame = tx
    while frame is not None:
        if not str(frame.globals_dict.get("__name__", "")).startswith("torch."):
            if any(_handles(frame, entry, kinds) for entry in _entries(frame)):
                return True
        frame = frame.parent
    return False


def _entries(frame: Any) -> Iterator[ExceptionEntry]:
    """The protected ranges around the current instruction, the innermost first."""
    entry = frame.decoded.handler_of(frame.current)
    while entry is not None:
        yield entry
        entry = frame.decoded.handler_of(entry.target)


def _handles(frame: Any, entry: ExceptionEntry, kinds: tuple[type[Exception], ...]) -> bool:
    """Whether the handler runs code of the program's for such an exception: an `except` of its class, a `finally`."""
    at = frame.decoded.index_of(entry.target)
    if frame.instructions[at].opname != "PUSH_EXC_INFO":
        return False  # what Python puts around a handler
    at += 1
    while True:
        names: list[str] = []
        for instruction in frame.instructions[at : at + CLAUSE]:
            if instruction.opname == "LOAD_GLOBAL":
                names.append(str(instruction.argval))
            elif instruction.opname == "CHECK_EXC_MATCH":
                break
            elif instruction.opname == "WITH_EXCEPT_START":
                return False
            elif instruction.opname != "BUILD_TUPLE":
                return True
        else:
            return True
        if any(_matches(frame, name, kinds) for name in names):
            return True
        jump = frame.instructions[frame.decoded.index_of(instruction) + 1]
        if jump.target is None or jump.target.opname == "RERAISE":
            return False
        at = frame.decoded.index_of(jump.target)


def _matches(frame: Any, name: str, kinds: tuple[type[Exception], ...]) -> bool:
    found = frame.globals_dict.get(name, getattr(builtins, name, None))
    if not isinstance(found, type):
        return True  # a tuple of classes, say
    return any(issubclass(found, kind) or issubclass(kind, found) for kind in kinds)
