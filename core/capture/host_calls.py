"""Functions of the standard library that run for real while tracing: their results depend on known arguments alone."""

from __future__ import annotations

import _abc
import _string
import _thread
import builtins
import collections
import enum
import io
import pickle
import random
import re
import sys
import traceback
import types
import typing
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import Unsupported
from ..variables import immutable, random_generator
from ..variables.answers import guard_answer
from ..variables.base import ObservedException, VariableTracker
from ..variables.builtin import BuiltinVariable
from ..variables.identity import IdentityVariable
from ..variables.literal import from_result, is_literal
from ..variables.type_expression import TypeExpressionVariable
from .breaks import NeedsFrame
from .special_calls import Handler, callable_object, function
from .tracebacks import TracebackVariable

VT = VariableTracker


def known(tx: Any, what: str, args: Sequence[VT], kwargs: dict[str, VT]) -> tuple[list[Any], dict[str, Any]]:
    """The values of arguments; a graph break where one is not known."""
    values = [arg.look_inside(tx) for arg in args]
    keywords = {key: value.look_inside(tx) for key, value in kwargs.items()}
    for value in (*values, *keywords.values()):
        if not value.is_constant():
            raise Unsupported(f"{what}() of {value.describe()} is not traced", remedy="call it outside the function")
    return [value.as_constant() for value in values], {key: value.as_constant() for key, value in keywords.items()}


