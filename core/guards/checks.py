"""Checks: what must hold for a value that a source leads to.

Each check is frozen, compares by content, and answers three questions: `instructions()` for the guard program in C,
`describe(name)` for reports ("L['x'] is 3"), `explain(value, name)` for a miss ("L['x'] was 3, now 4").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import _C
from .binding import Binding, Register
from .held import Held
from .shapes import ShapeNotExpressible, readable, tokens
from .source import PRIMITIVES, Instruction, Source, instance_dict
from .tensor_spec import TensorSpec


def typed(value: Any) -> Any:
    """A hashable stand-in for `value` that tells 1 from True and 1.0, 0.0 from -0.0, and finds NaN equal to NaN."""
    kind = type(value)
    if kind is float:
        return (kind, "nan") if math.isnan(value) else (kind, value, math.copysign(1.0, value))
    if kind is complex:
        return (kind, typed(value.real), typed(value.imag))
    if kind in (tuple, frozenset):
        return (kind, kind(typed(item) for item in value))
    if kind is slice:
        return (kind, typed(value.start), typed(value.stop), typed(value.step))
    return (kind, value)


def shorten(value: Any, limit: int = 60) -> str:
    """`repr(value)` on one line; a failing `__repr__` gives the type's name."""
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001  a report must not fail because a user's __repr__ does
        return f"<{type(value).__name__} object, repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


class Check:
    """Base of all checks."""

    runs_user_code: ClassVar[bool] = False
    cost: ClassVar[int] = 1
    """Order within a program: cheap and likely to fail first."""

    def inputs(self) -> tuple[Source, ...]:
        """Further sources, beside the guard's own, whose values the check needs."""
        return ()

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        """Guard-program instructions; `src` holds the guard's value, `register(source)` finds the others."""
        raise NotImplementedError

    def describe(self, name: str) -> str:
        """The check as a statement about `name`."""
        raise NotImplementedError

    def explain(self, value: Any, name: str = "value") -> str:
        """What is different about `value`, which has failed the check."""
        raise NotImplementedError


@dataclass(frozen=True)
class Is(Check):
    """The value is one particular object. Build with `Is(obj)`; the object is held weakly where possible."""

    obj: Any

    def __post_init__(self) -> None:
        if not isinstance(self.obj, Held):
            object.__setattr__(self, "obj", Held(self.obj))

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("is", src, self.obj.get(), self.obj.weak)]

    def describe(self, name: str) -> str:
        return f"{name} is {self.obj!r}" if self.obj.weak else f"{name} is {shorten(self.obj.get())}"

    def explain(self, value: Any, name: str = "value") -> str:
        if not self.obj.alive:
            return f"{name} was {self.obj!r}"
        return f"{name} was {shorten(self.obj.get())}, now {_other_object(self.obj.get(), value)}"


@dataclass(frozen=True)
class IsNot(Check):
    """The value is not one particular object."""

    obj: Any

    def __post_init__(self) -> None:
        if not isinstance(self.obj, Held):
            object.__setattr__(self, "obj", Held(self.obj))

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("is_not", src, self.obj.get(), self.obj.weak)]

    def describe(self, name: str) -> str:
        return f"{name} is not {self.obj!r}" if self.obj.weak else f"{name} is not {shorten(self.obj.get())}"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"{name} is now {shorten(value)}"


@dataclass(frozen=True)
class TypeIs(Check):
    """The value's type is exactly this one, subclasses excluded."""

    type: type
    cost: ClassVar[int] = 0

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("type_is", src, self.type)]

    def describe(self, name: str) -> str:
        return f"type({name}) is {_type_name(self.type)}"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"type({name}) was {_type_name(self.type)}, now {_type_name(type(value))}"


@dataclass(frozen=True)
class TypeUnchanged(Check):
    """No attribute of a class or of its bases was set or deleted since the guard was made. The guard's own source is
    None."""

    type: type
    cost: ClassVar[int] = 0

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("type_version", self.type)]

    def describe(self, name: str) -> str:
        return f"no attribute of the class {_type_name(self.type)} was set"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"an attribute of the class {_type_name(self.type)} or of a base was set or deleted"


@dataclass(frozen=True, eq=False)
class Equals(Check):
    """Same type and equal. NaN equals NaN; -0.0 differs from 0.0; a container's items are compared the same way."""

    value: Any

    @property
    def runs_user_code(self) -> bool:  # type: ignore[override]
        return not _compares_plainly(self.value)

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("equals", src, self.value)]

    def describe(self, name: str) -> str:
        return f"{name} == {shorten(self.value)}"

    def explain(self, value: Any, name: str = "value") -> str:
        if type(value) is not type(self.value):
            return TypeIs(type(self.value)).explain(value, name)
        return f"{name} was {shorten(self.value)}, now {shorten(value)}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equals) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> Any:
        content = typed(self.value)
        try:
            hash(content)
        except TypeError:
            return Held(self.value)
        return content


