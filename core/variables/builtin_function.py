"""Builtin functions (len, sum, sorted, getattr, isinstance, ...): one tracing function each, in a table by callable."""

from __future__ import annotations

import collections
import functools
import itertools
import math
import operator
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ..errors import Unsupported
from ..guards.checks import Is
from ..guards.source import InstanceAttrSource
from ..torch_compat import training
from .base import OUTSIDE, ObservedException, VariableTracker, find_special
from .class_checks import is_instance, is_subclass
from .container import Cursor, advance, as_index
from .identity import IdentityVariable
from .iterator import callable_type, iterator_of, make_sentinel_iterator
from .itertool import make_tee
from .late_text import late_text
from .literal import fold
from .slot_results import checked
from .sorting import sort_items
from .symbolic import both_of_data
from .text import ascii_of, format_value, text_of
from .unread import text_later

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
Handler = Callable[..., VT]
FUNCTIONS: dict[Any, Handler] = {}


def traces(*functions: Any) -> Callable[[Handler], Handler]:
    """Register the tracing function of builtin functions."""

    def register(handler: Handler) -> Handler:
        FUNCTIONS.update(dict.fromkeys(functions, handler))
        return handler

    return register


def is_none(tracker: VT | None) -> bool:
    """True for a missing argument and for None."""
    return tracker is None or (tracker.kind == "constant" and tracker.as_constant() is None)


# -- sizes, items, order -----------------------------------------------------------------------------------------------


@traces(len)
def _len(tx: Tracer, obj: VT, /) -> VT:
    obj = obj.realize(tx)
    cls = obj.python_type()
    function = find_special(cls, "__len__")
    if function is None:
        tx.raise_exception(TypeError, f"object of type '{cls.__name__}' has no len()")
    return checked(tx, "__len__", cls, obj.length(tx)) if isinstance(function, types.FunctionType) else obj.length(tx)


@traces(sum)
def _sum(tx: Tracer, iterable: VT, /, start: VT | None = None) -> VT:
    total = start.realize(tx) if start is not None else tx.constant(0)
    if total.kind == "constant" and isinstance(total.as_constant(), (str, bytes)):
        what, how = ("strings", "''.join(seq)") if isinstance(total.as_constant(), str) else ("bytes", "b''.join(seq)")
        tx.raise_exception(TypeError, f"sum() can't sum {what} [use {how} instead]")
    iterator = iterator_of(tx, iterable)
    numbers: list[Any] = [total.as_constant()] if total.kind == "constant" else []
    while (item := iterator.next_item(tx)) is not None:
        if numbers and item.kind == "constant" and isinstance(item.as_constant(), (int, float)):
            numbers.append(item.as_constant())
            continue
        if numbers:
            total, numbers = _known_sum(tx, numbers), []
        total = tx.binary(operator.add, total, item)
    return _known_sum(tx, numbers) if numbers else total


def _known_sum(tx: Tracer, numbers: list[Any]) -> VT:
    # by Python's own sum(): it adds floats with compensation from 3.12 on
    return tx.constant(numbers[0]) if len(numbers) == 1 else fold(tx, sum, [numbers[1:], numbers[0]])


def _extreme(name: str, op: Any) -> Handler:
    def trace(tx: Tracer, /, *args: VT, key: VT | None = None, default: VT | None = None) -> VT:
        if not args:
            tx.raise_exception(TypeError, f"{name} expected at least 1 argument, got 0")
        if len(args) > 1 and default is not None:
            tx.raise_exception(TypeError, f"Cannot specify a default for {name}() with multiple positional arguments")
        only = args[0].realize(tx)
        items = list(args) if len(args) > 1 else (_unordered(tx, only) if key is None else None)
        iterator = iterator_of(tx, tx.new_tuple(items)) if items is not None else iterator_of(tx, only)
        function = key.realize(tx) if key is not None else None
        best = best_key = None
        while (item := iterator.next_item(tx)) is not None:
            rank = item if is_none(function) else tx.call_function(function, [item], {})  # type: ignore[arg-type]
            if best is not None and rank is item and both_of_data(best, item.realize(tx)):
                best = best_key = tx.graph_call(torch.sym_min if name == "min" else torch.sym_max, [best, item], {})
            elif best is None or tx.truth(tx.binary(op, rank, best_key)):  # type: ignore[arg-type]
                best, best_key = item, rank
        if best is not None:
            return best
        if default is None:
            text = f"{name}() iterable argument is empty" if _SAYS_ITERABLE else f"{name}() arg is an empty sequence"
            tx.raise_exception(ValueError, text)
        return default.realize(tx)

    return trace


