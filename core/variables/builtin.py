"""BuiltinVariable: a function or class of Python's own, written in C, and what calling it means while tracing.

Enters: calls of builtins, of the operator, math, itertools and functools modules, of builtin classes. Leaves: trackers.
What a call means stands in tables: builtin_function (functions), constructor (classes), itertool (iterators),
operators (operators). What is in none of them breaks the graph.
"""

from __future__ import annotations

import collections
import operator
import sys
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import Is
from . import itertool, operators
from .base import InheritedMethodVariable, VariableTracker, find_special
from .builtin_function import FUNCTIONS, call_pure, is_pure
from .constructor import CONSTRUCTORS
from .container import call_checked, require_own
from .literal import from_result, is_literal, run
from .sequence import is_namedtuple
from .type_method import TypeMethodVariable

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .protocols import Emitter, Tracer

VT = VariableTracker
GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)


def getter_from_value(tx: Tracer, value: Any, source: Any) -> VT:
    """The tracker of a real itemgetter, attrgetter or methodcaller, guarded by identity."""
    function, args = value.__reduce__()[:2]
    if function not in GETTERS:
        raise Unsupported(
            "a methodcaller with keywords, made outside the compiled function, is not traced", remedy="use a lambda"
        )
    tx.guard(source, Is(value))
    return GetterVariable(type(value), [tx.wrap(arg, None, constant=True) for arg in args], {}, source)


