"""What the trackers of builtin containers share: method dispatch, argument counts, indices, comparison by items.

A kind defines `do_append` for the method `append` and `op_getitem` for `__getitem__`, with the method's own parameters
behind `(self, tx)`; None stands for None. Iterators are cursors: callables that give the next item.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import Unsupported
from .base import BuiltinMethodVariable, NotConstant, VariableTracker, find_special
from .literal import FOLD_ERRORS, run

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
FLAT_KINDS = frozenset({"constant", "tensor", "symbolic", "builtin", "range", "class"})
_BY_NAME = frozenset({"constant", "dict", "list", "tuple", "set", "deque", "range"})  # kinds that have methods by name
EMPTY: dict[type, Any] = {range: range(0), str: "", bytes: b""}
ORDERINGS = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}


@functools.cache
def _arity(handler: types.FunctionType) -> tuple[int, float, frozenset[str], bool]:
    """(fewest, most positional arguments, keyword names, any keyword) of a handler, `self` and `tx` left out."""
    code = handler.__code__
    names = code.co_varnames
    positional = code.co_argcount
    most = float("inf") if code.co_flags & 0x04 else positional - 2
    keywords = names[code.co_posonlyargcount : positional + code.co_kwonlyargcount]
    fewest = positional - 2 - len(handler.__defaults__ or ())
    return fewest, most, frozenset(keywords) - {"self", "tx"}, bool(code.co_flags & 0x08)


def call_handler(
    tx: Tracer, tracker: VT, handler: Callable[..., VT | None], name: str, args: Sequence[VT], kwargs: dict[str, VT]
) -> VT:
    """handler(tracker, tx, *args, **kwargs) after checking the arguments as Python does."""
    fewest, most, keywords, any_keyword = _arity(handler)  # type: ignore[arg-type]
    taken = len(args) + sum(key in keywords for key in kwargs)
    if not (fewest <= taken and len(args) <= most) or not (any_keyword or keywords.issuperset(kwargs)):
        _raise_arity_error(tx, tracker.python_type(), name, len(args), kwargs)
    result = handler(tracker, tx, *args, **kwargs)
    return tx.constant(None) if result is None else result


def _raise_arity_error(tx: Tracer, cls: type, name: str, count: int, kwargs: dict[str, VT]) -> None:
    # Python checks the count before it looks at the arguments, so a call on an empty object gives the true message
    try:
        getattr(cls(), name)(*[None] * count, **dict.fromkeys(kwargs))
    except TypeError as error:
        tx.raise_exception(TypeError, *error.args)
    except FOLD_ERRORS:
        pass
    tx.raise_exception(TypeError, f"{cls.__name__}.{name}() got wrong arguments")


def call_checked(tx: Tracer, name: str, function: Callable[..., Any], args: Sequence[VT], kwargs: dict[str, VT]) -> Any:
    """function(tx, *args, **kwargs); arguments that it doesn't take are the traced program's TypeError."""
    try:
        _signature(function).bind(tx, *args, **kwargs)
    except TypeError as error:
        tx.raise_exception(TypeError, f"{name}() {error}")
    return function(tx, *args, **kwargs)


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def require_own(tracker: VT, descriptor: Any, name: str, args: Sequence[Any]) -> None:
    """Refuse a C method of a base class where the builtin class of the value has another by that name.

    dict.popitem(ordered) leaves the order as it was, int.__repr__(True) is "1": no tracker of the value tells that.
    """
    own = find_special(tracker.python_type(), name)
    fills_nothing = name == "__init__" and not args
    if own is not descriptor and tracker.kind in _BY_NAME and not fills_nothing:
        raise tracker.refuse(f"calling {name!r} of {descriptor.__objclass__.__name__} past the class of the value")


class ContainerVariable(VariableTracker):
    """Base of the builtin containers."""

    mutable: ClassVar[bool] = True

    @classmethod
    def handler(cls, name: str) -> Any:
        """The function that traces a method, or None."""
        if name.startswith("__") and name.endswith("__"):
            return getattr(cls, "op_" + name[2:-2], None)
        return getattr(cls, "do_" + name, None)

    def has_method(self, name: str) -> bool:
        """True when the class of the object has a method that this kind traces."""
        return self.handler(name) is not None and getattr(self.python_type(), name, None) is not None

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        # orderings and the like that the type only inherits from object are as good as missing
        if self.has_method(name) or isinstance(find_special(self.python_type(), name), types.FunctionType):
            return BuiltinMethodVariable(self, name)
        return None

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.has_method(name):
            return call_handler(tx, self, self.handler(name), name, args, kwargs)
        function = getattr(self.python_type(), name, None)
        if isinstance(function, types.FunctionType):
            return self.call_python_method(tx, name, function, args, kwargs)
        return self.get_attr(tx, name).call(tx, args, kwargs)

    def call_python_method(
        self, tx: Tracer, name: str, function: types.FunctionType, args: Sequence[VT], kwargs: dict[str, VT]
    ) -> VT:
        """A method that the class defines in Python."""
        return tx.inline(function, [self, *args], kwargs)

    def get_attr(self, tx: Tracer, name: str) -> VT:
        cls = self.python_type()
        if name == "__class__":
            return tx.wrap(cls, None, constant=True)
        if name == "__doc__":
            return tx.constant(cls.__doc__)
        found = getattr(cls, name, None)
        if found is None and not hasattr(cls, name):
            tx.raise_exception(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")
        if self.has_method(name) or isinstance(found, types.FunctionType):
            return BuiltinMethodVariable(self, name)
        if isinstance(find_special(cls, name), types.ClassMethodDescriptorType):
            return tx.wrap(cls, None, constant=True).get_attr(tx, name)
        raise self.refuse(f"the attribute {name!r}")

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        cls = self.python_type()
        if hasattr(cls, name):
            tx.raise_exception(AttributeError, f"'{cls.__name__}' object attribute '{name}' is read-only")
        if cls.__dictoffset__:
            raise self.refuse(f"setting attribute {name!r}")
        if cls in (list, tuple, dict, set, frozenset):
            run(tx, setattr, [cls(), name, None])  # raises what this version of Python raises
        tx.raise_exception(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")

    def del_attr(self, tx: Tracer, name: str) -> None:
        self.set_attr(tx, name, self)

    def get_item(self, tx: Tracer, key: VT) -> VT:
        if not self.has_method("__getitem__"):
            tx.raise_exception(TypeError, f"'{self.python_type().__name__}' object is not subscriptable")
        return call_handler(tx, self, self.handler("__getitem__"), "__getitem__", [key], {})

    def set_item(self, tx: Tracer, key: VT, value: VT) -> None:
        if not self.has_method("__setitem__"):
            tx.raise_exception(TypeError, f"'{self.python_type().__name__}' object does not support item assignment")
        call_handler(tx, self, self.handler("__setitem__"), "__setitem__", [key, value], {})

    def del_item(self, tx: Tracer, key: VT) -> None:
        if not self.has_method("__delitem__"):
            doesnt = "doesn't" if self.python_type() is not dict else "does not"
            tx.raise_exception(TypeError, f"'{self.python_type().__name__}' object {doesnt} support item deletion")
        call_handler(tx, self, self.handler("__delitem__"), "__delitem__", [key], {})

    def iterate(self, tx: Tracer) -> VT:
        if not self.has_method("__iter__"):
            tx.raise_exception(TypeError, f"'{self.python_type().__name__}' object is not iterable")
        return call_handler(tx, self, self.handler("__iter__"), "__iter__", [], {})

    def op_ne(self, tx: Tracer, other: VT, /) -> VT:
        equal = self.equals(tx, other.realize(tx))
        return tx.constant(NotImplemented) if equal is None else tx.constant(not tx.truth(equal))

    def op_eq(self, tx: Tracer, other: VT, /) -> VT:
        equal = self.equals(tx, other.realize(tx))
        return tx.constant(NotImplemented) if equal is None else equal

    def op_hash(self, tx: Tracer, /) -> VT:
        if self.python_type().__hash__ is None:
            tx.raise_exception(TypeError, f"unhashable type: '{self.python_type().__name__}'")
        raise self.refuse("hash()")

    def payload_like(self, other: VT) -> VT | None:
        """`other` where it is of this kind, or the container inside an object whose class extends this kind's."""
        payload = getattr(other, "payload", None)
        for candidate in (other, payload):
            if isinstance(candidate, type(self)):
                return candidate
        return None