def _empty_text() -> str:
    try:
        return max(())
    except ValueError as error:
        return str(error)


_SAYS_ITERABLE = "iterable" in _empty_text()
FUNCTIONS[min] = _extreme("min", operator.lt)
FUNCTIONS[max] = _extreme("max", operator.gt)


def _unordered(tx: Tracer, iterable: VT) -> list[VT] | None:
    """The items of a set where their order makes no difference; None for anything else."""
    elements = getattr(iterable, "elements", None)
    if elements is None or iterable.kind != "set":
        return None
    items: list[VT] = elements(tx)
    orders = {type(item.as_constant()) for item in items if item.kind == "constant"}
    fixed = all(item.kind == "constant" for item in items) and (orders <= {int, bool} or orders <= {str})
    return items if fixed else None


@traces(sorted)
def _sorted(tx: Tracer, iterable: VT, /, *, key: VT | None = None, reverse: VT | None = None) -> VT:
    iterable = iterable.realize(tx)
    known = _unordered(tx, iterable) if key is None else None
    items = known if known is not None else iterator_of(tx, iterable).unpack(tx)
    descending = tx.truth(reverse.realize(tx)) if reverse is not None else False
    return tx.new_list(sort_items(tx, items, key, descending))


@traces(any)
def _any(tx: Tracer, iterable: VT, /) -> VT:
    iterator = iterator_of(tx, iterable)
    while (item := iterator.next_item(tx)) is not None:
        if tx.truth(item):
            return tx.constant(True)
    return tx.constant(False)


@traces(all)
def _all(tx: Tracer, iterable: VT, /) -> VT:
    iterator = iterator_of(tx, iterable)
    while (item := iterator.next_item(tx)) is not None:
        if not tx.truth(item):
            return tx.constant(False)
    return tx.constant(True)


class ReversedCursor(Cursor):
    """reversed(sequence) by length and position."""

    def __init__(self, sequence: VT, length: int) -> None:
        self.sequence = sequence
        self.left = length
        self.given = 0

    def __call__(self, tx: Tracer) -> VT | None:
        if self.left <= 0:
            return None
        self.left -= 1
        self.given += 1
        return self.sequence.get_item(tx, tx.constant(self.left)).realize(tx)

    def reconstruct(self, emit: Emitter, owner: VT) -> None:
        emit.push_null()
        emit.load_global_object(reversed)
        emit.load(self.sequence)
        emit.call(1)
        advance(emit, owner, self.given)


@traces(reversed)
def _reversed(tx: Tracer, sequence: VT, /) -> VT:
    sequence = sequence.realize(tx)
    cls = sequence.python_type()
    method = find_special(cls, "__reversed__")
    if method is not None and sequence.kind != "tensor":
        return sequence.lookup_special(tx, "__reversed__").call(tx, [], {})  # type: ignore[union-attr]
    if sequence.kind == "tensor":
        flat = sequence.call_method(tx, "dim", [], {}).as_constant() == 0
        return sequence if flat else sequence.call_method(tx, "flip", [tx.constant(0)], {})
    if find_special(cls, "__getitem__") is None or find_special(cls, "__len__") is None or issubclass(cls, dict):
        tx.raise_exception(TypeError, f"'{cls.__name__}' object is not reversible")
    length = as_index(tx, sequence.length(tx))
    return tx.new_iterator(ReversedCursor(sequence, length), reversed)


@traces(iter)
def _iter(tx: Tracer, obj: VT, sentinel: VT | None = None, /) -> VT:
    return iterator_of(tx, obj) if sentinel is None else make_sentinel_iterator(tx, obj, sentinel)


