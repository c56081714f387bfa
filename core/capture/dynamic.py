"""Which sizes and numbers of a capture are symbolic, and which tensors the entry passes by itself.

A size that differed between two captures of one callable becomes symbolic; `dynamic=True` makes all symbolic,
`dynamic=False` none. An input that was replaced by another object is from then on loaded on each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..graph.symbols import DimPolicy
from ..guards.checks import TypeIs
from ..guards.source import (
    DictItemSource,
    InstanceAttrSource,
    ItemAheadSource,
    IteratorPartSource,
    ListItemSource,
    LocalSource,
    TupleItemSource,
)
from ..marks import DimMark, tensor_marks
from ..options import CompileOptions
from ..settings import config
from ..variables.symbolic import SymbolicVariable

if TYPE_CHECKING:
    from .declared_shapes import DeclaredShapes, Relations
    from .trace import FrameInput


class History:
    """Sizes and identities seen by earlier captures of one callable, by the name of the source."""

    def __init__(self) -> None:
        self.sizes: dict[str, list[int | None]] = {}  # None: the dimension is symbolic from now on
        self.numbers: dict[str, int | float | None] = {}
        self.objects: dict[str, int | None] = {}
        self.cases: dict[str, set[tuple[int, bool]]] = {}  # (dimension, whether its size was 0 or 1), as seen
        self.open_sizes = True  # a dimension of both kinds may get a symbol without a value
        self.changing_classes: set[str] = set()
        self.known_buffers: set[str] = set()  # names of buffers whose numbers decisions depend on
        self.buffers: dict[str, set[int]] = {}  # by the name of the source: the numbers that were known

    def remember(self, policy: CapturePolicy) -> None:
        """Take over what a finished capture saw."""
        for name, sizes in policy.sizes.items():
            self.cases.setdefault(name, set()).update((dim, size < 2) for dim, size in enumerate(sizes))
            known = self.sizes.get(name)
            if known is None or len(known) != len(sizes):
                self.sizes[name] = list(sizes)
            else:
                self.sizes[name] = [a if a == b else None for a, b in zip(known, sizes)]
        for name, number in policy.numbers.items():
            if name not in self.numbers:
                self.numbers[name] = number
            elif self.numbers[name] != number:
                self.numbers[name] = None
        for name, identity in policy.objects.items():
            self.objects[name] = identity if self.objects.get(name, identity) == identity else None


class CapturePolicy:
    """The decisions of one capture, made from the options and the history."""

    def __init__(self, history: History, options: CompileOptions, crowded: bool = False, unbacked: bool = True) -> None:
        """crowded: the callable has so many entries that cases of sizes 0 and 1 must not multiply. unbacked: dimensions
        may get symbols without a value."""
        self.history = history
        self.crowded = crowded and unbacked and history.open_sizes
        self.unbacked = unbacked
        self.opened = False  # a dimension got such a symbol, for the program's mark or because cases multiply
        self.opened_by_itself = False
        self.draws = True  # random numbers of Python and NumPy may be symbols
        self.stepped: str | None = None  # the argument that is what a loop gave for this turn
        self.dynamic = options.dynamic
        self.sizes: dict[str, tuple[int, ...]] = {}
        self.numbers: dict[str, int | float] = {}
        self.objects: dict[str, int] = {}
        self.lenient: set[int] = set()  # ids of tensors whose marks were set by a class, not by the program
        self.declared: DeclaredShapes | None = None  # what shapes_spec says of the call; all else is fixed
        self.relations: Relations | None = None
        self.wished: dict[int, list[int]] = {}  # id of a tensor -> dimensions marked on what it is a part of

    def dynamic_dims(self, tensor: torch.Tensor, source: Any) -> dict[int, Any]:
        """Dimensions of an input that get symbols. A size of 0 never does: the symbols are positive."""
        name = source.name()
        self.sizes[name] = tuple(tensor.shape)
        if self.declared is not None:
            declared = self.declared.policies(tensor, self.unbacked)
            self.opened = self.opened or self.unbacked and bool(declared)
            return declared
        marks = tensor_marks(tensor)
        found: dict[int, Any] = {dim: True for dim in self._changed_dims(name, tensor) if dim not in marks}
        if self.crowded and not isinstance(tensor, torch.nn.Parameter) and self.dynamic is not False:
            both = {dim: DimPolicy(unbacked=True) for dim in self._dims_of_both_kinds(name, tensor) if dim not in marks}
            found.update(both)
            self.opened_by_itself = self.opened_by_itself or bool(both)
        found.update((dim, True) for dim in self.wished.get(id(tensor), ()) if tensor.shape[dim] and dim not in marks)
        marked = {dim: _POLICIES[mark.kind](mark) for dim, mark in marks.items() if mark.kind in _POLICIES}
        if not self.unbacked:
            marked = {dim: True if marks[dim].kind == "unbacked" else policy for dim, policy in marked.items()}
        for dim, policy in marked.items():
            if (tensor.shape[dim] == 1 or id(tensor) in self.lenient) and getattr(policy, "strict", False):
                policy = replace(policy, strict=False)  # a size of 1 is a case of its own, by no fault of the code
            if tensor.shape[dim] or getattr(policy, "unbacked", False):
                found[dim] = policy
        self.opened = self.opened or any(getattr(policy, "unbacked", False) for policy in found.values())
        return found

    def declare(self, declared: DeclaredShapes) -> None:
        """Take what a program declares of the call in place of all else."""
        self.declared = declared
        self.relations = declared.relations()

    def _dims_of_both_kinds(self, name: str, tensor: torch.Tensor) -> list[int]:
        """Dimensions whose size was 0 or 1 in one capture and larger in another, this one included."""
        seen = self.history.cases.get(name, set()) | {(dim, size < 2) for dim, size in enumerate(tensor.shape)}
        return [dim for dim in range(tensor.ndim) if (dim, True) in seen and (dim, False) in seen]

    def _changed_dims(self, name: str, tensor: torch.Tensor) -> Iterator[int]:
        """Dimensions that no mark speaks of and that get symbols."""
        if self.dynamic is False or isinstance(tensor, torch.nn.Parameter):
            return
        if self.dynamic:
            yield from (dim for dim, size in enumerate(tensor.shape) if size)
            return
        known = self.history.sizes.get(name)
        if known is None or len(known) != tensor.ndim or not config.symbolic_sizes:
            return
        for dim, (before, size) in enumerate(zip(known, tensor.shape)):
            if size and (before is None or before != size):
                yield dim

    def symbolic_number(self, tx: Any, value: int | float, source: Any) -> SymbolicVariable | None:
        """The tracker of a symbolic number, None when its value is part of the entry once it is read."""
        if not math.isfinite(value) or value == 0 and type(value) is float:  # a symbol does not tell -0.0 from 0.0
            return None
        name = source.name()
        if self.declared is not None:
            return self._declared_number(tx, value, source) if name in self.declared.numbers else None
        seen = self.history.numbers.get(name, value)
        changed = config.symbolic_numbers and (seen is None or seen != value or self._counts_turns(source))
        wanted = changed or self.dynamic and type(value) is int and _is_argument(source)
        if self.dynamic is False or not wanted:
            return None
        self.numbers[name] = value
        return self.number_of(tx, value, source)

    def _counts_turns(self, source: Any) -> bool:
        """True for what a loop that is under way gives next: it differs on the next turn."""
        if isinstance(source, TupleItemSource):
            source = source.base
        given = isinstance(source, LocalSource) and source.local == self.stepped
        return given or isinstance(source, (ItemAheadSource, IteratorPartSource))

    def _declared_number(self, tx: Any, value: int | float, source: Any) -> SymbolicVariable:
        known = source.name() in tx.trace.numbers
        result = self.number_of(tx, value, source)
        if not known and self.relations is not None:
            self.relations.number(tx.builder.shape_env, source.name(), result.symbol)
        return result

    def number_of(self, tx: Any, value: int | float, source: Any) -> SymbolicVariable:
        """The tracker of a number that is a symbol."""
        tx.guard(source, TypeIs(type(value)))
        known = tx.trace.numbers.get(source.name())
        if known is None:
            known = SymbolicVariable(tx.builder.add_scalar_input(value, source), source)
            tx.trace.numbers[source.name()] = known
        return known

    def is_lifted(self, tensor: torch.Tensor, source: Any) -> bool:
        """True for a parameter or buffer of a module: guarded by identity, passed by the entry without a load."""
        if not is_lifted_source(source):
            return False
        name = source.name()
        self.objects[name] = id(tensor)
        return self.history.objects.get(name, id(tensor)) == id(tensor)


_POLICIES: dict[str, Callable[[DimMark], Any]] = {
    "dynamic": lambda mark: DimPolicy(mark.low or 0, mark.high, strict=True),
    "maybe": lambda mark: True,
    "unbacked": lambda mark: DimPolicy(mark.low or 0, mark.high, unbacked=True),
}


def observe(history: History, options: CompileOptions, frame: FrameInput, names: Sequence[str]) -> None:
    """Remember the sizes and numbers of a call that runs as written, as a capture of it would have."""
    seen = CapturePolicy(History(), options)
    pending: list[tuple[Any, Any]] = [
        (LocalSource(name, slot), value) for slot, (name, value) in enumerate(zip(names, frame.args))
    ]
    while pending:
        source, value = pending.pop()
        if isinstance(value, torch.Tensor):
            seen.sizes[source.name()] = tuple(value.shape)
        elif type(value) in (int, float):
            seen.numbers[source.name()] = value
        elif type(value) in (list, tuple):
            step = ListItemSource if type(value) is list else TupleItemSource
            pending += [(step(source, index), item) for index, item in enumerate(value)]
        elif type(value) is dict:
            pending += [(DictItemSource(source, key), item) for key, item in value.items() if type(key) is str]
    history.remember(seen)


def is_lifted_source(source: Any) -> bool:
    """True for the way to a parameter or buffer of a module."""
    if not isinstance(source, DictItemSource) or not isinstance(source.base, InstanceAttrSource):
        return False
    return source.base.attr in ("_parameters", "_buffers")


def is_buffer_source(source: Any) -> bool:
    """True for the way to a registered buffer, which need not be of class torch.nn.Buffer."""
    return is_lifted_source(source) and source.base.attr == "_buffers"


def holders_of_lifted(trace: Any, graph: Any) -> tuple[Any, ...]:
    """The modules whose tensors the entry passes by itself: it must not keep them in memory when a module is gone."""
    modules = {t.source: t.value for t in trace.known.values() if t.kind == "module" and t.source is not None}
    sources = {item.source.base.base for item in graph.inputs if item.lifted and is_lifted_source(item.source)}
    return tuple(modules[source] for source in sources if source in modules)


def _is_argument(source: Any) -> bool:
    """True for values that a caller passes, as opposed to those an object or module holds."""
    held = isinstance(source, (InstanceAttrSource, DictItemSource))
    return not held and isinstance(source.root(), LocalSource)