@dataclass(frozen=True)
class Length(Check):
    """`len` of a list, tuple, dict, set, frozenset, str, bytes or a subclass, past any `__len__` of the subclass."""

    n: int
    cost: ClassVar[int] = 0

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("len", src, self.n)]

    def describe(self, name: str) -> str:
        return f"len({name}) == {self.n}"

    def explain(self, value: Any, name: str = "value") -> str:
        try:
            return f"len({name}) was {self.n}, now {len(value)}"
        except TypeError:
            return f"{name} has no length now: {_type_name(type(value))}"


@dataclass(frozen=True)
class ItemsLeft(Check):
    """An iterator of a builtin type still has more than `n` items (`more`), or no more than these."""

    n: int
    more: bool
    runs_user_code: ClassVar[bool] = True
    """It makes objects, as attribute access may."""

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("items_left" if self.more else "no_items_left", src, self.n)]

    def describe(self, name: str) -> str:
        return f"{name} has {'more than' if self.more else 'at most'} {self.n} items left"

    def explain(self, value: Any, name: str = "value") -> str:
        return (
            f"{name} had {'more than' if self.more else 'at most'} {self.n} items left, now {_C.iterator_left(value)}"
        )


@dataclass(frozen=True, eq=False)
class DictKeys(Check):
    """The dict has exactly these keys in this order."""

    keys: tuple[Any, ...]

    @property
    def runs_user_code(self) -> bool:  # type: ignore[override]
        return not all(type(key) is str for key in self.keys)

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("dict_keys", src, self.keys)]

    def describe(self, name: str) -> str:
        return f"list({name}) == {shorten(list(self.keys))}"

    def explain(self, value: Any, name: str = "value") -> str:
        if not isinstance(value, dict):
            return f"{name} is no dict now: {_type_name(type(value))}"
        now = list(value)
        gone = [key for key in self.keys if key not in value]
        new = [key for key in now if key not in self.keys]
        if not gone and not new:
            return f"the order of {name}'s keys was {shorten(list(self.keys))}, now {shorten(now)}"
        parts = [f"lost {shorten(gone)}"] if gone else []
        parts += [f"gained {shorten(new)}"] if new else []
        return f"the keys of {name} " + " and ".join(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DictKeys) and typed(self.keys) == typed(other.keys)

    def __hash__(self) -> int:
        return hash(self.keys)


@dataclass(frozen=True)
class MissingKey(Check):
    """The dict does not have this key."""

    key: Any

    @property
    def runs_user_code(self) -> bool:  # type: ignore[override]
        return type(self.key) is not str

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("missing_key", src, self.key)]

    def describe(self, name: str) -> str:
        return f"{self.key!r} not in {name}"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"{name} has the key {self.key!r} now"


@dataclass(frozen=True)
class MissingInstanceAttr(Check):
    """The instance's own `__dict__` (where it has one) does not have this name."""

    attr: str

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("missing_instance_attr", src, self.attr)]

    def describe(self, name: str) -> str:
        return f"{self.attr!r} not in {name}.__dict__"

    def explain(self, value: Any, name: str = "value") -> str:
        try:
            return f"{name}.{self.attr} is now set on the instance, to {shorten(instance_dict(value)[self.attr])}"
        except (AttributeError, KeyError):
            return f"{name} has no __dict__ now"


@dataclass(frozen=True)
class MissingGlobal(Check):
    """The frame's globals do not have the name of the guard's GlobalSource (a builtin of that name may be in use)."""

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        raise TypeError("MissingGlobal is compiled with the name of its GlobalSource")

    def named(self, global_name: str) -> list[Instruction]:
        """The instruction for a name; it loads nothing."""
        return [("missing_global", global_name)]

    def describe(self, name: str) -> str:
        return f"{name} is not defined"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"{name} is defined now"


@dataclass(frozen=True)
class SameAs(Check):
    """The value and another source's value are one object."""

    other: Source

    def inputs(self) -> tuple[Source, ...]:
        return (self.other,)

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("same", src, register(self.other))]

    def describe(self, name: str) -> str:
        return f"{name} is {self.other.name()}"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"{name} and {self.other.name()} were one object, now two"


@dataclass(frozen=True)
class NotSameAs(Check):
    """The value and another source's value are two objects."""

    other: Source

    def inputs(self) -> tuple[Source, ...]:
        return (self.other,)

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("not_same", src, register(self.other))]

    def describe(self, name: str) -> str:
        return f"{name} is not {self.other.name()}"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"{name} and {self.other.name()} were two objects, now one"


