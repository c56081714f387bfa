"""Calls of builtin classes (int, str, list, dict, deque, ...): one tracing function each, in a table by class."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from . import tensor_truth
from .base import OUTSIDE, VariableTracker, find_special
from .container import as_index
from .deque import DequeVariable
from .iterator import callable_type, iterator_of
from .late_text import late_text
from .literal import fold, run
from .mapping import MappingProxyVariable
from .range import SliceVariable, make_range
from .text import text_of
from .unread import text_later

if TYPE_CHECKING:
    from .protocols import Tracer

VT = VariableTracker
Handler = Callable[..., VT]
CONSTRUCTORS: dict[type, Handler] = {range: make_range}


def makes(*classes: type) -> Callable[[Handler], Handler]:
    """Register the tracing function of a call of classes."""

    def register(handler: Handler) -> Handler:
        CONSTRUCTORS.update(dict.fromkeys(classes, handler))
        return handler

    return register


# -- numbers and text --------------------------------------------------------------------------------------------------


def _number(cls: type, specials: tuple[str, ...]) -> Handler:
    def trace(tx: Tracer, /, *args: VT, **kwargs: VT) -> VT:
        operands = [arg.realize(tx) for arg in args]
        if len(operands) == 1 and not kwargs:
            only = operands[0]
            if only.kind == "tensor":
                return trace(tx, only.call_method(tx, "item", [], {}))
            if only.kind == "symbolic":
                if cls is complex:
                    return fold(tx, complex, [only.specialize(tx).as_constant()])  # type: ignore[attr-defined]
                return only.convert(tx, cls)  # type: ignore[attr-defined]
            if only.kind != "constant" or isinstance(find_special(only.python_type(), specials[0]), types.FunctionType):
                return _converted(tx, cls, only, specials)
        values = [_literal(tx, operand, cls) for operand in operands]
        return fold(tx, cls, values, {name: _literal(tx, value.realize(tx), cls) for name, value in kwargs.items()})

    return trace


def _literal(tx: Tracer, tracker: VT, cls: type) -> Any:
    if tracker.kind == "symbolic":
        tracker = tracker.specialize(tx)  # type: ignore[attr-defined]
    if tracker.kind == "constant":
        return tracker.as_constant()
    if find_special(tracker.python_type(), "__index__") is not None:
        return as_index(tx, tracker)
    if tracker.kind == "function" or tracker.python_type() in (list, dict, set, tuple):
        return run if tracker.kind == "function" else tracker.python_type()()  # no number is made of any of these
    raise Unsupported(f"{cls.__name__}() of {tracker.describe()} is not traced", remedy=OUTSIDE)


RESULTS = {"__int__": int, "__trunc__": int, "__index__": int, "__float__": float, "__complex__": complex}


def _converted(tx: Tracer, cls: type, tracker: VT, specials: tuple[str, ...]) -> VT:
    for name in specials:
        raw = find_special(tracker.python_type(), name)
        if raw is not None:
            method = tracker.lookup_special(tx, name)
            if method is None:
                break
            result = method.call(tx, [], {}).realize(tx)
            if not issubclass(result.python_type(), RESULTS[name]):
                kind = result.python_type().__name__
                wrong = object.__new__(type(kind, (), {}))  # the complaint names no more than the types
                run(tx, cls, [type(tracker.python_type().__name__, (), {name: lambda *_, wrong=wrong: wrong})()])
            if result.kind == "symbolic":
                return result.convert(tx, cls)  # type: ignore[attr-defined]
            return fold(tx, cls, [result.as_constant()])
    given = tracker.python_type().__name__
    text = {
        int: f"int() argument must be a string, a bytes-like object or a real number, not '{given}'",
        float: f"float() argument must be a string or a real number, not '{given}'",
        complex: f"complex() first argument must be a string or a number, not '{given}'",
    }[cls]
    tx.raise_exception(TypeError, text)


CONSTRUCTORS[int] = _number(int, ("__int__", "__index__", "__trunc__"))
CONSTRUCTORS[float] = _number(float, ("__float__", "__index__"))
CONSTRUCTORS[complex] = _number(complex, ("__complex__", "__float__", "__index__"))


@makes(bool)
def _bool(tx: Tracer, x: VT | None = None, /) -> VT:
    x = x.realize(tx) if x is not None else tx.constant(False)
    if x.kind == "tensor_truth":
        return x
    unknown = tensor_truth.truth_of(tx, x) if x.kind == "tensor" and x.needed_number(tx) is None else None  # type: ignore[attr-defined]
    return unknown if unknown is not None else tx.constant(tx.truth(x))


@makes(str)
def _str(tx: Tracer, object: VT | None = None, encoding: VT | None = None, errors: VT | None = None) -> VT:
    if encoding is not None or errors is not None:
        parts = [part.realize(tx).as_constant() for part in (object, encoding, errors) if part is not None]
        return fold(tx, str, parts)
    if object is None:
        return tx.constant("")
    object = object.realize(tx)
    if object.python_type() is str:
        return object
    return late_text(object, str) or text_later(tx, str, [object]) or tx.constant(text_of(tx, object, str))


@makes(bytes)
def _bytes(tx: Tracer, /, *args: VT) -> VT:
    operands = [arg.look_inside(tx) for arg in args]
    if len(operands) == 1 and isinstance(find_special(operands[0].python_type(), "__bytes__"), types.FunctionType):
        made = operands[0].call_method(tx, "__bytes__", [], {}).realize(tx)
        if not issubclass(made.python_type(), bytes):
            tx.raise_exception(TypeError, f"__bytes__ returned non-bytes (type {made.python_type().__name__})")
        return made
    if not all(operand.is_constant() for operand in operands):
        raise Unsupported("bytes() of values that only a run can tell is not traced", remedy=OUTSIDE)
    return fold(tx, bytes, [operand.as_constant() for operand in operands])


# -- containers --------------------------------------------------------------------------------------------------------


@makes(list)
def _list(tx: Tracer, iterable: VT | None = None, /) -> VT:
    return tx.new_list(iterator_items(tx, iterable) if iterable is not None else [])


def iterator_items(tx: Tracer, iterable: VT) -> list[VT]:
    """All items of an iterable, those of a list or tuple without looking at them."""
    iterable = iterable.realize(tx)
    if iterable.kind in ("list", "tuple"):
        return iterable.unpack(tx)
    return iterator_of(tx, iterable).unpack(tx)


@makes(tuple)
def _tuple(tx: Tracer, iterable: VT | None = None, /) -> VT:
    if iterable is None:
        return tx.new_tuple([])
    iterable = iterable.realize(tx)
    if iterable.python_type() is tuple:
        return iterable
    return tx.new_tuple(iterator_items(tx, iterable))


def _set_maker(cls: type) -> Handler:
    def trace(tx: Tracer, iterable: VT | None = None, /) -> VT:
        if iterable is not None:
            iterable = iterable.realize(tx)
            if cls is frozenset and iterable.python_type() is frozenset:
                return iterable
        made = tx.new_set([], cls)
        if iterable is not None:
            if iterable.kind not in ("set", "dict"):
                iterable = iterator_of(tx, iterable)
            made.fill(tx, iterable)  # type: ignore[attr-defined]
        return made

    return trace


CONSTRUCTORS[set] = _set_maker(set)
CONSTRUCTORS[frozenset] = _set_maker(frozenset)


def _dict_maker(cls: type) -> Handler:
    def trace(tx: Tracer, /, *args: VT, **kwargs: VT) -> VT:
        if cls is collections.defaultdict and args:
            factory = args[0].realize(tx)
            if not callable_type(factory) and not (factory.kind == "constant" and factory.as_constant() is None):
                tx.raise_exception(TypeError, "first argument must be callable or None")
        made = tx.new_dict([], cls)
        made.call_method(tx, "__init__", args, kwargs)
        return made

    return trace


for _cls in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter):
    CONSTRUCTORS[_cls] = _dict_maker(_cls)


@makes(types.MappingProxyType)
def _mapping_proxy(tx: Tracer, mapping: VT, /) -> VT:
    mapping = mapping.realize(tx)
    if mapping.kind != "dict":
        raise Unsupported("making a mapping proxy of this object is not traced", remedy="make it of a dict")
    return MappingProxyVariable(mapping)


@makes(collections.deque)
def _deque(tx: Tracer, iterable: VT | None = None, maxlen: VT | None = None) -> VT:
    limit = None
    if maxlen is not None:
        maxlen = maxlen.realize(tx)
        limit = maxlen.as_constant() if maxlen.kind == "constant" else as_index(tx, maxlen)
        run(tx, collections.deque, [(), limit])
    made = DequeVariable([], limit)
    if iterable is not None:
        made.call_method(tx, "extend", [iterable], {})
    return made


CONSTRUCTORS[staticmethod] = lambda tx, function, /: tx.descriptor(staticmethod, [function])
CONSTRUCTORS[classmethod] = lambda tx, function, /: tx.descriptor(classmethod, [function])


@makes(property)
def _property(
    tx: Tracer, fget: VT | None = None, fset: VT | None = None, fdel: VT | None = None, doc: VT | None = None
) -> VT:
    none = tx.constant(None)
    return tx.descriptor(property, [part if part is not None else none for part in (fget, fset, fdel, doc)])


@makes(slice)
def _slice(tx: Tracer, /, *args: VT) -> VT:
    none = tx.constant(None)
    if not 1 <= len(args) <= 3:
        expected = "least 1 argument" if not args else "most 3 arguments"
        tx.raise_exception(TypeError, f"slice expected at {expected}, got {len(args)}")
    if len(args) == 1:
        return SliceVariable(none, args[0], none)
    return SliceVariable(args[0], args[1], args[2] if len(args) == 3 else none)


@makes(type)
def _type(tx: Tracer, /, *args: VT, **kwargs: VT) -> VT:
    if len(args) == 1 and not kwargs:
        return tx.wrap(args[0].realize(tx).python_type(), None, constant=True)
    if len(args) != 3:
        tx.raise_exception(TypeError, "type() takes 1 or 3 arguments")
    return tx.make_class(type, args, kwargs)