@traces(next)
def _next(tx: Tracer, iterator: VT, default: VT | None = None, /) -> VT:
    iterator = iterator.realize(tx)
    if find_special(iterator.python_type(), "__next__") is None:
        tx.raise_exception(TypeError, f"'{iterator.python_type().__name__}' object is not an iterator")
    if default is None:
        return iterator.call_method(tx, "__next__", [], {})
    item = iterator.next_item(tx)
    return default.realize(tx) if item is None else item


FUNCTIONS[itertools.tee] = make_tee


@traces(functools.reduce)
def _reduce(tx: Tracer, function: VT, iterable: VT, initial: VT | None = None, /) -> VT:
    function = function.realize(tx)
    iterator = iterator_of(tx, iterable)
    result = initial.realize(tx) if initial is not None else iterator.next_item(tx)
    if result is None:
        tx.raise_exception(TypeError, "reduce() of empty iterable with no initial value")
    while (item := iterator.next_item(tx)) is not None:
        result = tx.call_function(function, [result, item], {}).realize(tx)
    return result


@traces(collections._count_elements)  # type: ignore[attr-defined]
def _count_elements(tx: Tracer, mapping: VT, iterable: VT, /) -> VT:
    # what Counter.update calls to count
    mapping = mapping.realize(tx)
    iterator = iterator_of(tx, iterable)
    one = tx.constant(1)
    while (item := iterator.next_item(tx)) is not None:
        seen = mapping.call_method(tx, "get", [item, tx.constant(0)], {})
        mapping.set_item(tx, item, tx.binary(operator.add, seen.realize(tx), one))
    return tx.constant(None)


# -- attributes and classes --------------------------------------------------------------------------------------------


def _attribute_name(tx: Tracer, name: VT, function: str) -> str:
    name = name.realize(tx)
    if name.kind != "constant" or not isinstance(name.as_constant(), str):
        if function in ("setattr", "delattr", "getattr", "hasattr"):
            tx.raise_exception(TypeError, f"attribute name must be string, not '{name.python_type().__name__}'")
    return name.as_constant()


def _get(tx: Tracer, obj: VT, name: str) -> VT | None:
    try:
        return obj.get_attr(tx, name).realize(tx)
    except ObservedException as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return None
        raise


@traces(getattr)
def _getattr(tx: Tracer, obj: VT, name: VT, default: VT | None = None, /) -> VT:
    text = _attribute_name(tx, name, "getattr")
    obj = obj.realize(tx)
    if default is None:
        return obj.get_attr(tx, text)
    found = _get(tx, obj, text)
    return default.realize(tx) if found is None else found


@traces(hasattr)
def _hasattr(tx: Tracer, obj: VT, name: VT, /) -> VT:
    return tx.constant(_get(tx, obj.realize(tx), _attribute_name(tx, name, "hasattr")) is not None)


@traces(setattr)
def _setattr(tx: Tracer, obj: VT, name: VT, value: VT, /) -> VT:
    obj.realize(tx).set_attr(tx, _attribute_name(tx, name, "setattr"), value)
    return tx.constant(None)


@traces(delattr)
def _delattr(tx: Tracer, obj: VT, name: VT, /) -> VT:
    obj.realize(tx).del_attr(tx, _attribute_name(tx, name, "delattr"))
    return tx.constant(None)


@traces(vars)
def _vars(tx: Tracer, obj: VT, /) -> VT:
    found = _get(tx, obj.realize(tx), "__dict__")
    if found is None:
        tx.raise_exception(TypeError, "vars() argument must have __dict__ attribute")
    return found


@traces(callable)
def _callable(tx: Tracer, obj: VT, /) -> VT:
    return tx.constant(callable_type(obj.realize(tx)))


@traces(isinstance)
def _isinstance(tx: Tracer, obj: VT, classes: VT, /) -> VT:
    return tx.constant(is_instance(tx, obj.realize(tx), classes.realize(tx)))


