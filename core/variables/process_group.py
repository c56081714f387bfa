"""torch.distributed.ProcessGroup: what is fixed for the life of a group is answered while tracing.

Enters: a ProcessGroup of the program and a name. Leaves: the number or string, guarded by which group it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..guards.checks import Is
from ..guards.source import CallSource, ConstSource
from .base import SlotMethodVariable, VariableTracker
from .builtin import BuiltinVariable

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker

_MODULE = "torch._C._distributed_c10d"
_METHODS = frozenset(("rank", "size", "name"))
_ATTRIBUTES = frozenset(("group_name", "group_desc", "bound_device_id"))


class FixedMethodVariable(SlotMethodVariable):
    """A method of a group that gives the same for as long as the group lives."""

    receiver: Any

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if args or kwargs:
            raise self.receiver.refuse(f"calling {self.name!r} with arguments")
        return tx.constant(getattr(self.receiver.value, self.name)())


class GroupOfNameVariable(BuiltinVariable):
    """The function that looks a group up by its name: the group is read again by each call's guards."""

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if kwargs or len(args) != 1 or not args[0].is_constant():
            raise self.refuse("looking up a group by a name that is not fixed")
        name = args[0].as_constant()
        found = tx.answer(self.value, [name], {})
        return tx.wrap(found, CallSource(ConstSource(name), self.value))


def finds_groups(function: Any) -> bool:
    """True for torch's own lookup of a group by its name."""
    return function.__name__ == "_resolve_process_group" and function is getattr(
        sys.modules.get(_MODULE), "_resolve_process_group", None
    )


def _class_of_groups() -> Any:
    return getattr(sys.modules.get(_MODULE), "ProcessGroup", None)


def is_process_group(cls: type) -> bool:
    """True for torch's own class of groups; a program without distributed code has not imported it."""
    return cls is _class_of_groups()


def fixed(tx: Tracer, group: Any, name: str, raw: Any) -> VT | None:
    """The attribute `name` of a group, None for what may change or does something."""
    if group.value is None or name not in _METHODS | _ATTRIBUTES:
        return None
    tx.guard(group.source, Is(group.value))
    if name in _METHODS:
        return FixedMethodVariable(group, name, raw)
    return tx.wrap(getattr(group.value, name), None, constant=True)
