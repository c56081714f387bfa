"""Marks that a program puts on tensors and functions for capture to find.

Enters: a tensor and a dimension, or a function. Leaves: an attribute on the tensor, an entry in a table by function.
Marks are read when a call is captured; nothing looks at them on a warm call. This module imports no torch. State
shared between threads: `_functions`, under the GIL.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .errors import InvalidOption

TENSOR_ATTRIBUTE = "_core_dims"


@dataclass(frozen=True)
class DimMark:
    """What a program says of one dimension. kind: "dynamic", "maybe", "static" or "unbacked"; low and high bound it."""

    kind: str
    low: int | None = None
    high: int | None = None


def mark_dynamic(tensor: Any, dim: int | Iterable[int], *, min: int | None = None, max: int | None = None) -> None:
    """Make dimensions of a tensor symbolic from the first capture that meets it.

    min, max: the sizes that will come. Code that fixes such a size, or narrows its range, is an error
    (ConstraintViolated) with the user's line. Raises InvalidOption for a dimension that the tensor does not have.
    """
    if min is not None and max is not None and min > max:
        raise InvalidOption(
            f"mark_dynamic with min={min} and max={max}", instead="nothing was marked", remedy="pass min <= max"
        )
    for index in _dims(tensor, dim):
        size = tensor.shape[index]
        if min is not None and size < min or max is not None and size > max:
            raise InvalidOption(
                f"dimension {index} has the size {size}, outside of min={min}, max={max}",
                instead="nothing was marked",
                remedy="widen the range, or mark another tensor",
            )
        _mark(tensor, index, DimMark("dynamic", min, max))


def maybe_mark_dynamic(tensor: Any, dim: int | Iterable[int]) -> None:
    """As mark_dynamic, but code may fix the size: then it is a case of its own."""
    for index in _dims(tensor, dim):
        _mark(tensor, index, DimMark("maybe"))


def mark_static(tensor: Any, dim: int | Iterable[int] | None = None) -> None:
    """Keep dimensions (all of them without `dim`) fixed: each size is an entry, also under dynamic=True."""
    for index in range(tensor.ndim) if dim is None else _dims(tensor, dim):
        _mark(tensor, index, DimMark("static"))


def mark_unbacked(tensor: Any, dim: int | Iterable[int], *, min: int | None = None, max: int | None = None) -> None:
    """Make the size of a dimension unknown to capture: one graph for every size, 0 and 1 included.

    Code that has to decide by such a size breaks the graph; torch._check tells capture what it may assume.
    """
    for index in _dims(tensor, dim):
        _mark(tensor, index, DimMark("unbacked", min, max))


def _dims(tensor: Any, dim: int | Iterable[int]) -> Iterator[int]:
    for index in (dim,) if isinstance(dim, int) else tuple(dim):
        if not -tensor.ndim <= index < tensor.ndim:
            raise InvalidOption(
                f"the tensor has {tensor.ndim} dimensions, and no dimension {index}",
                instead="nothing was marked",
                remedy="pass a dimension that it has",
            )
        yield index % tensor.ndim


def _mark(tensor: Any, index: int, mark: DimMark) -> None:
    marks = dict(getattr(tensor, TENSOR_ATTRIBUTE, None) or {})
    marks[index] = mark
    setattr(tensor, TENSOR_ATTRIBUTE, marks)


# The attributes that the functions of the same names in torch set, read where the program uses those.
_PEER_SETS = (
    ("_dynamo_propagated_dynamic_indices", "maybe"),
    ("_dynamo_weak_dynamic_indices", "maybe"),
    ("_dynamo_dynamic_indices", "dynamic"),
    ("_dynamo_unbacked_indices", "unbacked"),
    ("_dynamo_static_indices", "static"),
)


def tensor_marks(tensor: Any) -> dict[int, DimMark]:
    """The marks of a tensor by dimension, those that torch's own functions left included."""
    state = getattr(tensor, "__dict__", None)
    if not state:
        return {}
    found: dict[int, DimMark] = {}
    for name, kind in _PEER_SETS:
        for index in state.get(name, ()):
            found[index] = DimMark(kind)
    for entry in state.get("_dynamo_dynamic_range", ()):
        if getattr(entry, "dim", None) in found:
            found[entry.dim] = DimMark(found[entry.dim].kind, entry.min, entry.max)
    found.update(state.get(TENSOR_ATTRIBUTE, {}))
    return {index: mark for index, mark in found.items() if index < tensor.ndim}


