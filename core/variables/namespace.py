"""NamespaceVariable: an object of types.SimpleNamespace or of a subclass, whose own methods are written in C."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import Unsupported
from .base import VariableTracker
from .instance_dict import InstanceDictVariable
from .literal import run
from .object import UserObjectVariable

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


class NamespaceVariable(UserObjectVariable):
    """Attributes by keyword; two are equal when their attributes are."""

    def init_base(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """SimpleNamespace.__init__."""
        if args:
            given = args[0].realize(tx)
            if not given.is_constant() and given.kind != "dict":
                raise Unsupported(
                    f"SimpleNamespace() of {given.describe()} is not traced", remedy="pass the attributes by keyword"
                )
            run(tx, types.SimpleNamespace, [{} if given.kind == "dict" else given.as_constant(), *args[1:]])
            for key in given.unpack(tx):
                self.plain_set_attr(tx, key.realize(tx).as_constant(), given.get_item(tx, key))
        for name, value in kwargs.items():
            self.plain_set_attr(tx, name, value)
        return tx.constant(None)

    def plain_get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "__dict__":  # in the class it is a member, not a property
            return InstanceDictVariable(self)
        return super().plain_get_attr(tx, name)

    def own_method(self, tx: Tracer, name: str, args: Sequence[VT]) -> VT | None:
        """What a C method of SimpleNamespace itself gives; None for one that is not traced."""
        if name not in ("__eq__", "__ne__"):
            return None
        other = args[0].realize(tx)
        if not isinstance(other, NamespaceVariable):
            return tx.constant(NotImplemented)
        equal = tx.compare_equal(*(InstanceDictVariable(one).snapshot(tx) for one in (self, other)))
        return tx.constant(equal == (name == "__eq__"))
