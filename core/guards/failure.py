"""Why a guard program missed: one line for the recompile report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _C
from .checks import ShapeHolds, shorten
from .guard import Guard
from .source import FrameValues, SourceMissing


def describe_failure(
    guard_list: Sequence[Guard],
    program: _C.GuardProgram,
    args: tuple[Any, ...],
    globals: dict[str, Any],
    builtins: Any,
    closure: tuple[Any, ...] | None,
) -> str:
    """The recompile reason of a frame, such as `L['x'].shape[0] was 4, now 5 (model.py:12 in forward)`.

    guard_list: the guard behind each instruction, as build_program() returns it.
    """
    if program.invalid:
        return "an object that the compiled code referred to is gone"
    index = program.check(args, globals, builtins, closure)
    if index < 0:
        return "every guard holds (again) now"
    guard = guard_list[index]
    frame = FrameValues(args, globals, builtins, closure)
    where = "" if guard.line is None else f" ({guard.line})"
    return explain_guard(guard, frame) + where


def failing_guard(
    guard_list: Sequence[Guard],
    program: _C.GuardProgram,
    args: tuple[Any, ...],
    globals: dict[str, Any],
    builtins: Any,
    closure: tuple[Any, ...] | None,
) -> Guard | None:
    """The guard that misses, as describe_failure() finds it; None when all hold."""
    index = -1 if program.invalid else program.check(args, globals, builtins, closure)
    return guard_list[index] if index >= 0 else None


def explain_guard(guard: Guard, frame: FrameValues) -> str:
    """What changed about the value that a failed guard looks at; names the step of its path that is gone."""
    try:
        if isinstance(guard.check, ShapeHolds):
            numbers = {symbol: b.measure(b.source.resolve(frame)) for symbol, b in guard.check.bindings}
            return guard.check.explain(numbers)
        if guard.source is None:
            return guard.check.explain(None)
        name = guard.source.name()
        return guard.check.explain(_value(guard, frame), name)
    except SourceMissing as missing:
        return f"{missing} does not exist now"
    except Exception as error:  # noqa: BLE001  values are user objects: a report must survive their errors
        return f"{guard.describe()} no longer holds ({type(error).__name__}: {shorten(str(error))})"


def _value(guard: Guard, frame: FrameValues) -> Any:
    assert guard.source is not None
    for other in guard.check.inputs():
        other.resolve(frame)  # raises SourceMissing where the other side is what is gone
    return guard.source.resolve(frame)
