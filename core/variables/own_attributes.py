"""OwnAttributes: the instance dict of an object whose other parts are known by their places, read and written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..guards.checks import MissingInstanceAttr
from ..guards.source import InstanceAttrSource
from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class OwnAttributes:
    """Mixed into a tracker with `source`. `value` is the real object, None for one made by the traced code; `written`
    are the attributes that the traced code gave it."""

    source: Any
    value: Any
    written: dict[str, VT]

    def has_attributes(self) -> bool:
        """True where the instance dict has something in it."""
        return bool(self.written) or self.value is not None and bool(self.value.__dict__)

    def own_attribute(self, tx: Tracer, name: str) -> VT | None:
        """The attribute in the instance dict; that there is none is guarded."""
        if name in self.written:
            return self.written[name].realize(tx)
        if self.value is None:
            return None
        if name in self.value.__dict__:
            return tx.wrap(self.value.__dict__[name], self.source and InstanceAttrSource(self.source, name))
        if self.source is not None:
            tx.guard(self.source, MissingInstanceAttr(name))
        return None

    def emit_written(self, emit: Emitter) -> None:
        """Give what was written to the object on the stack, which stays there."""
        for name, value in self.written.items():
            emit.copy_top()
            emit.load(value)
            emit.swap(2)
            emit.store_attr(name)

    def write_back(self, emit: Emitter) -> None:
        """Give what was written to the real object."""
        for name, value in self.written.items():
            emit.load(value)
            emit.load(self)  # type: ignore[arg-type]
            emit.store_attr(name)
