"""LimitsVariable: torch.finfo and torch.iinfo, whose attributes are constants of the dtype they stand for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from ..guards.checks import Equals, TypeIs
from ..guards.source import AttrSource
from .constant import ConstantVariable

if TYPE_CHECKING:
    from .base import VariableTracker
    from .protocols import Tracer


def from_value(tx: Tracer, value: Any, source: Any) -> VariableTracker:
    """The tracker of a real finfo or iinfo; its class and dtype, which fix the rest, are guarded."""
    tx.guard(source, TypeIs(type(value)))
    if source is not None:
        tx.guard(AttrSource(source, "dtype"), Equals(value.dtype))
    return LimitsVariable(value, source)


class LimitsVariable(ConstantVariable):
    """A finfo or iinfo. Two of one dtype are equal, and neither can be a key."""

    def hash_key(self, tx: Tracer) -> Hashable:
        tx.raise_exception(TypeError, f"unhashable type: 'torch.{type(self.value).__name__}'")
