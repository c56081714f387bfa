"""Guards: what a capture assumed, and the C program that checks it on each call.

Enters: sources (how a value is reached), checks (what must hold for it), the user's line. Leaves: a GuardProgram for
the C evaluator and texts that explain a miss. Files: source (paths), checks (conditions), guard (pairs and their set),
tensor_spec (facts about a tensor), tree (to a flat program), shapes (symbolic sizes), failure (why a program missed).
This package must not know graphs, variables or backends.
"""

from __future__ import annotations

from .binding import Binding
from .checks import (
    Check,
    DictKeys,
    Equals,
    GlobalState,
    IntRange,
    Is,
    IsNot,
    Length,
    MissingGlobal,
    MissingInstanceAttr,
    MissingKey,
    NoOverlap,
    NotSameAs,
    Predicate,
    SameAs,
    ShapeHolds,
    TensorMatch,
    TypeIs,
)
from .guard import Guard, GuardSet
from .held import Held
from .source import (
    AttrSource,
    BuiltinSource,
    CellSource,
    ClosureSource,
    ConstSource,
    DictItemSource,
    FrameValues,
    FunctionPartSource,
    GlobalSource,
    InstanceAttrSource,
    InstanceDictSource,
    ListItemSource,
    LocalSource,
    MethodPartSource,
    ModuleSource,
    SlotAttrSource,
    Source,
    SourceMissing,
    TupleItemSource,
    TypeAttrSource,
    TypeSource,
)
from .tensor_spec import TensorSpec

__all__ = [
    "AttrSource",
    "Binding",
    "BuiltinSource",
    "CellSource",
    "Check",
    "ClosureSource",
    "ConstSource",
    "DictItemSource",
    "DictKeys",
    "Equals",
    "FrameValues",
    "FunctionPartSource",
    "GlobalSource",
    "GlobalState",
    "Guard",
    "GuardSet",
    "Held",
    "InstanceAttrSource",
    "InstanceDictSource",
    "IntRange",
    "Is",
    "IsNot",
    "Length",
    "ListItemSource",
    "LocalSource",
    "MethodPartSource",
    "MissingGlobal",
    "MissingInstanceAttr",
    "MissingKey",
    "ModuleSource",
    "NoOverlap",
    "NotSameAs",
    "Predicate",
    "SameAs",
    "ShapeHolds",
    "SlotAttrSource",
    "Source",
    "SourceMissing",
    "TensorMatch",
    "TensorSpec",
    "TupleItemSource",
    "TypeAttrSource",
    "TypeIs",
    "TypeSource",
]
