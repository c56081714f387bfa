"""isinstance() and issubclass(): what classes, their metaclasses and objects that stand in for others answer."""

from __future__ import annotations

import abc
import functools
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..graph.wrapper_tensors import is_wrapper_class
from ..guards.checks import Predicate
from . import typed_tensor
from .answers import guard_registered
from .base import VariableTracker as VT
from .base import find_special, names_its_class
from .literal import run
from .untraced_tensor import UntracedTensorVariable

if TYPE_CHECKING:
    from .protocols import Tracer


def is_instance(tx: Tracer, obj: VT, classes: VT) -> bool:
    """isinstance(object, classes)."""
    if classes.kind == "tuple":
        return any(is_instance(tx, obj, item.realize(tx)) for item in classes.unpack(tx))
    cls = python_object(classes)
    if isinstance(cls, types.UnionType):
        return any(_is_instance_of(tx, obj, part or type(None)) for part in cls.__args__)
    return _is_instance_of(tx, obj, cls)


def is_subclass(tx: Tracer, cls: VT, classes: VT) -> bool:
    """issubclass(class, classes)."""
    if classes.kind == "tuple":
        return any(is_subclass(tx, cls, item.realize(tx)) for item in classes.unpack(tx))
    wanted = python_object(classes)
    if isinstance(wanted, types.UnionType) or typing.get_origin(wanted) is typing.Union:
        parts = [tx.wrap(part, None, constant=True) for part in wanted.__args__]
        return any(is_subclass(tx, cls, part) for part in parts)
    if isinstance(wanted, type):
        answer = _own_check(tx, inspect.getattr_static(type(wanted), "__subclasscheck__"), wanted, cls)
        if answer is None and tx.is_unreal(wanted):
            answer = _subclass_hook(tx, wanted, cls)
        if answer is not None:
            return answer
    own = python_object(cls) if cls.kind in ("builtin", "class", "torch_function", "opaque", "constant") else cls
    return _derives(tx, own, python_object(classes))


def _derives(tx: Tracer, own: Any, cls: Any) -> bool:
    """issubclass(own, cls), with a guard where a later registration could turn the answer."""
    answer = bool(run(tx, issubclass, [own, cls]))
    if not answer and isinstance(own, type):
        guard_registered(tx, own, cls)
    return answer


def _is_instance_of(tx: Tracer, obj: VT, cls: Any) -> bool:
    own = obj.python_type()
    if not isinstance(cls, type):
        return _of_type_expression(tx, own, cls)
    if own is cls:
        return True
    if _is_of_type(tx, obj, own, cls):
        return True
    if not names_its_class(own) and not isinstance(find_special(own, "__getattribute__"), types.FunctionType):
        return False
    named = python_object(obj.get_attr(tx, "__class__").realize(tx))
    return named is not own and isinstance(named, type) and _is_of_type(tx, obj, named, cls)


def _of_type_expression(tx: Tracer, own: type, cls: Any) -> bool:
    """isinstance() with a form of the typing module asks the object's class; with others it is an error."""
    if typing.get_origin(cls) is typing.Union:
        tracker = tx.wrap(own, None, constant=True)
        return any(is_subclass(tx, tracker, tx.wrap(part, None, constant=True)) for part in cls.__args__)
    if type(cls).__module__ == "typing" and find_special(type(cls), "__instancecheck__") is not None:
        return _derives(tx, own, cls)
    return bool(run(tx, isinstance, [None, cls]))


