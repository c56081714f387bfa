"""NamedTupleObjectVariable: an object of a namedtuple class that has an instance dict (a subclass without slots)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .base import NotConstant, VariableTracker, find_special
from .own_attributes import OwnAttributes
from .sequence import TupleVariable, field_names

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class NamedTupleObjectVariable(OwnAttributes, TupleVariable):
    """Items by name and position, and attributes."""

    mutable = True

    def __init__(self, items: Iterable[VT], cls: type, source: Any = None, value: Any = None) -> None:
        super().__init__(items, cls, source)
        self.value = value
        self.written: dict[str, VT] = {}

    def as_constant(self) -> tuple[Any, ...]:
        if self.has_attributes():
            raise NotConstant("a tuple with attributes of its own")
        return super().as_constant()

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if hasattr(type(find_special(self.cls, name)), "__set__"):  # an item or a property comes before the dict
            return super().get_attr(tx, name)
        found = self.own_attribute(tx, name)
        return found if found is not None else super().get_attr(tx, name)

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        raw = find_special(self.cls, name)
        if name in field_names(self.cls) and not isinstance(raw, property):
            tx.raise_exception(AttributeError, "can't set attribute")
        if isinstance(raw, property) and raw.fset is not None:
            tx.call_function(tx.wrap(raw.fset, None, constant=True), [self, value])
            return
        if hasattr(type(raw), "__set__") or find_special(self.cls, "__setattr__") is not object.__setattr__:
            raise self.refuse(f"setting attribute {name!r}")
        tx.side_effects.mutated(self)
        self.written[name] = value

    def del_attr(self, tx: Tracer, name: str) -> None:
        raise self.refuse(f"deleting attribute {name!r}")

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        super().reconstruct(emit)
        emit.remember(self)
        self.emit_written(emit)


TupleVariable.with_attributes = NamedTupleObjectVariable