@traces(issubclass)
def _issubclass(tx: Tracer, cls: VT, classes: VT, /) -> VT:
    return tx.constant(is_subclass(tx, cls.realize(tx), classes.realize(tx)))


# -- numbers -----------------------------------------------------------------------------------------------------------


@traces(abs, operator.abs)
def _abs(tx: Tracer, number: VT, /) -> VT:
    return tx.unary(abs, number)


@traces(round)
def _round(tx: Tracer, number: VT, ndigits: VT | None = None) -> VT:
    number = number.realize(tx)
    if number.kind == "tensor":
        return number.call_method(tx, "round", [], {} if is_none(ndigits) else {"decimals": ndigits})  # type: ignore[dict-item]
    if number.kind == "symbolic":
        if number.python_type() is int and ndigits is None:
            return number
        number = number.specialize(tx)  # type: ignore[attr-defined]
    method = number.lookup_special(tx, "__round__")
    if method is None:
        tx.raise_exception(TypeError, f"type {number.python_type().__name__} doesn't define __round__ method")
    return method.call(tx, [] if ndigits is None else [ndigits], {})


@traces(divmod)
def _divmod(tx: Tracer, left: VT, right: VT, /) -> VT:
    return tx.binary(divmod, left, right)


@traces(pow)
def _pow(tx: Tracer, base: VT, exp: VT, mod: VT | None = None) -> VT:
    if is_none(mod):
        return tx.binary(operator.pow, base, exp)
    operands = [tracker.realize(tx) for tracker in (base, exp, mod)]  # type: ignore[union-attr]
    if all(tracker.kind == "constant" for tracker in operands):
        return fold(tx, pow, [tracker.as_constant() for tracker in operands])
    method = operands[0].lookup_special(tx, "__pow__") if operands[0].kind == "user_object" else None
    if method is None:
        raise Unsupported(
            "pow() with three arguments that are not constants is not traced", remedy="use ** and %, or constants"
        )
    return method.call(tx, operands[1:], {})


@traces(math.prod)
def _prod(tx: Tracer, iterable: VT, /, *, start: VT | None = None) -> VT:
    result = start.realize(tx) if start is not None else tx.constant(1)
    iterator = iterator_of(tx, iterable)
    while (item := iterator.next_item(tx)) is not None:
        result = tx.binary(operator.mul, result, item)
    return result


def _to_integer(function: Any, special: str) -> Handler:
    def trace(tx: Tracer, number: VT, /) -> VT:
        number = number.realize(tx)
        if number.kind == "symbolic":
            return number.to_integer(tx, function)  # type: ignore[attr-defined, no-any-return]
        if number.kind == "constant":
            return fold(tx, function, [number.as_constant()])
        if number.kind == "tensor":
            return trace(tx, number.call_method(tx, "item", [], {}))
        method = number.lookup_special(tx, special)
        if method is None and function is not math.trunc:
            converted = _as_number(tx, number, ("__float__", "__index__"))
            if converted is not None:
                return fold(tx, function, [converted])
        if method is None:
            name = number.python_type().__name__
            refusals = {math.trunc: f"type {name} doesn't define __trunc__ method"}
            tx.raise_exception(TypeError, refusals.get(function, f"must be real number, not {name}"))
        return method.call(tx, [], {})

    return trace


def _on_reals(function: Any, symbolic: Any) -> Handler:
    def trace(tx: Tracer, number: VT, /) -> VT:
        number = number.realize(tx)
        if number.kind == "symbolic" and tx.truth(tx.binary(operator.ge, number, tx.constant(0))):
            return tx.graph_call(symbolic, [number], {})  # below 0 some of them raise
        return call_pure(tx, function, [number], {})

    return trace


FUNCTIONS.update((fn, _on_reals(fn, twin)) for fn, twin in training.symbolic_math().items())
FUNCTIONS[math.floor] = _to_integer(math.floor, "__floor__")
FUNCTIONS[math.ceil] = _to_integer(math.ceil, "__ceil__")
FUNCTIONS[math.trunc] = _to_integer(math.trunc, "__trunc__")