# -- functions ---------------------------------------------------------------------------------------------------------


@dataclass
class FunctionMarks:
    """What a program says of one function. `replacement` is traced in its place."""

    constant_result: bool = False
    in_graph: bool = False
    replacement: Any = None
    folds: bool = False  # with a replacement: called for real when every argument is a constant
    holder: Any = field(default=None, repr=False)  # a weak reference, or the function itself


_functions: dict[int, FunctionMarks] = {}


def function_marks(fn: Any) -> FunctionMarks | None:
    """The marks of a function, None when it has none."""
    found = _functions.get(id(fn))
    if found is None:
        return None
    holder = found.holder
    return found if (holder() if isinstance(holder, weakref.ref) else holder) is fn else None


def _marks_of(fn: Any) -> FunctionMarks:
    found = function_marks(fn)
    if found is None:
        key = id(fn)
        found = _functions[key] = FunctionMarks()
        try:
            found.holder = weakref.ref(fn, lambda _: _functions.pop(key, None))
        except TypeError:
            found.holder = fn
    return found


def _require_callable(fn: Any, name: str) -> None:
    if not callable(fn):
        raise InvalidOption(
            f"{name}() takes a callable, not {type(fn).__name__}",
            instead="nothing was marked",
            remedy="pass a function",
        )


def assume_constant_result(fn: Any) -> Any:
    """Have capture call `fn` for real, once for each entry, and take its result as it is, without guards.

    The arguments must be known while capturing: constants and objects, no tensors that the graph makes. Returns `fn`.
    """
    _require_callable(fn, "assume_constant_result")
    _marks_of(fn).constant_result = True
    return fn


def allow_in_graph(fn: Any) -> Any:
    """Put calls of `fn` into the graph as they are, without looking inside. A list marks each; returns what it got.

    `fn` must be a function of its arguments: capture calls it on fake tensors, and guards nothing that it reads. One
    that gives None runs on each call; with a backend that takes graphs of operators, it breaks the graph for that.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(one) for one in fn]
    _require_callable(fn, "allow_in_graph")
    _marks_of(fn).in_graph = True
    return fn


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Any], Any]:
    """A decorator: trace the decorated Python function wherever captured code calls `original_fn`.

    For C functions that capture can't see into. The signatures must agree unless skip_signature_check. With
    can_constant_fold_through the original is called for real when every argument is a constant.
    """
    _require_callable(original_fn, "substitute_in_graph")

    def substitute(traceable: Any) -> Any:
        _require_callable(traceable, "substitute_in_graph")
        if not skip_signature_check:
            _compare_signatures(original_fn, traceable)
        marks = _marks_of(original_fn)
        marks.replacement = traceable
        marks.folds = can_constant_fold_through
        return traceable

    return substitute


def _compare_signatures(original: Any, traceable: Any) -> None:
    try:
        wanted = inspect.signature(original)
    except (TypeError, ValueError):
        return  # a C function without a signature has nothing to compare
    given = inspect.signature(traceable)
    shape = [[(p.name, p.kind) for p in signature.parameters.values()] for signature in (wanted, given)]
    if shape[0] != shape[1]:
        raise InvalidOption(
            f"{getattr(original, '__qualname__', original)}{wanted} and its substitute {given} take other parameters",
            instead="nothing was marked",
            remedy="give the substitute the same parameters, or pass skip_signature_check=True",
        )


def nested_compile_region(
    fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None
) -> Any:
    """Say that `fn` is a region that repeats, such as a layer. Capture traces it where it is called.

    Results do not depend on the mark, and `fn` comes back as it is. The options are those of torch's function of this
    name; they steer how its regions are told apart, for which there is no need here.
    """
    if fn is None:
        return nested_compile_region
    _require_callable(fn, "nested_compile_region")
    return fn