def as_index(tx: Tracer, tracker: VT, message: str = "") -> int:
    """operator.index(object) as an int known while tracing; a symbolic number is specialised.

    message: the TypeError's text where Python words it for the occasion, with `{}` for the type's name.
    """
    tracker = tracker.realize(tx)
    if tracker.kind == "symbolic":
        tracker = tracker.specialize(tx)  # type: ignore[attr-defined]
    if tracker.kind == "tensor" and isinstance(tracker.needed_number(tx), int):  # type: ignore[attr-defined]
        return operator.index(tracker.known_number())  # type: ignore[attr-defined]
    if tracker.kind == "tensor":
        raise Unsupported(
            "an index depends on the value of a tensor", remedy="index with a Python int, or use torch.gather"
        )
    if tracker.kind == "constant":
        value = tracker.as_constant()
        if hasattr(type(value), "__index__"):
            return operator.index(value)
    else:
        number = tracker if tracker.kind == "immutable" else getattr(tracker, "payload", None)
        if number is not None and number.kind in ("constant", "immutable") and isinstance(number.as_constant(), int):
            return operator.index(number.as_constant())  # Python does not ask a class that extends int
        method = tracker.lookup_special(tx, "__index__")
        if method is not None:
            return as_index(tx, method.call(tx, [], {}))
    name = tracker.python_type().__name__
    text = message.format(name) if message else f"'{name}' object cannot be interpreted as an integer"
    tx.raise_exception(TypeError, text)