@dataclass(frozen=True)
class TensorMatch(Check):
    """The tensor has the type and metadata of a spec; sizes and strides that the spec leaves None are free."""

    spec: TensorSpec
    cost: ClassVar[int] = 2

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("tensor", src, self.spec.as_tuple())]

    def describe(self, name: str) -> str:
        return self.spec.describe(name)

    def explain(self, value: Any, name: str = "value") -> str:
        return self.spec.explain(value, name)


@dataclass(frozen=True)
class NoOverlap(Check):
    """No two of these tensors share bytes of storage. The guard's own source is None."""

    sources: tuple[Source, ...]
    cost: ClassVar[int] = 3

    def inputs(self) -> tuple[Source, ...]:
        return self.sources

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("no_overlap", tuple(register(source) for source in self.sources))]

    def describe(self, name: str) -> str:
        return f"no two of {', '.join(source.name() for source in self.sources)} share memory"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"two of {', '.join(source.name() for source in self.sources)} share memory now"


@dataclass(frozen=True, eq=False)
class GlobalState(Check):
    """torch's global state (grad mode, autocast, default dtype, ...) is as in the snapshot. Its source is None."""

    snapshot: Any
    cost: ClassVar[int] = 0

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("global_state", self.snapshot)]

    def describe(self, name: str) -> str:
        return "torch's global state is as at capture"

    def explain(self, value: Any, name: str = "value") -> str:
        from .. import _C

        difference = _C.describe_difference(self.snapshot)
        return f"torch's global state changed: {difference or 'back again by now'}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalState) and (self.snapshot is other.snapshot or self.snapshot == other.snapshot)

    def __hash__(self) -> int:
        return hash(GlobalState)


@dataclass(frozen=True)
class IntRange(Check):
    """An int (a bool doesn't count) with lo <= value <= hi; None leaves a side open."""

    lo: int | None
    hi: int | None

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("int_range", src, self.lo, self.hi)]

    def describe(self, name: str) -> str:
        low = "" if self.lo is None else f"{self.lo} <= "
        high = "" if self.hi is None else f" <= {self.hi}"
        return f"{low}{name}{high}"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"{self.describe(name)} held, now {name} is {shorten(value)}"


@dataclass(frozen=True)
class ShapeHolds(Check):
    """A relation between sizes and numbers holds. `expr` is a sympy expression; `bindings` pairs symbol names with
    what they stand for. The guard's own source is None."""

    expr: Any
    bindings: tuple[tuple[str, Binding], ...]
    cost: ClassVar[int] = 3

    def inputs(self) -> tuple[Source, ...]:
        return tuple(dict.fromkeys(binding.source for _, binding in self.bindings))

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        try:
            return [("shape", tokens(self.expr, dict(self.bindings), register))]
        except ShapeNotExpressible:
            if len(self.expr.free_symbols) != len(self.bindings):
                raise
        return [("python", tuple(register(binding.source) for _, binding in self.bindings), self._holds)]

    def _holds(self, *values: Any) -> bool:
        """sympy's answer, for operations without a token: slow."""
        numbers = {name: binding.measure(value) for (name, binding), value in zip(self.bindings, values)}
        return bool(self.expr.subs({symbol: numbers[symbol.name] for symbol in self.expr.free_symbols}))

    def describe(self, name: str) -> str:
        return readable(self.expr, dict(self.bindings))

    def explain(self, value: Any, name: str = "value") -> str:
        """`value` maps symbol names to their present numbers."""
        now = ", ".join(f"{binding.name()} is {value.get(symbol)}" for symbol, binding in self.bindings)
        return f"{self.describe(name)} held, now {now}"


@dataclass(frozen=True)
class Predicate(Check):
    """A Python callable of the sources' values is true. The last resort: it is slow, and an error in it is a miss."""

    sources: tuple[Source, ...]
    fn: Callable[..., bool]
    runs_user_code: ClassVar[bool] = True
    cost: ClassVar[int] = 9

    def inputs(self) -> tuple[Source, ...]:
        return self.sources

    def instructions(self, src: int, register: Register) -> list[Instruction]:
        return [("python", tuple(register(source) for source in self.sources), self.fn)]

    def describe(self, name: str) -> str:
        function = getattr(self.fn, "__qualname__", type(self.fn).__name__)
        return f"{function}({', '.join(source.name() for source in self.sources)})"

    def explain(self, value: Any, name: str = "value") -> str:
        return f"{self.describe(name)} was true, now it is not"


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _other_object(expected: Any, value: Any) -> str:
    text = shorten(value)
    return f"another object, {text}" if text == shorten(expected) else text


def _compares_plainly(value: Any) -> bool:
    """True when the guard program compares `value` without user code; containers that may change are not in this."""
    if type(value) is tuple:
        return all(_compares_plainly(item) for item in value)
    if type(value) is slice:
        return _compares_plainly((value.start, value.stop, value.step))
    return type(value) in PRIMITIVES or value is Ellipsis