class BuiltinVariable(VariableTracker):
    """A builtin function or class."""

    kind = "builtin"

    def __init__(self, fn: Any, source: Any = None) -> None:
        super().__init__(source)
        self.fn = fn

    @staticmethod
    def handles(cls: Any) -> bool:
        """True for the classes that this kind stands for."""
        known = cls in CONSTRUCTORS or cls in FUNCTIONS or cls in itertool.MAKERS
        return known or cls in GETTERS or cls is type(None)

    def python_type(self) -> type:
        return type(self.fn)

    def as_constant(self) -> Any:
        return self.fn

    def as_python_object(self) -> Any:
        return self.fn

    def hash_key(self, tx: Tracer) -> Hashable:
        return self.fn

    def truth(self, tx: Tracer) -> bool:
        return True

    def describe(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return getattr(self.fn, "__name__", repr(self.fn))

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        return tx.constant(self.fn == other.fn) if isinstance(other, BuiltinVariable) else None

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.fn)

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        fn = self.fn
        handler = FUNCTIONS.get(fn) or CONSTRUCTORS.get(fn)
        if handler is not None:
            return call_checked(tx, self.name, handler, args, kwargs).realize(tx)
        if fn in itertool.MAKERS:
            return itertool.make(tx, fn, args, kwargs)
        if fn in GETTERS:
            run(tx, fn, [_known(tx, arg) for arg in args], {key: _known(tx, arg) for key, arg in kwargs.items()})
            return GetterVariable(fn, list(args), kwargs)
        if fn in operators.BINARY_OPERATORS or fn in operators.UNARY_OPERATORS:
            return self._operator(tx, args, kwargs)
        if is_pure(fn):
            return call_pure(tx, fn, args, kwargs)
        if fn is type(None):
            return tx.constant(run(tx, fn, [None] * len(args), dict.fromkeys(kwargs)))
        if isinstance(getattr(fn, "__self__", None), type):  # a class method that was looked up outside
            return tx.wrap(fn.__self__, None, constant=True).get_attr(tx, fn.__name__).call(tx, args, kwargs)
        twin = _of_first_copy(fn)
        if twin is not fn:
            return tx.call_function(tx.wrap(twin, None, constant=True), args, kwargs)
        raise Unsupported(f"the builtin {self._qualified_name()}() is not traced", remedy="call it outside")

    def _operator(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        count = 2 if self.fn in operators.BINARY_OPERATORS else 1
        if kwargs or len(args) != count:
            tx.raise_exception(TypeError, f"{self.name} expected {count} arguments, got {len(args) + len(kwargs)}")
        return tx.binary(self.fn, *args) if count == 2 else tx.unary(self.fn, args[0])

    def _qualified_name(self) -> str:
        module = getattr(self.fn, "__module__", None)
        return self.name if module in (None, "builtins") else f"{module}.{self.name}"

    def get_item(self, tx: Tracer, key: VT) -> VT:
        """list[int]: a type expression."""
        key = key.look_inside(tx)
        if not isinstance(self.fn, type) or not key.is_constant():
            return super().get_item(tx, key)
        return tx.wrap(run(tx, operator.getitem, [self.fn, key.as_constant()]), None, constant=True)

    # -- attributes ------------------------------------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> VT:
        fn = self.fn
        if name == "__class__":
            return tx.wrap(type(fn), None, constant=True)
        if name in ("__mro__", "__bases__") and isinstance(fn, type):
            return tx.new_tuple([tx.wrap(base, None, constant=True) for base in getattr(fn, name)])
        if name == "__call__" and fn is not type:  # type's own is that of all classes
            return self
        if name == "__dict__" and isinstance(fn, type):
            return tx.wrap(types.MappingProxyType(dict(fn.__dict__)), None, constant=True)
        found = run(tx, getattr, [fn, name])
        if getattr(found, "__self__", None) is fn and not isinstance(fn, type):
            return InheritedMethodVariable(self, name)
        if isinstance(fn, type) and (callable(found) or hasattr(type(find_special(fn, name)), "__get__")):
            return ClassMethodOfBuiltin(self, name)
        if is_literal(found) or isinstance(found, tuple):
            return from_result(tx, found)
        if isinstance(found, type | types.BuiltinFunctionType):
            return tx.wrap(found, None, constant=True)
        raise self.refuse(f"the attribute {name!r}")

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if isinstance(self.fn, type):
            tx.raise_exception(TypeError, f"cannot set '{name}' attribute of immutable type '{self.name}'")
        tx.raise_exception(AttributeError, f"'{type(self.fn).__name__}' object has no attribute '{name}'")


def _of_first_copy(fn: Any) -> Any:
    """The function as the copy of its module has it that was imported first; each import anew makes another copy."""
    own = getattr(fn, "__self__", None)
    if type(fn) is not types.BuiltinFunctionType or type(own) is not types.ModuleType:
        return fn
    first = sys.modules.get(own.__name__)
    origins = [getattr(module.__spec__, "origin", None) for module in (own, first) if module is not None]
    found = getattr(first, fn.__name__, None)
    known = own is not first and origins[0] is not None and origins == origins[:1] * 2
    return found if known and type(found) is type(fn) else fn


def _known(tx: Tracer, tracker: VT) -> Any:
    tracker = tracker.look_inside(tx)
    return tracker.as_constant() if tracker.is_constant() else object()


class ClassMethodOfBuiltin(VariableTracker):
    """An attribute of a builtin class that is called: `list.append`, `dict.fromkeys`, `str.join`, `tuple.__new__`."""

    kind = "method"

    def __init__(self, owner: BuiltinVariable, name: str) -> None:
        super().__init__(None)
        self.owner = owner
        self.name = name
        self.value = getattr(owner.fn, name)

    def python_type(self) -> type:
        return type(self.value)

    def truth(self, tx: Tracer) -> bool:
        return True

    def hash_key(self, tx: Tracer) -> Hashable:
        return self.value

    def as_python_object(self) -> Any:
        return self.value

    def as_constant(self) -> Any:
        return self.value

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        given = getattr(other, "value", None)
        return tx.constant(self.value == given) if other.kind == "method" and given is not None else None

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("__name__", "__qualname__", "__doc__"):
            return tx.constant(getattr(self.value, name))
        if name == "__objclass__":
            return self.owner
        return super().get_attr(tx, name)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        cls, name = self.owner.fn, self.name
        if self.value in itertool.MAKERS:  # chain.from_iterable
            return itertool.make(tx, self.value, args, kwargs)
        if name == "__new__":
            return self._new(tx, args, kwargs)
        if name == "fromkeys" and issubclass(cls, dict):
            takes_keyword = "value" in kwargs and issubclass(cls, collections.OrderedDict) and len(args) == 1
            if len(kwargs) != takes_keyword or not 1 <= len(args) <= 2:
                tx.raise_exception(TypeError, f"{cls.__name__}.fromkeys() takes an iterable and a value")
            return self._fromkeys(tx, *args, *kwargs.values())
        raw = find_special(cls, name)
        if isinstance(raw, (classmethod, staticmethod, types.ClassMethodDescriptorType)) or raw is None:
            return call_pure(tx, self.value, args, kwargs)
        if not args:
            tx.raise_exception(TypeError, f"unbound method {cls.__name__}.{name}() needs an argument")
        receiver = args[0].realize(tx)
        if cls is type and receiver.kind == "class":
            return TypeMethodVariable(receiver, name, raw).call(tx, args[1:], kwargs)
        if not issubclass(receiver.python_type(), cls):
            given = receiver.python_type().__name__
            tx.raise_exception(
                TypeError, f"descriptor '{name}' for '{cls.__name__}' objects doesn't apply to a '{given}' object"
            )
        payload = getattr(receiver, "payload", None)
        if payload is None or cls is not object:
            require_own(payload or receiver, raw, name, [*args[1:], *kwargs])
        if payload is not None:
            return receiver.bind_descriptor(tx, name, raw, None).call(tx, list(args[1:]), kwargs)  # type: ignore[attr-defined]
        if name == "__iter__":
            return receiver.iterate(tx)
        return receiver.call_method(tx, name, list(args[1:]), kwargs)

    def _new(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        wanted = args[0].realize(tx)
        if wanted.kind == "builtin":
            target = wanted.as_constant()
            # __new__ of a mutable container leaves it empty; __init__ fills it
            rest = list(args[1:]) if target not in _FILLED_BY_INIT else []
            return BuiltinVariable(target).call(tx, rest, kwargs if rest else {})
        cls = wanted.as_python_object()  # type: ignore[attr-defined]
        if self.owner.fn is tuple and is_namedtuple(cls):
            return tx.new_tuple(args[1].realize(tx).unpack(tx) if len(args) > 1 else [], cls)
        return wanted.make(tx, args[1:], kwargs)  # type: ignore[attr-defined]

    def _fromkeys(self, tx: Tracer, keys: VT, value: VT | None = None) -> VT:
        made = tx.new_dict([], self.owner.fn)
        value = value if value is not None else tx.constant(None)
        for key in keys.realize(tx).unpack(tx):
            made.set_item(tx, key.realize(tx), value)
        return made

    def reconstruct(self, emit: Emitter) -> None:
        emit.load(self.owner)
        emit.load_attr(self.name)


_FILLED_BY_INIT = frozenset(cls for cls in CONSTRUCTORS if cls.__hash__ is None)


class GetterVariable(VariableTracker):
    """An operator.itemgetter, attrgetter or methodcaller."""

    kind = "getter"

    def __init__(self, cls: Any, args: list[VT], kwargs: dict[str, VT], source: Any = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if kwargs or len(args) != 1:
            tx.raise_exception(TypeError, f"{self.cls.__name__} expected 1 argument, got {len(args)}")
        obj = args[0].realize(tx)
        if self.cls is operator.methodcaller:
            name, *rest = self.args
            return obj.call_method(tx, name.realize(tx).as_constant(), rest, self.kwargs)
        found = [self._get(tx, obj, arg.realize(tx)) for arg in self.args]
        return found[0].realize(tx) if len(found) == 1 else tx.new_tuple(found)

    def _get(self, tx: Tracer, obj: VT, key: VT) -> VT:
        if self.cls is operator.itemgetter:
            return obj.get_item(tx, key)
        for name in key.as_constant().split("."):
            obj = obj.realize(tx).get_attr(tx, name)
        return obj

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.cls)
        for arg in (*self.args, *self.kwargs.values()):
            emit.load(arg)
        if self.kwargs:
            emit.call_keywords(tuple(self.kwargs), len(self.args) + len(self.kwargs))
        else:
            emit.call(len(self.args))