def as_slice(tx: Tracer, tracker: VT) -> slice:
    """A slice tracker as a slice of ints known while tracing."""
    message = "slice indices must be integers or None or have an __index__ method"

    def part(name: str) -> int | None:
        value = tracker.get_attr(tx, name).realize(tx)
        if value.kind == "constant" and value.as_constant() is None:
            return None
        return as_index(tx, value, message)

    return slice(part("start"), part("stop"), part("step"))


def same(tx: Tracer, left: VT, right: VT) -> bool:
    """How containers compare their items: identity, then equality."""
    left, right = left.realize(tx), right.realize(tx)
    return left is right or tx.compare_equal(left, right)


def compare_sequences(tx: Tracer, op: Callable[..., Any], left: Sequence[VT], right: Sequence[VT]) -> VT:
    """An ordering of two sequences: the first pair of items that differs decides, then the lengths."""
    for a, b in zip(left, right):
        if not same(tx, a, b):
            return tx.binary(op, a.realize(tx), b.realize(tx))
    return tx.constant(op(len(left), len(right)))


def constant_items(items: Sequence[VT]) -> list[Any]:
    """The items' values; raises NotConstant when one has none (one not yet looked at has none: nothing guards it)."""
    values = []
    for item in items:
        realized = getattr(item, "realized", item)
        if realized is None:
            raise NotConstant("an item has not been looked at")
        values.append(realized.as_constant())
    return values


def is_flat(items: Sequence[VT]) -> bool:
    """True when none of the items can lead back to the container that holds them."""
    for item in items:
        realized = getattr(item, "realized", item)
        if realized is None or realized.source is not None or realized.kind in FLAT_KINDS:
            continue
        if realized.kind != "tuple" or not is_flat(realized.items):  # type: ignore[union-attr]
            return False
    return True


def load_class(emit: Emitter, cls: type) -> None:
    """Push a class: by name where it can be imported, else the object itself."""
    import sys

    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is cls:
        emit.load_global_object(cls)
    else:
        emit.load_const(cls)


class Cursor:
    """Where an iterator stands. Called with the tracer it gives the next item, None at the end."""

    def __call__(self, tx: Tracer) -> VT | None:
        raise NotImplementedError

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        """Push an iterator that goes on from here; `owner` is its tracker."""
        raise owner.refuse("giving a partly consumed iterator back to Python")


class SequenceCursor(Cursor):
    """Iteration by position over a sequence that may change meanwhile. `take(tx, i)` gives item i or None."""

    def __init__(self, sequence: VT, take: Callable[[Tracer, int], VT | None]) -> None:
        self.sequence: VT | None = sequence
        self.cls = sequence.python_type()
        self.take = take
        self.index = 0

    def __call__(self, tx: Tracer) -> VT | None:
        if self.sequence is None:
            return None
        item = self.take(tx, self.index)
        if item is None:
            self.sequence = None  # an exhausted iterator stays so, also when the list grows later
            return None
        self.index += 1
        return item.realize(tx)

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        emit.push_null()
        emit.load_global_object(iter)
        if self.sequence is None:
            if self.cls is list:
                emit.build_list(0)
            else:
                emit.load_const(EMPTY.get(self.cls, ()))
            emit.call(1)
            return
        emit.load(self.sequence)
        emit.call(1)
        advance(emit, owner, self.index)


def advance(emit: Emitter, owner: VT, count: int) -> None:
    """Consume `count` items of the iterator on top of the stack."""
    if count == 0:
        return
    emit.remember(owner)
    emit.push_null()
    emit.load_global_object(collections.deque)
    emit.push_null()
    emit.load_global_object(itertools.islice)
    emit.load(owner)
    emit.load_const(count)
    emit.call(2)
    emit.load_const(0)
    emit.call(2)
    emit.pop_top()
