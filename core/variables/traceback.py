"""TracebackVariable: the traceback of an exception that the traced code raised."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from .base import VariableTracker

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker


class TracebackVariable(VariableTracker):
    """A traceback that may be handed around and tested. What stands in it only a run can tell: the frames of C code
    and of functions that tracing answers by itself leave no trace here."""

    kind = "traceback"

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        raise self.refuse(f"reading {name}", remedy="look at tracebacks outside the compiled function")
