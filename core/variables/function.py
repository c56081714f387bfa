"""Trackers of Python functions: those of the user's modules, those the traced code defines, and bound methods."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..guards.checks import MissingInstanceAttr
from ..guards.source import (
    AttrSource,
    ConstSource,
    DictItemSource,
    FunctionPartSource,
    InstanceAttrSource,
    MethodPartSource,
    TupleItemSource,
)
from .base import VariableTracker
from .cell import CellVariable
from .literal import run

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
PARTS = frozenset(("__code__", "__globals__", "__closure__", "__dict__", "__class__"))
DEFAULTS = {"__defaults__": tuple, "__kwdefaults__": dict}
PLACES = frozenset(types.FunctionType.__dict__)  # attributes that don't go into a function's __dict__


class CodeVariable(VariableTracker):
    """A code object; immutable, so its attributes are constants."""

    kind = "constant"

    def __init__(self, value: types.CodeType, source: Any = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return types.CodeType

    def as_constant(self) -> Any:
        return self.value

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if not hasattr(self.value, name):
            tx.raise_exception(AttributeError, f"'code' object has no attribute '{name}'")
        return tx.constant(getattr(self.value, name))


def _defaults(tx: Tracer, name: str, value: VT) -> VT | None:
    """What an assignment to __defaults__ or __kwdefaults__ leaves there."""
    value = value.realize(tx)
    if value.kind == "constant" and value.as_constant() is None:
        return None
    if not issubclass(value.python_type(), DEFAULTS[name]):
        tx.raise_exception(TypeError, f"{name} must be set to a {DEFAULTS[name].__name__} object")
    return value


class FunctionVariable(VariableTracker):
    """A Python function: what binding its arguments and running its code need."""

    kind = "function"
    code: types.CodeType

    def python_type(self) -> type:
        return types.FunctionType

    def truth(self, tx: Tracer) -> bool:
        return True

    def positional_defaults(self, tx: Tracer) -> list[VT]:
        """Trackers of `__defaults__`."""
        raise NotImplementedError

    def keyword_default(self, tx: Tracer, name: str) -> VT | None:
        """Tracker of `__kwdefaults__[name]`."""
        raise NotImplementedError

    def closure_cells(self, tx: Tracer) -> tuple[CellVariable, ...]:
        """The cells, in the order of code.co_freevars."""
        raise NotImplementedError

    def globals_dict(self) -> dict[str, Any]:
        """The real globals that the code runs in."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name that its errors give."""
        return self.code.co_qualname

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return tx.call_function(self, args, kwargs)

    def bind(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> dict[str, VT]:
        """The locals of a call, as Python binds them; TypeError is raised in the traced program."""
        code = self.code
        names = code.co_varnames
        positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
        bound: dict[str, VT] = dict(zip(names[:positional], args))
        extra = list(args[positional:])
        slot = positional + keyword_only
        star = names[slot] if code.co_flags & inspect.CO_VARARGS else None
        if star is not None:
            slot += 1
        star_star = names[slot] if code.co_flags & inspect.CO_VARKEYWORDS else None
        if extra and star is None:
            self._complain(tx, args, kwargs)
        rest: dict[str, VT] = {}
        allowed = set(names[code.co_posonlyargcount : positional + keyword_only])
        for name, value in kwargs.items():
            if name in allowed:
                if name in bound:
                    self._complain(tx, args, kwargs)
                bound[name] = value
            elif star_star is not None:
                rest[name] = value
            else:
                self._complain(tx, args, kwargs)
        if not self._fill_defaults(tx, bound, names, positional, keyword_only):
            self._complain(tx, args, kwargs)
        if star is not None:
            bound[star] = tx.new_tuple(extra)
        if star_star is not None:
            bound[star_star] = tx.new_dict([(tx.constant(key), value) for key, value in rest.items()])
        return bound

    def _fill_defaults(
        self, tx: Tracer, bound: dict[str, VT], names: tuple[str, ...], positional: int, keyword_only: int
    ) -> bool:
        """Add what the call leaves out; False where something has no default."""
        missing = [name for name in names[:positional] if name not in bound]
        if missing:
            defaults = self.positional_defaults(tx)
            by_name = dict(zip(names[positional - len(defaults) : positional], defaults))
            if not by_name.keys() >= set(missing):
                return False
            bound.update((name, by_name[name]) for name in missing)
        for name in names[positional : positional + keyword_only]:
            if name not in bound:
                value = self.keyword_default(tx, name)
                if value is None:
                    return False
                bound[name] = value
        return True

    def _complain(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> NoReturn:
        """Raise what Python says of these arguments: a function without a body that takes the same is called."""
        code = self.code
        count = code.co_argcount + code.co_kwonlyargcount
        variable = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        names = code.co_varnames[: count + variable.bit_count()]
        empty = (lambda: None).__code__
        taking = empty.replace(
            co_argcount=code.co_argcount,
            co_posonlyargcount=code.co_posonlyargcount,
            co_kwonlyargcount=code.co_kwonlyargcount,
            co_flags=empty.co_flags | variable,
            co_nlocals=len(names),
            co_varnames=names,
        )
        probe = types.FunctionType(taking, {}, code.co_name, (None,) * len(self.positional_defaults(tx)))
        probe.__qualname__ = self.name
        optional = [name for name in names[code.co_argcount : count] if self.keyword_default(tx, name) is not None]
        probe.__kwdefaults__ = dict.fromkeys(optional)
        run(tx, probe, [None] * len(args), dict.fromkeys(kwargs))
        raise AssertionError(f"the arguments of {self.name}() fit")


class UserFunctionVariable(FunctionVariable):
    """A function that exists outside the traced code."""

    def __init__(self, fn: types.FunctionType, source: Any = None) -> None:
        super().__init__(source)
        self.fn = fn
        self.code = fn.__code__
        self.written: dict[str, VT] = {}

    def as_python_object(self) -> Any:
        return self.fn

    def globals_dict(self) -> dict[str, Any]:
        return self.fn.__globals__

    def positional_defaults(self, tx: Tracer) -> list[VT]:
        if "__defaults__" in self.written:
            given = _defaults(tx, "__defaults__", self.written["__defaults__"])
            return given.unpack(tx) if given is not None else []
        source = FunctionPartSource(self._origin(), "defaults")
        return [tx.lazy(value, TupleItemSource(source, i)) for i, value in enumerate(self.fn.__defaults__ or ())]

    def keyword_default(self, tx: Tracer, name: str) -> VT | None:
        if "__kwdefaults__" in self.written:
            given = _defaults(tx, "__kwdefaults__", self.written["__kwdefaults__"])
            key = tx.constant(name)
            return given.get_item(tx, key) if given is not None and given.contains(tx, key) else None
        defaults = self.fn.__kwdefaults__ or {}
        if name not in defaults:
            return None
        source = FunctionPartSource(self._origin(), "kwdefaults")
        return tx.lazy(defaults[name], DictItemSource(source, name))

    def _origin(self) -> Any:
        """Where its parts are read: also of a function that no source reaches, the defaults and closure may change."""
        return self.source if self.source is not None else ConstSource(self.fn)

    def closure_cells(self, tx: Tracer) -> tuple[CellVariable, ...]:
        source = FunctionPartSource(self._origin(), "closure")
        return tuple(
            tx.real_cell(cell, name, TupleItemSource(source, i))
            for i, (cell, name) in enumerate(zip(self.fn.__closure__ or (), self.code.co_freevars))
        )

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in self.written:
            return self.written[name]
        if name == "__call__":
            return self
        if name == "__get__":
            return MethodWrapperVariable(self, name)
        if name not in self.fn.__dict__ and self.source is not None:
            tx.guard(self.source, MissingInstanceAttr(name))
        if not hasattr(self.fn, name):
            tx.raise_exception(AttributeError, f"'function' object has no attribute '{name}'")
        value = getattr(self.fn, name)
        source = AttrSource(self.source, name) if self.source is not None else None
        if name in self.fn.__dict__ and self.source is not None:
            source = InstanceAttrSource(self.source, name)
        return tx.wrap(value, source)

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if name in PARTS:
            raise self.refuse(f"setting attribute {name!r}")
        if name in DEFAULTS:
            _defaults(tx, name, value)
        tx.side_effects.mutated(self)
        self.written[name] = value

    def del_attr(self, tx: Tracer, name: str) -> None:
        if name in DEFAULTS:
            return self.set_attr(tx, name, tx.constant(None))
        if name in self.written or name in self.fn.__dict__:
            raise self.refuse(f"deleting attribute {name!r}")
        if self.source is not None:
            tx.guard(self.source, MissingInstanceAttr(name))
        run(tx, delattr, [lambda: None, name])  # raises what this version of Python raises
        raise self.refuse(f"deleting attribute {name!r}")

    def write_back(self, emit: Emitter) -> None:
        for name, value in self.written.items():
            emit.load(value)
            emit.load(self)
            emit.store_attr(name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.fn)


class NestedFunctionVariable(FunctionVariable):
    """A function made by the traced code (def, lambda or comprehension)."""

    def __init__(
        self,
        code: types.CodeType,
        globals_dict: dict[str, Any],
        load_globals: Any,
        defaults: VT | None,
        kwdefaults: VT | None,
        annotations: VT | None,
        closure: tuple[CellVariable, ...],
        qualname: str | None = None,
    ) -> None:
        super().__init__(None)
        self.code = code
        self._globals = globals_dict
        self.load_globals = load_globals
        self.defaults = defaults
        self.kwdefaults = kwdefaults
        self.annotations = annotations
        self.closure = closure
        self.qualname = qualname or code.co_qualname
        self.attributes: dict[str, VT] = {}

    def globals_dict(self) -> dict[str, Any]:
        return self._globals

    def positional_defaults(self, tx: Tracer) -> list[VT]:
        return self.defaults.unpack(tx) if self.defaults is not None else []

    def keyword_default(self, tx: Tracer, name: str) -> VT | None:
        if self.kwdefaults is None or not self.kwdefaults.contains(tx, tx.constant(name)):
            return None
        return self.kwdefaults.get_item(tx, tx.constant(name))

    def closure_cells(self, tx: Tracer) -> tuple[CellVariable, ...]:
        return self.closure

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in self.attributes:
            return self.attributes[name]
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__code__"):
            values = {
                "__name__": self.code.co_name,
                "__qualname__": self.qualname,
                "__module__": self._globals.get("__name__"),
                "__doc__": self.code.co_consts[0]
                if self.code.co_consts and isinstance(self.code.co_consts[0], str)
                else None,
                "__code__": self.code,
            }
            return tx.constant(values[name])
        if name == "__defaults__":
            return self.defaults or tx.constant(None)
        if name == "__kwdefaults__":
            return self.kwdefaults or tx.constant(None)
        if name == "__annotations__":
            return self._annotations(tx)
        if name == "__dict__":
            return tx.new_dict([(tx.constant(key), value) for key, value in self.own_attributes()])
        if name == "__call__":
            return self
        if name == "__get__":
            return MethodWrapperVariable(self, name)
        if name in ("__type_params__",):
            return tx.new_tuple([])
        if name == "__closure__":
            return tx.new_tuple(self.closure) if self.closure else tx.constant(None)
        if name in ("__globals__", "__builtins__"):
            raise self.refuse(f"reading attribute {name!r}")
        inherited = self.inherited(tx, name)
        if inherited is not None:
            return inherited
        tx.raise_exception(AttributeError, f"'function' object has no attribute '{name}'")

    def _annotations(self, tx: Tracer) -> VT:
        if self.annotations is None:
            self.annotations = tx.new_dict([])
        elif self.annotations.kind == "tuple":  # names and values in turn, as the compiler leaves them
            items = self.annotations.unpack(tx)
            self.annotations = tx.new_dict(list(zip(items[::2], items[1::2])))
        return self.annotations

    def own_attributes(self) -> Iterator[tuple[str, VT]]:
        """What stands in its `__dict__`: attributes that a function has no place of its own for."""
        return ((name, value) for name, value in self.attributes.items() if name not in PLACES)

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if name in PARTS:
            raise self.refuse(f"setting attribute {name!r}")
        if name == "__annotations__":
            self.annotations = value.realize(tx)
        elif name == "__defaults__":
            self.defaults = _defaults(tx, name, value)
        elif name == "__kwdefaults__":
            self.kwdefaults = _defaults(tx, name, value)
        else:
            self.attributes[name] = value

    def del_attr(self, tx: Tracer, name: str) -> None:
        if name in DEFAULTS:
            self.set_attr(tx, name, tx.constant(None))
        elif name in self.attributes and name not in PLACES:
            del self.attributes[name]
        else:
            run(tx, delattr, [lambda: None, name])  # raises what this version of Python raises
            raise self.refuse(f"deleting attribute {name!r}")

    def reconstruct(self, emit: Emitter) -> None:
        emit.make_function(self)
        if emit.is_made(self):
            return
        if self.attributes:
            emit.remember(self)
        for name, value in self.attributes.items():
            emit.copy_top()
            emit.load(value)
            emit.swap(2)
            emit.store_attr(name)


class MethodVariable(VariableTracker):
    """A bound method: a callable with its first argument."""

    kind = "method"

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if not hasattr(types.MethodType, name) and not self.function.is_constant():
            tx.raise_exception(AttributeError, f"'method' object has no attribute '{name}'")
        raise self.refuse(f"setting attribute {name!r}")

    def __init__(self, function: VT, receiver: VT, source: Any = None) -> None:
        super().__init__(source)
        self.function = function
        self.receiver = receiver

    @classmethod
    def from_value(cls, tx: Tracer, method: types.MethodType, source: Any) -> MethodVariable:
        """The tracker of a real bound method; its two parts are guarded, not the method object."""
        function = tx.wrap(method.__func__, MethodPartSource(source, "func") if source is not None else None)
        receiver = tx.wrap(method.__self__, MethodPartSource(source, "self") if source is not None else None)
        return cls(function, receiver, source)

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return tx.call_function(self.function, [self.receiver, *args], kwargs)

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        if isinstance(other, MethodVariable):
            return tx.constant(self.function is other.function and self.receiver is other.receiver)
        return None

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "__func__":
            return self.function
        if name == "__self__":
            return self.receiver
        if name == "__call__":
            return self
        inherited = self.inherited(tx, name) if name != "__doc__" else None
        return inherited if inherited is not None else self.function.get_attr(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        if self.receiver.kind == "context" and getattr(self.receiver, "entered", 0) > 0:
            emit.load_entered_exit(self.receiver)  # what an exit stack keeps of a manager
            return
        emit.push_null()
        emit.load_global_object(types.MethodType)
        emit.load(self.function)
        emit.load(self.receiver)
        emit.call(2)


class MethodWrapperVariable(VariableTracker):
    """`function.__get__`: binding a function by hand."""

    kind = "method-wrapper"

    def __init__(self, function: VT, name: str) -> None:
        super().__init__(None)
        self.function = function
        self.name = name

    def python_type(self) -> type:
        return type((lambda: 0).__get__)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        receiver = args[0].realize(tx)
        if receiver.is_constant() and receiver.as_constant() is None:
            return self.function
        return MethodVariable(self.function, receiver)
