"""SymbolicVariable: an int, float or bool whose value differs between calls of one compiled entry."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..torch_compat import tracing
from .base import VariableTracker
from .literal import fold

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

TYPES = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


class SymbolicVariable(VariableTracker):
    """A symbolic number. `value` is the GraphValue: a node and the SymInt, SymFloat or SymBool it gives."""

    kind = "symbolic"

    def __init__(self, value: Any, source: Any = None) -> None:
        super().__init__(source)
        self.value = value

    @property
    def symbol(self) -> Any:
        return self.value.fake

    def python_type(self) -> type:
        return TYPES[type(self.symbol)]

    def as_proxy(self) -> Any:
        return self.value

    def truth(self, tx: Tracer) -> bool:
        if self.python_type() is float:  # torch takes the bool of a symbolic float by fixing its value
            different = tx.graph_call(operator.ne, [self, tx.constant(0)], {})
            return different.truth(tx)
        return tx.builder.truth(self.value, tx.line)

    def specialize(self, tx: Tracer) -> VT:
        """The value of this call as a constant; ShapeEnv guards on it."""
        return tx.constant(tx.builder.specialize(self.value, tx.line))

    def hash_key(self, tx: Tracer) -> Hashable:
        return self.specialize(tx).hash_key(tx)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("real", "numerator") and self.python_type() is int:
            return self
        if name == "__class__":
            return tx.wrap(self.python_type(), None)
        return self.specialize(tx).get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name in ("__bool__",):
            return tx.constant(self.truth(tx))
        if name in ("__int__", "__index__", "__trunc__") and self.python_type() is int:
            return self
        if name in ("__neg__", "__pos__", "__abs__"):
            return tx.graph_call({"__neg__": operator.neg, "__pos__": operator.pos, "__abs__": abs}[name], [self], {})
        if name == "__float__":
            return tx.graph_call(torch.sym_float, [self], {})
        if name == "is_integer":
            return tx.constant(True) if self.python_type() is int else self.specialize(tx).call_method(tx, name, [], {})
        return self.specialize(tx).call_method(tx, name, args, kwargs)

    def convert(self, tx: Tracer, cls: type) -> VT:
        """int(x), float(x), bool(x) without losing the symbol where torch has a symbolic form."""
        own = self.python_type()
        if cls is own:
            return self
        if cls is bool:
            return tx.constant(self.truth(tx))
        if cls is float:
            return tx.graph_call(torch.sym_float, [self], {})
        if cls is int and own is bool:
            return tx.constant(int(self.truth(tx)))
        if cls is int:
            return self.to_integer(tx, math.trunc)
        return self.specialize(tx)

    def to_integer(self, tx: Tracer, function: Callable[[float], int]) -> VT:
        """math.trunc, floor or ceil of it, that it is finite being guarded: of an infinite number they raise."""
        if self.python_type() is int:
            return self
        if tracing.depends_on_data(self.symbol):
            return tx.graph_call(function, [self], {})  # only a run can tell
        above, below = ((operator.ge, -sys.float_info.max), (operator.le, sys.float_info.max))
        if all(tx.truth(tx.binary(compare, self, tx.constant(bound))) for compare, bound in (above, below)):
            return tx.graph_call(function, [self], {})
        return fold(tx, function, [self.specialize(tx).as_constant()])

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        return None

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_graph_output(self.value)


def both_of_data(left: VT, right: VT) -> bool:
    """Whether which of two ints is the larger depends on what only the data knows."""
    if left.python_type() is not int or right.python_type() is not int:
        return False
    return any(
        number.kind == "symbolic" and tracing.depends_on_data(number.symbol)  # type: ignore[attr-defined]
        for number in (left, right)
    )
