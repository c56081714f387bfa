"""Sizes that a program declares: `shapes_spec` of compile().

What is declared of the arguments of a compiled callable is looked up in its arguments before a capture, and checked
with their sizes. A declared size is a symbol without a value, a declared number a symbol; all other sizes and numbers
are fixed. What relates declared sizes is a promise to the graph, and so a guard: a call that breaks it comes back here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from ..errors import ConstraintViolated, UserLine
from ..graph.symbols import DimPolicy
from ..guards.source import DictItemSource, InstanceAttrSource, ListItemSource, LocalSource, TupleItemSource
from ..torch_compat import shape_specs
from ..torch_compat.shape_specs import Leaf

if TYPE_CHECKING:
    from .trace import FrameInput

OF_ARGUMENTS = (0x04, 0x08)  # CO_VARARGS, CO_VARKEYWORDS


class DeclaredShapes:
    """What a spec declares of the arguments of one call."""

    def __init__(self, spec: Any, fn: Any, frame: FrameInput, names: tuple[str, ...]) -> None:
        """fn: the compiled function. Raises ConstraintViolated where the arguments are not what is declared."""
        self.dims: dict[int, dict[int, Leaf]] = {}  # by the id of the tensor
        self.numbers: dict[str, Leaf] = {}  # by the name of the source
        self.assumptions = shape_specs.assumptions(spec)
        self.values: dict[Any, int] = {}  # of spec variables
        self._where = UserLine(frame.code.co_filename, frame.code.co_firstlineno, frame.code.co_qualname)
        self._equal: list[tuple[Any, int, str]] = []
        for declared, value, source in _arguments(shape_specs.parameters(spec), fn, frame, names):
            self._look(declared, value, source)
        self._check()

    def _look(self, declared: Any, value: Any, source: Any) -> None:
        if declared is None:
            return
        dims, parts = shape_specs.dims_of(declared), shape_specs.parts(declared)
        if dims is not None:
            self._tensor(dims, value, source.name())
        elif parts is not None:
            kind, items = parts
            for key, item in items.items():
                if item is not None:
                    self._part(kind, key, item, value, source)
        elif type(value) is not int:
            raise self._differs(f"{source.name()} is declared as a number, and is of class {type(value).__name__}")
        else:
            self._number(declared, value, source.name(), self.numbers, source.name())

    def _part(self, kind: str, key: Any, declared: Any, value: Any, source: Any) -> None:
        if kind == "attr":
            return self._attribute(key, declared, value, source)
        if isinstance(value, dict if kind == "key" else (list, tuple)):
            if kind == "key":
                if key in value:
                    self._look(declared, value[key], DictItemSource(source, key))
                return None
            if key < len(value):
                step = ListItemSource if isinstance(value, list) else TupleItemSource
                self._look(declared, value[key], step(source, key))
            return None
        wanted = "dict" if kind == "key" else "list or tuple"
        raise self._differs(f"{source.name()} is declared as a {wanted}, and is of class {type(value).__name__}")

    def _attribute(self, name: str, declared: Any, value: Any, source: Any) -> None:
        held = vars(value) if hasattr(value, "__dict__") else {}
        for table in ("_buffers", "_modules"):
            if isinstance(value, torch.nn.Module) and name in held.get(table, {}):
                self._look(declared, held[table][name], DictItemSource(InstanceAttrSource(source, table), name))
                return
        if name in held:
            self._look(declared, held[name], InstanceAttrSource(source, name))
        elif hasattr(value, name):
            self._look(declared, getattr(value, name), InstanceAttrSource(source, name))

    def _tensor(self, dims: list[Any], value: Any, name: str) -> None:
        if not isinstance(value, torch.Tensor):
            raise self._differs(f"{name} is declared as a tensor, and is of class {type(value).__name__}")
        if len(dims) != value.ndim:
            raise self._differs(f"{name} is declared with {len(dims)} dimensions, and has {value.ndim}")
        found = self.dims.setdefault(id(value), {})
        for dim, declared in enumerate(dims):
            if declared is not None:
                self._number(declared, value.shape[dim], f"{name}.shape[{dim}]", found, dim)

    def _number(self, declared: Any, value: int, name: str, table: dict[Any, Leaf], key: Any) -> None:
        leaf = shape_specs.leaf(declared)
        if leaf is None:
            if declared != value:
                raise self._differs(f"{name} is declared to be {declared}, and is {value}")
            return
        table[key] = leaf
        if leaf.low is not None and value < leaf.low or leaf.high is not None and value > leaf.high:
            raise self._differs(f"{name} is {value}, which is not between {leaf.low} and {leaf.high}")
        if leaf.variable:
            self.values.setdefault(leaf.expr, value)
        self._equal.append((leaf.expr, value, name))

    def _check(self) -> None:
        """What relates declared sizes holds of those of the call."""
        conditions = [(shape_specs.equals(expr, value), f"{name} is {value}") for expr, value, name in self._equal]
        conditions += [(condition, "the sizes are others") for condition in self.assumptions]
        for condition, said in conditions:
            loose = condition.free_symbols - self.values.keys()
            if loose:
                raise self._differs(f"{_text(condition)} has to hold, and no argument is declared as {_text(*loose)}")
            if not shape_specs.holds(condition, self.values):
                known = ", ".join(f"{_text(symbol)}={value}" for symbol, value in self.values.items())
                raise self._differs(f"{_text(condition)} has to hold, and {said} ({known})")

    def _differs(self, what: str) -> ConstraintViolated:
        return ConstraintViolated(
            f"shapes_spec does not fit the call: {what}",
            where=self._where,
            instead="the call was not made",
            remedy="pass arguments of the declared sizes, or declare these",
        )

    def relations(self) -> Relations:
        """For one capture of the call."""
        return Relations(self.dims, self.numbers, self.assumptions)

    def policies(self, tensor: torch.Tensor, unbacked: bool) -> dict[int, Any]:
        """The dimensions of an input that get symbols. unbacked: without a value."""
        if not unbacked:
            return {dim: True for dim in self.dims.get(id(tensor), ()) if tensor.shape[dim]}
        return {dim: DimPolicy(unbacked=True) for dim in self.dims.get(id(tensor), ())}


class Relations:
    """What the graph of one capture is told of declared sizes, as its inputs come."""

    def __init__(self, dims: Mapping[int, Mapping[int, Leaf]], numbers: Mapping[str, Leaf], assumed: list[Any]) -> None:
        self._dims, self._numbers = dims, numbers
        self._sizes: dict[Any, Any] = {}
        self._pending = list(assumed)

    def tensor(self, env: Any, tensor: torch.Tensor, fake: torch.Tensor) -> None:
        """An input came."""
        for dim, leaf in self._dims.get(id(tensor), {}).items():
            self._met(env, leaf, fake.shape[dim])

    def number(self, env: Any, name: str, value: Any) -> None:
        """A symbolic number came."""
        self._met(env, self._numbers[name], value)

    def _met(self, env: Any, leaf: Leaf, size: Any) -> None:
        if leaf.low is not None:
            torch._check(size >= leaf.low)
        if leaf.high is not None:
            torch._check(size <= leaf.high)
        if leaf.variable and leaf.expr not in self._sizes:
            self._sizes[leaf.expr] = size
        else:
            own = shape_specs.new_symbol()
            self._sizes[own] = size
            self._pending.append(shape_specs.equals(own, leaf.expr))
        ready = [each for each in self._pending if each.free_symbols <= self._sizes.keys()]
        self._pending = [each for each in self._pending if each not in ready]
        for condition in ready:
            shape_specs.assume(env, condition, self._sizes)


def _text(*parts: Any) -> str:
    """Expressions without the numbers that tell variables of one name apart."""
    return ", ".join(re.sub(r"#\d+", "", str(part)) for part in parts)


def _arguments(
    params: shape_specs.Parameters, fn: Any, frame: FrameInput, names: tuple[str, ...]
) -> Iterator[tuple[Any, Any, Any]]:
    """Each argument that something is declared of: what, the argument, its source."""
    slots = {name: (LocalSource(name, slot), value) for slot, (name, value) in enumerate(zip(names, frame.args))}
    rest, keywords = _rest_names(frame.code, names)
    behind = _stands_for(fn, frame)
    if behind is not None:
        yield from _behind(params, behind, slots[rest], slots[keywords])
        return
    for name, declared in params.named.items():
        if name in slots:
            source, value = slots[name]
            yield declared, value, source
    if rest:
        yield from _items(params.positional, *slots[rest])
    if keywords:
        yield from _named_items(params.keywords, *slots[keywords])


def _rest_names(code: Any, names: tuple[str, ...]) -> tuple[str, str]:
    """The names of `*args` and `**kwargs`; empty for none."""
    rest, keywords = (bool(code.co_flags & flag) for flag in OF_ARGUMENTS)
    return names[-1 - keywords] if rest else "", names[-1] if keywords else ""


def _stands_for(fn: Any, frame: FrameInput) -> Any:
    """The callable whose parameters are meant, where the compiled function passes all it is given on to it."""
    if "_core_entry" in fn.__dict__:
        return frame.args[0].forward
    return fn.__dict__.get("_core_stands_for")


def _behind(params: shape_specs.Parameters, target: Any, rest: Any, keywords: Any) -> Iterator[tuple[Any, Any, Any]]:
    """The arguments of a callable that is passed `*rest, **keywords`."""
    positional: list[Any] = []
    by_name: dict[str, Any] = dict(params.named)
    for parameter in inspect.signature(target).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += params.positional
        elif parameter.kind is parameter.VAR_KEYWORD:
            by_name.update(params.keywords)
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(params.named.get(parameter.name))
    yield from _items(positional, *rest)
    yield from _named_items(by_name, *keywords)


def _items(declared: Any, source: Any, values: Any) -> Iterator[tuple[Any, Any, Any]]:
    for index, (one, value) in enumerate(zip(declared, values)):
        yield one, value, TupleItemSource(source, index)


def _named_items(declared: Mapping[str, Any], source: Any, values: Any) -> Iterator[tuple[Any, Any, Any]]:
    for name, value in values.items():
        if name in declared:
            yield declared[name], value, DictItemSource(source, name)
