"""collections.namedtuple(...) in traced code: the class is made while tracing, and by each run that lets it out."""

from __future__ import annotations

import collections
import types
from typing import Any

from ..errors import Unsupported
from ..variables.base import VariableTracker
from ..variables.class_ import ClassVariable
from .special_calls import function

VT = VariableTracker


class NamedTupleClassVariable(ClassVariable):
    """A class that a call of namedtuple() with constant arguments makes; giving it back makes it anew."""

    def __init__(self, cls: type, args: list[VT], kwargs: dict[str, VT]) -> None:
        super().__init__(cls)
        self.args = args
        self.kwargs = kwargs

    def set_attr(self, tx: Any, name: str, value: VT) -> None:
        raise self.refuse(f"setting attribute {name!r}")

    def reconstruct(self, emit: Any) -> None:
        emit.push_null()
        emit.load_global_object(collections.namedtuple)
        for value in (*self.args, *self.kwargs.values()):
            emit.load(value)
        emit.call_keywords(tuple(self.kwargs), len(self.args) + len(self.kwargs))


@function(collections.namedtuple)
def named_tuple_class(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The tracker of a new class; what its functions consist of follows from the arguments and needs no guard."""
    values = [arg.look_inside(tx) for arg in args]
    named = {key: value.look_inside(tx) for key, value in kwargs.items()}
    if not all(value.is_constant() for value in (*values, *named.values())):
        raise Unsupported(
            "namedtuple() of what only a run can tell is not traced", remedy="make the class outside the function"
        )
    # without it namedtuple() would look at its caller's frame
    named.setdefault("module", tx.constant(tx.globals_dict.get("__name__", "__main__")))
    keywords = {key: value.as_constant() for key, value in named.items()}
    made = tx.answer(collections.namedtuple, [value.as_constant() for value in values], keywords)
    tracker = NamedTupleClassVariable(made, values, named)
    methods = (getattr(part, "__func__", part) for part in vars(made).values())  # of static and class methods too
    for part in (made, *(method for method in methods if isinstance(method, types.FunctionType))):
        tx.trace.unreal[id(part)] = tx.trace.step
    tx.trace.made_again[id(made)] = tracker
    return tx.trace.remember(made, tracker)
