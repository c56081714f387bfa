"""Real objects that stand for trackers in the dict of a class that the traced code defines.

Enters: a tracker. Leaves: a real object of the same class, noted in the trace, so that wrapping it gives the tracker
again. Python may look at a stand-in's class and identity; its code, where it has any, refuses to run.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Sequence
from typing import Any

from ..errors import Unsupported
from ..variables.base import BuiltinMethodVariable, VariableTracker
from ..variables.function import FunctionVariable, MethodVariable, NestedFunctionVariable
from ..variables.object import UserObjectVariable

VT = VariableTracker
REMEDY = "define the class outside the compiled function"


def _stand_in(*args: Any, **kwargs: Any) -> Any:
    raise Unsupported("C code calls a method of a class that the traced code defines", remedy=REMEDY)


def _quiet(*args: Any, **kwargs: Any) -> None:
    """What stands for an __init_subclass__: type.__new__ calls it, and the real one is traced afterwards."""


def stand_in(tx: Any, tracker: VT, name: str = "") -> Any:
    """The real object for a tracker; one each."""
    tracker = tracker.realize(tx)
    if isinstance(tracker, NestedFunctionVariable):
        return _remembered(tx, tracker, name)
    give = getattr(tracker, "as_python_object", None)
    if give is not None and not isinstance(tracker, UserObjectVariable):
        value = give()
        tx.trace.known.setdefault(id(value), tracker)
        return value
    if tracker.kind == "constant":
        return tracker.as_constant()
    return _remembered(tx, tracker, name)


def _remembered(tx: Any, tracker: VT, name: str) -> Any:
    made = tx.trace.stand_ins.get(id(tracker))
    if made is None:
        made = _make(tx, tracker, name)
        tx.trace.stand_ins[id(tracker)] = made
        tx.trace.kept.append(tracker)
        if type(made) not in (int, str, bytes, float) and made != ():
            if tx.trace.known.get(id(made)) is not tracker:
                tx.trace.remember(made, tracker)
                tx.trace.unreal[id(made)] = tx.trace.step
    return made


def _make(tx: Any, tracker: VT, name: str) -> Any:
    if isinstance(tracker, FunctionVariable):
        return _function(tx, tracker, name)
    if isinstance(tracker, MethodVariable):
        return types.MethodType(stand_in(tx, tracker.function), stand_in(tx, tracker.receiver))
    real = getattr(tracker, "value", None)
    if real is not None:
        return real
    cls = tracker.python_type()
    if cls in (list, dict, set):
        known = tracker.look_inside(tx)
        return known.as_constant() if known.is_constant() else cls()
    if isinstance(tracker, UserObjectVariable):
        return _object(tracker, cls)
    if cls is tuple:
        items = tracker.unpack(tx)
        # a tuple of its own also where the items are constants: one tuple, one tracker
        return tuple([stand_in(tx, item) for item in items])
    if tracker.kind == "tensor":
        return tracker.as_proxy().fake
    if tracker.look_inside(tx).is_constant():
        return tracker.as_constant()
    raise Unsupported(f"{tracker.describe()} as an attribute of a class that the traced code defines", remedy=REMEDY)


def _function(tx: Any, tracker: Any, name: str) -> types.FunctionType:
    code = _quiet.__code__ if name == "__init_subclass__" else _stand_in.__code__
    made = types.FunctionType(code, globals())
    for part in ("__name__", "__qualname__", "__module__", "__doc__"):
        value = tracker.get_attr(tx, part)
        if value.is_constant():
            setattr(made, part, value.as_constant())
    attributes = getattr(tracker, "attributes", {})
    for key in ("__isabstractmethod__", "__wrapped__"):
        if key in attributes:
            setattr(made, key, stand_in(tx, attributes[key]))
    return made


def bridge(tx: Any, tracker: VT, name: str) -> types.FunctionType:
    """A function that code of the standard library calls for real: it runs the traced one on what it is given."""

    def run(*args: Any, **kwargs: Any) -> Any:
        trackers = [_given(tx, arg) for arg in args]
        if name == "__init__":
            trackers[0] = UserObjectVariable(type(args[0]))
            trackers[0].written.update({key: tx.constant(item) for key, item in vars(args[0]).items()})
        result = tx.call_function(tracker, trackers, {key: _given(tx, arg) for key, arg in kwargs.items()})
        if name == "__init__":
            _fill(tx, trackers[0], args[0])
        if name == "__new__" and isinstance(result, UserObjectVariable):
            made = _object(result, result.cls) if result.payload is None else _with_payload(tx, result)
            _fill(tx, result, made)
            return made
        return stand_in(tx, result)

    run.__name__ = run.__qualname__ = name
    tx.trace.unreal[id(run)] = tx.trace.step
    tx.trace.remember(run, tracker)
    return run


def refuse_unlike(tx: Any, value: VT) -> None:
    """Break the graph for a value that the enum module compares with others, and whose stand-in is unlike it."""
    value = value.look_inside(tx)
    if value.python_type() in (list, dict, set) and not value.is_constant():
        raise Unsupported(f"{value.describe()} as the value of a member of an enum", remedy=REMEDY)


def forget_tables(tx: Any, cls: type) -> None:
    """The enum module has filled its tables of members since the traced code read them."""
    for name in ("_member_map_", "_member_names_", "_value2member_map_"):
        tx.trace.known.pop(id(cls.__dict__.get(name)), None)


def _given(tx: Any, value: Any) -> VT:
    if isinstance(value, type) and issubclass(value, enum.Enum):
        forget_tables(tx, value)
        if id(value) not in tx.trace.known:
            return tx.register_class(value)  # the enum that is being made
    return tx.constant(value)


def _with_payload(tx: Any, tracker: UserObjectVariable) -> Any:
    base = next(base for base in tracker.cls.__mro__ if not base.__flags__ & (1 << 9))
    return base.__new__(tracker.cls, tracker.payload.look_inside(tx).as_constant())


def _fill(tx: Any, tracker: Any, made: Any) -> None:
    for key, item in tracker.written.items():
        refuse_unlike(tx, item)
        object.__setattr__(made, key, stand_in(tx, item, key))


def _object(tracker: UserObjectVariable, cls: type) -> Any:
    if issubclass(cls, enum.auto):
        return enum.auto()
    base = next(base for base in cls.__mro__ if not base.__flags__ & (1 << 9))  # the first that is no heap type
    return base.__new__(cls)


def descriptor(tx: Any, cls: Any, args: Sequence[VT]) -> VT:
    """staticmethod(f), classmethod(f) or property(...): a real one, around stand-ins."""
    real = cls(*(stand_in(tx, arg) for arg in args))
    tracker = DescriptorVariable(cls, real)
    tx.trace.unreal[id(real)] = tx.trace.step
    tx.trace.remember(real, tracker)
    return tracker


PARTS = frozenset(("fget", "fset", "fdel", "__func__", "__wrapped__", "__isabstractmethod__", "__doc__", "__name__"))


class DescriptorVariable(UserObjectVariable):
    """A staticmethod, classmethod or property that the traced code made; immutable but for its __doc__."""

    def truth(self, tx: Any) -> bool:
        return True

    def as_python_object(self) -> Any:
        return self.value

    def plain_get_attr(self, tx: Any, name: str) -> VT:
        if name in PARTS and hasattr(self.value, name):
            return tx.wrap(getattr(self.value, name), None, constant=True)
        if name in ("getter", "setter", "deleter", "__get__") and hasattr(self.value, name):
            return _PropertyMethod(self, name)
        return super().plain_get_attr(tx, name)

    def call(self, tx: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.cls is staticmethod:
            return tx.call_function(self.plain_get_attr(tx, "__func__"), args, kwargs)
        return super().call(tx, args, kwargs)

    def reconstruct(self, emit: Any) -> None:
        emit.load_const(self.value)


class _PropertyMethod(BuiltinMethodVariable):
    """`property.setter` and its kin; `descriptor.__get__`."""

    receiver: DescriptorVariable

    def call(self, tx: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        owner, real = self.receiver, self.receiver.value
        if self.name == "__get__":
            receiver = args[0].realize(tx)
            if receiver.is_constant() and receiver.as_constant() is None and isinstance(real, property):
                return owner
            if isinstance(receiver, UserObjectVariable):
                return receiver.bind_descriptor(tx, "__get__", real, None)
            raise owner.refuse("a call of __get__")
        parts = [real.fget, real.fset, real.fdel]
        parts[("getter", "setter", "deleter").index(self.name)] = stand_in(tx, args[0])
        return descriptor(tx, property, [tx.wrap(part, None, constant=True) for part in parts])

    def reconstruct(self, emit: Any) -> None:
        VariableTracker.reconstruct(self, emit)  # a stand-in does not leave the traced code