@traces(hash)
def _hash(tx: Tracer, obj: VT, /) -> VT:
    obj = obj.realize(tx)
    cls = obj.python_type()
    function = find_special(cls, "__hash__")
    if function is None:
        tx.raise_exception(TypeError, f"unhashable type: '{cls.__name__}'")
    if isinstance(function, types.FunctionType) and function.__module__ != "enum":
        return checked(tx, "__hash__", cls, obj.call_method(tx, "__hash__", [], {}))
    obj.hash_key(tx)  # TypeError of an unhashable item
    payload = getattr(obj, "payload", None)
    if payload is not None and function is find_special(payload.python_type(), "__hash__"):
        return _hash(tx, payload)
    if obj.kind == "user_object" and function is object.__hash__ and obj.source is None:
        return IdentityVariable(hash, obj)
    if (obj.kind in ("constant", "tuple") or cls is frozenset) and obj.look_inside(tx).is_constant():
        value = obj.as_constant()
        if _hash_is_fixed(tx, value):
            return fold(tx, hash, [value])
    raise obj.refuse("hash()", remedy="use the object itself as the key")


def _hash_is_fixed(tx: Tracer, value: Any) -> bool:
    # those by address differ between objects; those of strings and classes only between processes
    if find_special(type(value), "__hash__") in (tuple.__hash__, frozenset.__hash__):
        return all(_hash_is_fixed(tx, item) for item in value)
    if find_special(type(value), "__hash__") is object.__hash__:
        return isinstance(value, type) and not tx.is_unreal(value)
    plain = (
        type(value) in (int, bool, float, complex, str, bytes) or find_special(type(value), "__hash__") is int.__hash__
    )
    return plain and value == value


# -- text --------------------------------------------------------------------------------------------------------------


@traces(repr)
def _repr(tx: Tracer, obj: VT, /) -> VT:
    obj = obj.realize(tx)
    return late_text(obj, repr) or text_later(tx, repr, [obj]) or tx.constant(text_of(tx, obj, repr))


@traces(ascii)
def _ascii(tx: Tracer, obj: VT, /) -> VT:
    return ascii_of(tx, obj)


@traces(format)
def _format(tx: Tracer, value: VT, format_spec: VT | None = None, /) -> VT:
    if format_spec is not None and not issubclass(format_spec.realize(tx).python_type(), str):
        kind = format_spec.realize(tx).python_type().__name__
        tx.raise_exception(TypeError, f"format() argument 2 must be str, not {kind}")
    return format_value(tx, value, format_spec)


# -- operator module ---------------------------------------------------------------------------------------------------


@traces(operator.setitem)
def _setitem(tx: Tracer, container: VT, key: VT, value: VT, /) -> VT:
    container.realize(tx).set_item(tx, key.realize(tx), value)
    return tx.constant(None)


@traces(operator.delitem)
def _delitem(tx: Tracer, container: VT, key: VT, /) -> VT:
    container.realize(tx).del_item(tx, key.realize(tx))
    return tx.constant(None)


@traces(operator.countOf)
def _count_of(tx: Tracer, container: VT, item: VT, /) -> VT:
    return tx.constant(sum(tx.compare_equal(found, item) for found in iterator_of(tx, container).unpack(tx)))


@traces(operator.indexOf)
def _index_of(tx: Tracer, container: VT, item: VT, /) -> VT:
    iterator, place = iterator_of(tx, container), 0
    while (found := iterator.next_item(tx)) is not None:
        if tx.compare_equal(found, item):
            return tx.constant(place)
        place += 1
    tx.raise_exception(ValueError, "sequence.index(x): x not in sequence")


if hasattr(operator, "call"):

    @traces(operator.call)
    def _call(tx: Tracer, function: VT, /, *args: VT, **kwargs: VT) -> VT:
        return tx.call_function(function, list(args), kwargs)


# -- what only the real program can do ---------------------------------------------------------------------------------


def _breaks(what: str, remedy: str) -> Handler:
    def trace(tx: Tracer, /, *args: VT, **kwargs: VT) -> NoReturn:
        raise Unsupported(what, remedy=remedy)

    return trace


