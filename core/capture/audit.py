"""The audit of an entry's guards: what the capture read of the program's objects and no guard looks at.

Enters: a finished trace, made under config.audit_guards. Leaves: one UnguardedRead for each finding. Two kinds are
found: a value reached by a way that no guard takes, and a mutable object that was met as a constant, whose contents
nobody looks at again. An audit that finds nothing is no proof; one that finds something names the line.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterator
from typing import Any

import torch

from ..events import UnguardedRead
from ..guards.checks import shorten
from ..guards.source import ConstSource, ModuleSource
from . import policy

_UNCHANGING = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    types.CodeType,
    types.CellType,
    type,
    tuple,
    frozenset,
    property,
    classmethod,
    staticmethod,
    torch.Tensor,
    enum.Enum,
)
_CONTAINERS = (list, dict, set)


def unguarded_reads(trace: Any) -> Iterator[UnguardedRead]:
    """The findings, in the order in which the objects were met."""
    guarded = set()
    for source in trace.guards.sources():
        while source is not None and source not in guarded:
            guarded.add(source)
            source = source.base
    constants = {id(source.value) for source in guarded if isinstance(source, ConstSource)}
    for value in {id(kept): kept for kept in trace.kept}.values():
        tracker = trace.known.get(id(value))
        if tracker is None or getattr(tracker, "value", None) is not value:
            continue
        line = (trace.reads or {}).get(id(value))
        if tracker.source is not None:
            if tracker.source not in guarded and not _is_trusted(tracker.source):
                yield UnguardedRead(tracker.source.name(), line, "no guard of the entry goes this way")
        elif _may_change(value) and id(value) not in constants:
            yield UnguardedRead(shorten(value), line, "it was taken as a constant; its contents may change")


def _is_trusted(source: Any) -> bool:
    root = source.root()
    return isinstance(root, ModuleSource) and root.module.startswith(policy.POLYFILLS)


def _may_change(value: Any) -> bool:
    if isinstance(value, _UNCHANGING):
        return False
    if type(value) in _CONTAINERS:
        return True
    return bool(getattr(value, "__dict__", None)) and not policy.is_trusted(type(value).__module__ or "")