def folded(fn: Callable[..., Any], errors: tuple[type[Exception], ...] = (TypeError, ValueError)) -> Handler:
    """A handler that calls `fn` for real."""

    def handler(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        values, keywords = known(tx, fn.__name__, args, kwargs)
        if any(callable(value) for value in (*values, *keywords.values())):
            raise Unsupported(f"{fn.__name__}() with a function is not traced", remedy="call it outside the function")
        try:
            result = fn(*values, **keywords)
        except errors as error:
            tx.raise_exception(type(error), *error.args)
        if fn in (re.finditer, _string.formatter_parser):
            return from_result(tx, list(result)).iterate(tx)
        return from_result(tx, result)

    return handler


for _fn in (
    re.compile,
    re.match,
    re.fullmatch,
    re.search,
    re.sub,
    re.subn,
    re.split,
    re.findall,
    re.finditer,
    re.escape,
):
    function(_fn)(folded(_fn, (TypeError, ValueError, re.error, OverflowError)))
for _fn in (
    sys.intern,
    _string.formatter_parser,
    sys.getfilesystemencoding,
    sys.getdefaultencoding,
):
    callable_object(_fn)(folded(_fn))


@callable_object(_string.formatter_field_name_split)
def field_name_split(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The first part of a field's name, and an iterator over the rest."""
    (text,), _ = known(tx, "formatter_field_name_split", args, kwargs)
    try:
        first, rest = _string.formatter_field_name_split(text)
        parts = from_result(tx, list(rest))
    except (TypeError, ValueError) as error:
        tx.raise_exception(type(error), *error.args)
    return tx.new_tuple([tx.constant(first), parts.iterate(tx)])


@callable_object(builtins.eval)
def evaluate(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """eval() of a known expression that names nothing, such as the repr of a number."""
    text = args[0].look_inside(tx)
    if text.is_constant() and isinstance(text.as_constant(), str) and not kwargs:
        try:
            code = compile(text.as_constant().lstrip(" \t"), "<string>", "eval", dont_inherit=True)
            if not code.co_names and not any(isinstance(const, types.CodeType) for const in code.co_consts):
                return from_result(tx, eval(code, {"__builtins__": {}}))
        except (SyntaxError, ValueError, TypeError, ArithmeticError) as error:
            tx.raise_exception(type(error), *error.args)
    kind = NeedsFrame if tx.parent is None and len(args) < 2 else Unsupported
    raise kind("eval() looks at the real frame", remedy="call it outside the compiled function")


def asked(fn: Callable[..., Any]) -> Callable[..., VT]:
    """A handler of a setting of the process: its answer is guarded."""

    def handler(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        values, keywords = known(tx, fn.__name__, args, kwargs)
        answer = tx.answer(fn, values, keywords)
        guard_answer(tx, fn, values, answer)
        return tx.constant(answer)

    return handler


for _fn in (sys.getrecursionlimit, sys.get_int_max_str_digits):
    callable_object(_fn)(asked(_fn))


@callable_object(builtins.compile)
def compile_text(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """compile() of known text: a code object, or the SyntaxError."""
    values, keywords = known(tx, "compile", args, kwargs)
    keywords.setdefault("dont_inherit", True)  # the caller here is not the program
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            code = compile(*values, **keywords)
        except (SyntaxError, ValueError, TypeError, OverflowError) as error:
            if said:
                raise Unsupported("compile() that warns is not traced", remedy="compile outside the function") from None
            raise ObservedException(_as_raised(tx, error)) from None
    if said:
        raise Unsupported("compile() that warns is not traced", remedy="compile outside the function")
    return tx.constant(code)


def _as_raised(tx: Any, error: Exception) -> VT:
    """The exception with the fields that the compiler filled in behind its arguments."""
    made = tx.new_exception(type(error), *error.args)
    if isinstance(error, SyntaxError):
        plain = type(error)(*error.args)
        for name in ("msg", "filename", "lineno", "offset", "text", "end_lineno", "end_offset"):
            if getattr(error, name) != getattr(plain, name):
                made.written[name] = tx.constant(getattr(error, name))
    return made  # type: ignore[no-any-return]


@callable_object(pickle.dumps)
def dumps(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The bytes of literals and containers of them."""
    values, keywords = known(tx, "dumps", args, kwargs)
    if not _is_data(tx, values[0]):
        raise Unsupported("pickling objects is not traced", remedy="pickle outside the compiled function")
    try:
        return tx.constant(pickle.dumps(*values, **keywords))
    except (pickle.PicklingError, TypeError, ValueError) as error:
        tx.raise_exception(type(error), *error.args)


@callable_object(pickle.loads)
def loads(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """What known bytes hold, where that is data."""
    values, keywords = known(tx, "loads", args, kwargs)
    try:
        found = _DataUnpickler(io.BytesIO(values[0]), **keywords).load()
    except (pickle.UnpicklingError, TypeError, ValueError, EOFError) as error:
        tx.raise_exception(type(error), *error.args)
    return from_result(tx, found)


class _DataUnpickler(pickle.Unpickler):
    """Loads enum members and builtin containers; anything else would run code of its class."""

    def find_class(self, module: str, name: str) -> Any:
        old = {"__builtin__": "builtins"}.get(module, module)  # the name that older protocols write
        found = super().find_class(old, name) if old in sys.modules else None
        if found is getattr or old == "builtins" and found in (set, frozenset, complex, slice, range):
            return found
        if isinstance(found, enum.EnumMeta) and found.__call__.__func__ is enum.EnumMeta.__call__:
            return found
        raise Unsupported(f"unpickling a {name} is not traced", remedy="unpickle outside the compiled function")


def _is_data(tx: Any, value: Any) -> bool:
    if isinstance(value, enum.Enum):
        reducer = type(value).__reduce_ex__
        return not tx.is_unreal(type(value)) and getattr(reducer, "__module__", "enum") in ("enum", None)
    if type(value) in (list, tuple, set, frozenset):
        return all(_is_data(tx, item) for item in value)
    if type(value) is dict:
        return all(_is_data(tx, key) and _is_data(tx, item) for key, item in value.items())
    return is_literal(value)


# -- abstract base classes ---------------------------------------------------------------------------------------------


@callable_object(_abc._abc_init)
def abc_init(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Which methods of a new class are abstract."""
    return _on_made_class(tx, _abc._abc_init, args)


@callable_object(_abc._abc_register)
def abc_register(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """cls.register(other), for classes that the traced code defines."""
    return _on_made_class(tx, _abc._abc_register, args)


def _on_made_class(tx: Any, fn: Callable[..., Any], args: list[VT]) -> VT:
    values, _ = known(tx, fn.__name__, args, {})
    if not tx.is_unreal(values[0]):
        raise Unsupported("registering with an abstract class is not traced", remedy="register outside the function")
    try:
        result = fn(*values)
    except (TypeError, RuntimeError) as error:
        tx.raise_exception(type(error), *error.args)
    return tx.wrap(result, None, constant=True)


@callable_object(_abc._abc_instancecheck)
def abc_instancecheck(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """isinstance as ABCMeta answers it."""
    return BuiltinVariable(isinstance).call(tx, [args[1], args[0]], {})


@callable_object(_abc._abc_subclasscheck)
def abc_subclasscheck(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """issubclass as ABCMeta answers it."""
    return BuiltinVariable(issubclass).call(tx, [args[1], args[0]], {})


@function(enum.EnumMeta.__call__)
def call_enum(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A member by its value, or a new enum."""
    return tx.call_enum(args, kwargs)


@function(collections.namedtuple)
def make_namedtuple(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A class of known names."""
    values, keywords = known(tx, "namedtuple", args, kwargs)
    keywords.setdefault("module", tx.globals_dict.get("__name__"))
    try:
        made = collections.namedtuple(*values, **keywords)
    except (TypeError, ValueError) as error:
        tx.raise_exception(type(error), *error.args)
    return tx.register_class(made)


@callable_object(typing.TypeVar)
def make_type_variable(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A type variable of known name and bounds, made for the capture alone."""
    values, keywords = known(tx, "TypeVar", args, kwargs)
    try:
        made = typing.TypeVar(*values, **keywords)
    except TypeError as error:
        tx.raise_exception(TypeError, *error.args)
    made.__module__ = tx.globals_dict.get("__name__")  # of the frame that makes it
    tx.trace.unreal[id(made)] = tx.trace.step
    return tx.trace.remember(made, TypeExpressionVariable(made))  # type: ignore[no-any-return]


def _makes_moment(cls: type) -> None:
    @callable_object(cls)
    def make(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
        return immutable.make_moment(tx, cls, args, kwargs)


for _cls in immutable.MOMENTS:
    _makes_moment(_cls)


@callable_object(random.Random)
def make_random(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """random.Random(seed)."""
    return random_generator.make(tx, random.Random, args, kwargs)


# -- tracebacks and references -----------------------------------------------------------------------------------------


@function(traceback.clear_frames)
def clear_frames(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Frees the locals of finished frames; while tracing nothing is left of those."""
    target = (args or list(kwargs.values()))[0].realize(tx)
    if not isinstance(target, TracebackVariable) and not (target.is_constant() and target.as_constant() is None):
        raise Unsupported("clearing the frames of a traceback made outside is not traced", remedy="do it outside")
    return tx.constant(None)


@callable_object(weakref.proxy)
def make_proxy(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """A proxy that collections makes between the links of a list, each held by another reference as well."""
    if tx.globals_dict.get("__name__") != "collections" or len(args) != 1 or kwargs:
        raise Unsupported("making a weak proxy is not traced", remedy="make it outside the compiled function")
    proxies = tx.trace.proxies
    key = id(args[0])
    if key not in proxies:
        proxies[key] = ProxyVariable(args[0])
    return proxies[key]


@callable_object(_thread.get_ident)
def thread_number(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The number of the thread that runs the program."""
    return tx.trace.proxies.setdefault(0, IdentityVariable(_thread.get_ident))


callable_object(_abc.get_cache_token)(folded(_abc.get_cache_token))


class ProxyVariable(VariableTracker):
    """weakref.proxy(object) while the object lives."""

    kind = "proxy"

    def __init__(self, target: VT) -> None:
        super().__init__(None)
        self.target = target

    def python_type(self) -> type:
        return weakref.ProxyType

    def truth(self, tx: Any) -> bool:
        return tx.truth(self.target)

    def get_attr(self, tx: Any, name: str) -> VT:
        return self.target.get_attr(tx, name)

    def set_attr(self, tx: Any, name: str, value: VT) -> None:
        self.target.set_attr(tx, name, value)

    def del_attr(self, tx: Any, name: str) -> None:
        self.target.del_attr(tx, name)

    def reconstruct(self, emit: Any) -> None:
        emit.load_const(weakref.proxy)
        emit.load(self.target)
        emit.call(1)