def _identity(tx: Tracer, value: VT, /) -> VT:
    """The address of an object that lives outside the traced code and stays the same from call to call."""
    value = value.realize(tx)
    found = getattr(value, "real" if value.kind == "tensor" else "value", None)
    held = isinstance(value.source, InstanceAttrSource)  # of an object, which gives it for as long as it lives
    lasting = value.kind in ("user_object", "module") or held and value.kind == "tensor"
    lasting = lasting or isinstance(found, torch.nn.Parameter)
    if not lasting or found is None or value.source is None:
        single = value.mutable or value.python_type() is frozenset and value.unpack(tx)
        if (value.source is None and single or value.kind == "tensor") and value.kind not in ("opaque", "unguarded"):
            identity = getattr(value, "identity", None)
            if identity is None:
                identity = value.identity = IdentityVariable(id, value)  # type: ignore[attr-defined]
            return identity
        raise Unsupported(
            "id() of an object is an address", remedy="compare with `is`, or use the object itself as the key"
        )
    tx.guard(value.source, Is(found))
    return tx.constant(id(found))


FUNCTIONS.update(
    {
        print: _breaks("print() writes where the program runs", "print outside the compiled function, or use logging"),
        id: _identity,
        input: _breaks("input() reads where the program runs", "read input outside the compiled function"),
        open: _breaks("open() reads or writes files", "open files outside the compiled function"),
    }
)


@traces(dir)
def _dir(tx: Tracer, obj: VT, /) -> VT:
    obj = obj.realize(tx)
    method = find_special(obj.python_type(), "__dir__")
    if isinstance(method, types.FunctionType) and method.__module__ != "enum":
        names = obj.lookup_special(tx, "__dir__").call(tx, [], {})  # type: ignore[union-attr]
        return tx.new_list(sort_items(tx, iterator_of(tx, names).unpack(tx), None, False))
    if obj.kind not in ("constant", "builtin", "class") or getattr(obj, "written", None):
        raise Unsupported(f"dir() of {obj.describe()} is not traced", remedy="read the attributes by name")
    return fold(tx, dir, [obj.as_constant()])


def is_pure(function: Any) -> bool:
    """True for C functions whose result depends on the values of their arguments alone."""
    module = getattr(function, "__module__", None)
    if module == "builtins":
        return function in (chr, ord, bin, hex, oct)
    return isinstance(function, types.BuiltinFunctionType) and module in ("math", "cmath", "_operator")


def call_pure(tx: Tracer, function: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """A pure function on known values; symbolic numbers are specialised."""

    def known(arg: VT) -> Any:
        arg = arg.look_inside(tx)
        if arg.kind == "symbolic":
            arg = arg.specialize(tx)  # type: ignore[attr-defined]
        if arg.kind == "tensor":
            arg = arg.call_method(tx, "item", [], {}).realize(tx)
            return known(arg)
        payload = getattr(arg, "payload", None)
        if payload is not None and function in COUNTING and issubclass(arg.python_type(), int):
            return payload.as_constant()  # the C code reads what the object extends
        if arg.kind in ("user_object", "module", "iterator") or not arg.is_constant():
            if arg.kind == "iterator":
                return [known(item) for item in arg.unpack(tx)]
            converted = _as_number(tx, arg, ("__index__",) if function in COUNTING else ("__float__", "__index__"))
            if converted is None:
                raise Unsupported(f"{function.__name__}() of {arg.describe()} is not traced", remedy=OUTSIDE)
            return converted
        return arg.as_constant()

    return fold(tx, function, [known(arg) for arg in args], {key: known(arg) for key, arg in kwargs.items()})


COUNTING = frozenset((bin, hex, oct, chr, math.gcd, math.lcm, math.comb, math.perm, math.factorial, math.isqrt))


def _as_number(tx: Tracer, tracker: VT, names: tuple[str, ...]) -> Any:
    for name in names:
        if isinstance(find_special(tracker.python_type(), name), types.FunctionType):
            result = tracker.call_method(tx, name, [], {}).realize(tx)
            if result.kind == "constant":
                return result.as_constant()
    return None
