"""Guard filters: a function of the user's chooses which guards an entry keeps.

Enters: the guards of a capture and the values of the call. Leaves: those that the filter kept. A guard that is dropped
is an assumption that nobody checks: the entry serves calls that it is wrong for. Hence `unsafe` in every name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidOption
from .guard import Guard
from .source import FrameValues, GlobalSource, ModuleSource, Source, SourceMissing


@dataclass(frozen=True)
class GuardEntry:
    """One guard as a filter sees it.

    name: how the value is reached, such as `L['x']`, empty for a guard of several values; guard_type: the class of the
    check, such as "TensorMatch" (see docs/guards.md); value: what stands there now, where has_value; is_global: the
    way begins at a global, a builtin or a module; text: the guard as a statement; orig_guard: the guard itself.
    """

    name: str
    guard_type: str
    has_value: bool
    value: Any
    is_global: bool
    text: str
    orig_guard: Guard


GuardFilter = Callable[[Sequence[GuardEntry]], Iterable[bool]]


def filtered(guards: Iterable[Guard], keep: GuardFilter, frame: FrameValues) -> list[Guard]:
    """The guards for which the filter answers true. Raises InvalidOption when it gives another number of answers."""
    listed = list(guards)
    answers = [bool(answer) for answer in keep([_entry(guard, frame) for guard in listed])]
    if len(answers) != len(listed):
        raise InvalidOption(
            f"guard_filter_fn gave {len(answers)} answers for {len(listed)} guards",
            instead="nothing was compiled",
            remedy="return one bool for each guard",
        )
    return [guard for guard, kept in zip(listed, answers) if kept]


def _entry(guard: Guard, frame: FrameValues) -> GuardEntry:
    value, has_value = None, False
    if guard.source is not None:
        try:
            value, has_value = guard.source.resolve(frame), True
        except SourceMissing:
            pass
    name = "" if guard.source is None else guard.source.name()
    roots = [source.root() for source in guard.sources()]
    return GuardEntry(
        name, type(guard.check).__name__, has_value, value, any(map(_is_global, roots)), guard.describe(), guard
    )


def _is_global(root: Source) -> bool:
    return isinstance(root, (GlobalSource, ModuleSource))


# -- filters that are often wanted -------------------------------------------------------------------------------------


def skip_all_guards_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keep none: the first entry serves every call."""
    return [False for _ in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keep what does not begin at a global, a builtin or a module."""
    return [not entry.is_global for entry in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keep all but what lies in modules of the classes that torch.nn defines."""
    inside = _inside_modules(guard_entries, builtin_only=True)
    return [not inner for inner in inside]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keep all but what lies in modules of any class."""
    return [not inner for inner in _inside_modules(guard_entries, builtin_only=False)]


def keep_tensor_guards_unsafe(guard_entries: Sequence[GuardEntry], keep_parameters: bool = False) -> list[bool]:
    """Keep the guards on the metadata of tensors; those of parameters only when asked to."""
    import torch

    return [
        entry.guard_type == "TensorMatch" and (keep_parameters or not isinstance(entry.value, torch.nn.Parameter))
        for entry in guard_entries
    ]


def keep_portable_guards_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keep what can be asked without Python objects: torch's global state, relations between sizes, and the metadata of
    tensors that are reached without a global."""
    return [
        entry.guard_type in ("GlobalState", "ShapeHolds") or (entry.guard_type == "TensorMatch" and not entry.is_global)
        for entry in guard_entries
    ]


def _inside_modules(guard_entries: Sequence[GuardEntry], *, builtin_only: bool) -> list[bool]:
    import torch

    modules = {
        entry.orig_guard.source
        for entry in guard_entries
        if isinstance(entry.value, torch.nn.Module)
        and (not builtin_only or type(entry.value).__module__.startswith("torch.nn."))
    }
    return [any(step in modules for step in _path(entry.orig_guard.source)) for entry in guard_entries]


def _path(source: Source | None) -> Iterator[Source]:
    while source is not None:
        yield source
        source = source.base
