"""Classes of NumPy that are called in traced code: dtypes, limits of dtypes, and numbers of NumPy's types.

Their results are known while tracing. A number made of known values stays known: operators on it run for real, and a
tensor operation takes it as eager does, as the Python number of the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .base import BuiltinMethodVariable, VariableTracker
from .class_ import ClassVariable
from .constant import ConstantVariable
from .literal import PRIMITIVES, from_result, run

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
LARGEST_NUMBER_BYTES = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""By kind of dtype: numbers up to this size have an equal Python number."""


def makes_known(cls: type) -> bool:
    """True for classes whose objects are known when their arguments are."""
    import numpy

    return cls in (numpy.dtype, numpy.finfo, numpy.iinfo) or (cls.__module__ == "numpy" and is_number_class(cls))


def is_number_class(cls: type) -> bool:
    """True for numpy.float32 and its kin."""
    import numpy

    if not issubclass(cls, (numpy.number, numpy.bool_)) or cls.__subclasses__():
        return False
    dtype = numpy.dtype(cls)
    return dtype.itemsize <= LARGEST_NUMBER_BYTES.get(dtype.kind, 0)


class ArrayClassVariable(ClassVariable):
    """numpy.dtype, numpy.finfo, numpy.iinfo or a class of numbers."""

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        values = [arg.look_inside(tx) for arg in args]
        keywords = {key: value.look_inside(tx) for key, value in kwargs.items()}
        if not all(_is_known(value) for value in (*values, *keywords.values())):
            return super().call(tx, args, kwargs)
        named = {key: value.as_constant() for key, value in keywords.items()}
        return tx.wrap(run(tx, self.cls, [value.as_constant() for value in values], named), None, constant=True)


def _is_known(tracker: VT) -> bool:
    if not tracker.is_constant():
        return False
    value = tracker.as_constant()
    return type(value) in PRIMITIVES or type(value).__module__ in ("numpy", "numpy.dtypes") or isinstance(value, type)


class ArrayNumberVariable(ConstantVariable):
    """A number of a NumPy type that the traced code made of known values."""

    def as_proxy(self) -> Any:
        return self.value.item()

    def get_attr(self, tx: Tracer, name: str) -> VT:
        found = run(tx, getattr, [self.value, name])
        return BuiltinMethodVariable(self, name) if callable(found) else from_result(tx, found)
