"""Literals: which Python values are known by value alone, and running real Python on them while tracing.

Enters: a Python value, or a real function with known arguments. Leaves: whether the value is a literal, or the result
of the call as a tracker. torch's dtype, device, layout and memory format count as literals; they are told by name, so
that this module works without torch.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported

if TYPE_CHECKING:
    from .base import VariableTracker
    from .protocols import Tracer

PRIMITIVES = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
TORCH_LITERALS = frozenset({"dtype", "device", "layout", "memory_format"})

# What real code on literals raises for its arguments' sake; anything else is a fault of ours and must surface.
FOLD_ERRORS = (
    ArithmeticError,
    AttributeError,
    BufferError,
    LookupError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)


def is_torch_literal(value: Any) -> bool:
    """True for torch.dtype, torch.device, torch.layout and torch.memory_format objects."""
    cls = type(value)
    return cls.__module__ == "torch" and cls.__name__ in TORCH_LITERALS


def is_literal(value: Any) -> bool:
    """True when ConstantVariable stands for `value`: immutable, compared by value; enum members are."""
    return type(value) in PRIMITIVES or isinstance(value, enum.Enum) or is_torch_literal(value)


def is_plain(value: Any) -> bool:
    """True when `value` is a literal, or a tuple or frozenset of plain values: as a key it runs no code of a user's."""
    if type(value) in (tuple, frozenset):
        return all(is_plain(item) for item in value)
    if isinstance(value, enum.Enum):
        return type(value).__hash__ is enum.Enum.__hash__ or isinstance(value, (int, str))
    return is_literal(value)


def fold(
    tx: Tracer, function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> VariableTracker:
    """function(*args, **kwargs) run for real on literals; what it raises is raised in the traced program."""
    return from_result(tx, run(tx, function, args, kwargs))


def run(
    tx: Tracer, function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Any:
    """As fold, giving the Python value."""
    try:
        return function(*args, **(kwargs or {}))
    except FOLD_ERRORS as error:
        tx.raise_exception(type(error), *error.args)


def from_result(tx: Tracer, value: Any) -> VariableTracker:
    """A tracker of a value that the traced code just made: a literal or a fresh container of such."""
    if is_literal(value):
        return tx.constant(value)
    if isinstance(value, tuple):
        return tx.new_tuple([from_result(tx, item) for item in value], type(value))
    if type(value) is list:
        return tx.new_list([from_result(tx, item) for item in value])
    if type(value) in (set, frozenset):
        return tx.new_set([from_result(tx, item) for item in value], type(value))
    if type(value) is dict:
        return tx.new_dict([(from_result(tx, key), from_result(tx, item)) for key, item in value.items()])
    if isinstance(value, (range, slice, type, types.UnionType)) or type(value).__module__ in ("numpy", "numpy.dtypes"):
        return tx.wrap(value, None, constant=True)
    if type(value).__name__ in ("Pattern", "Match") and type(value).__module__ == "re":
        return tx.wrap(value, None, constant=True)
    if type(value).__module__ == "datetime":
        return tx.wrap(value, None, constant=True)
    raise Unsupported(f"a {type(value).__name__} made from constants is not traced", remedy="make it outside")