def _is_of_type(tx: Tracer, obj: VT, own: type, cls: Any) -> bool:
    """isinstance() of an object whose class is, or which says that it is, `own`."""
    check = inspect.getattr_static(type(cls), "__instancecheck__")
    answer = _own_check(tx, check, cls, obj)
    if answer is None and tx.is_unreal(cls):
        answer = _subclass_hook(tx, cls, tx.wrap(own, None, constant=True))
    if answer is not None:
        return answer
    if check in (type.__instancecheck__, abc.ABCMeta.__dict__["__instancecheck__"]):
        return _derives(tx, own, cls)
    if type(cls).__module__ == "torch.nn.parameter":
        return _is_parameter(tx, obj, own, cls)
    if type(cls) is typed_tensor.TYPED:
        return typed_tensor.has_instance(cls, obj)
    if type(cls).__module__ == "typing":
        return _is_protocol_instance(tx, obj, own, cls)
    raise Unsupported(
        f"isinstance() with {cls.__name__}, whose metaclass decides for itself, is not traced",
        remedy="compare type(x) instead",
    )


def _own_check(tx: Tracer, check: Any, cls: type, operand: VT) -> bool | None:
    """What a metaclass of the program's answers for itself; None where it has no code for that."""
    if not isinstance(check, types.FunctionType) or check.__module__ in ("abc", "typing", "torch.nn.parameter"):
        return None
    method = tx.wrap(check, None, constant=True)
    return tx.truth(tx.call_function(method, [tx.wrap(cls, None, constant=True), operand]))


def _subclass_hook(tx: Tracer, cls: type, other: VT) -> bool | None:
    """What __subclasshook__ of an abstract class that the traced code defines answers, None where it leaves it open."""
    raw = find_special(cls, "__subclasshook__")
    if not isinstance(raw, classmethod) or not isinstance(cls, abc.ABCMeta):
        return None
    hook = tx.wrap(raw.__func__, None, constant=True)
    answer = tx.call_function(hook, [tx.wrap(cls, None, constant=True), other]).realize(tx)
    return None if answer.is_constant() and answer.as_constant() is NotImplemented else tx.truth(answer)


def _answers(cls: type, answer: bool, value: object) -> bool:
    return isinstance(value, cls) is answer


def _is_parameter(tx: Tracer, obj: VT, own: type, cls: type) -> bool:
    if issubclass(own, cls):
        return True
    if isinstance(obj, UntracedTensorVariable):  # a mark on the object makes it a parameter
        answer = isinstance(obj.value, cls)
        tx.guard(obj.source, Predicate((obj.source,), functools.partial(_answers, cls, answer)))
        return answer
    if obj.kind == "tensor" and is_wrapper_class(own):
        answer = isinstance(obj.fake, cls)  # type: ignore[attr-defined]
        if obj.source is not None:
            tx.guard(obj.source, Predicate((obj.source,), functools.partial(_answers, cls, answer)))
        return answer
    if own.__module__.partition(".")[0] != "torch" and obj.kind == "tensor":
        raise obj.refuse(f"isinstance() with {cls.__name__}")
    return False


def _is_protocol_instance(tx: Tracer, obj: VT, own: type, cls: Any) -> bool:
    """isinstance() with a protocol: a subclass, or an object that has every member."""
    if not getattr(cls, "_is_protocol", False):
        return _derives(tx, own, cls)
    if not getattr(cls, "_is_runtime_protocol", False):
        text = "Instance and class checks can only be used with @runtime_checkable protocols"
        tx.raise_exception(TypeError, text)
    members = getattr(cls, "__protocol_attrs__", None) or typing._get_protocol_attrs(cls)  # type: ignore[attr-defined]
    if all(callable(getattr(cls, name, None)) for name in members) and _derives(tx, own, cls):
        return True
    if obj.kind != "user_object":
        return all(getattr(own, name, None) is not None for name in members)
    return all(_has_member(tx, obj, cls, name) for name in members)


def _has_member(tx: Tracer, obj: VT, cls: Any, name: str) -> bool:
    try:
        found = obj.get_attr(tx, name).realize(tx)
    except tx.observed_exception as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return False
        raise
    return not (callable(getattr(cls, name, None)) and found.is_constant() and found.as_constant() is None)


def python_object(tracker: VT) -> Any:
    """The class, function or constant that a tracker stands for."""
    give = getattr(tracker, "as_python_object", None)
    return give() if give is not None else tracker.as_constant()
