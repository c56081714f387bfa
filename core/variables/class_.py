"""ClassVariable: a Python class of the user's or the standard library's; calling it makes an object."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..guards.checks import Equals
from ..guards.source import AttrSource, ConstSource, TypeAttrSource
from . import immutable
from .base import VariableTracker
from .container import call_checked, require_own
from .exception import ExceptionVariable
from .function import MethodVariable
from .iterator import iterator_of
from .literal import is_literal, run
from .namespace import NamespaceVariable
from .nn_module import ModuleVariable
from .object import (
    IMMUTABLE_TYPE,
    MISSING,
    BoundSlotVariable,
    UserObjectVariable,
    find_on_type,
    is_read_first,
    plain_value,
    rewritten,
)
from .partial import PartialVariable
from .slot_results import checked
from .type_method import TypeMethodVariable

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

SLOTS = (types.WrapperDescriptorType, types.MethodDescriptorType)
FIELD = types.MemberDescriptorType
LITERALS = (int, float, complex, str, bytes)
PAYLOADS = (
    *(collections.OrderedDict, collections.defaultdict, dict, list, set, frozenset, tuple, collections.deque),
    *LITERALS,
)


class _Probe:
    chained = classmethod(property(lambda cls: True))  # type: ignore[arg-type]


CHAINED = _Probe.chained is True  # whether this Python's classmethod asks what it wraps, as those before 3.13 do


CONSTRUCTORS = ("from_bytes", "fromhex")
SINGLETONS: dict[type, Any] = {type(value): value for value in (Ellipsis, NotImplemented)}


def _is_partial(cls: type) -> bool:
    """Whether a class is functools.partial, that of another copy of its module, or adds nothing to such a one."""
    if cls.__base__ is not object and not cls.__dict__.keys() - {"__module__", "__doc__", "__dict__", "__weakref__"}:
        return cls.__base__ is functools.partial or cls.__base__ is not None and _is_partial(cls.__base__)
    return cls.__name__ == "partial" and cls.__module__ == "functools" and isinstance(cls.__dict__.get("func"), FIELD)


def payload_base(cls: type) -> type | None:
    """The builtin container that a class extends, None for plain classes."""
    return next((base for base in cls.__mro__ if base in PAYLOADS), None)


def new_object(cls: type) -> UserObjectVariable:
    """An object of a plain class that the traced code makes."""
    if issubclass(cls, torch.nn.Module):
        return ModuleVariable(cls)
    return NamespaceVariable(cls) if issubclass(cls, types.SimpleNamespace) else UserObjectVariable(cls)


class ClassVariable(VariableTracker):
    """A class."""

    kind = "class"

    def __init__(self, cls: type, source: Any = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.written: dict[str, VT] = {}

    def python_type(self) -> type:
        return type(self.cls)

    def as_python_object(self) -> Any:
        return self.cls

    def as_constant(self) -> Any:
        return self.cls

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            raw, _ = find_on_type(type(self.cls), name)
            if raw is not MISSING:
                return tx.truth(checked(tx, name, type(self.cls), self.bind_special(tx, raw).call(tx, [], {})))
        return True

    def bind_special(self, tx: Tracer, raw: Any) -> VT:
        """A method that the metaclass defines, bound to the class."""
        if not isinstance(raw, types.FunctionType):
            raise self.refuse(f"the {type(raw).__name__} of a metaclass")
        return MethodVariable(tx.wrap(raw, None, constant=True), self)

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        raw, _ = find_on_type(type(self.cls), name)
        if isinstance(raw, types.FunctionType):
            return MethodVariable(tx.wrap(raw, None, constant=True), self)
        if isinstance(raw, SLOTS) and raw.__objclass__ is type:
            return TypeMethodVariable(self, name, raw)
        return super().lookup_special(tx, name)

    # -- attributes ------------------------------------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in self.written:
            return self.written[name].realize(tx)
        inherited = rewritten(tx, self.cls, name)
        if inherited is not None:
            return plain_value(tx, self, name, inherited)
        custom, _ = find_on_type(type(self.cls), "__getattribute__")
        if isinstance(custom, types.FunctionType):
            return tx.call_function(tx.wrap(custom, None, constant=True), [self, tx.constant(name)])
        return self.plain_get_attr(tx, name)

    def plain_get_attr(self, tx: Tracer, name: str, fallback: bool = True) -> VT:
        """type.__getattribute__, then __getattr__ of the metaclass."""
        meta, _ = find_on_type(type(self.cls), name)
        raw, _ = find_on_type(self.cls, name)
        if meta is not MISSING and (isinstance(meta, property) or type(self.cls) is not type):
            found = self._metaclass_attribute(tx, name, meta, raw)
            if found is not None:
                return found
        source = TypeAttrSource(self.source, name) if self.source is not None else None
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            found = getattr(self.cls, name)
            if not self.cls.__flags__ & IMMUTABLE_TYPE and not tx.is_unreal(self.cls) and is_literal(found):
                tx.guard(AttrSource(ConstSource(self.cls, self.cls.__qualname__), name), Equals(found))
            return tx.constant(found)
        if name in ("__mro__", "__bases__"):
            return tx.new_tuple([tx.wrap(base, None, constant=True) for base in getattr(self.cls, name)])
        if name == "__class__":
            return tx.wrap(type(self.cls), None, constant=True)
        if name == "__dict__":
            return tx.wrap(types.MappingProxyType(dict(self.cls.__dict__)), None, constant=True)
        if raw is MISSING:
            return self._missing(tx, name, meta, fallback)
        return self._bind(tx, name, raw, source)

    def _metaclass_attribute(self, tx: Tracer, name: str, meta: Any, raw: Any) -> VT | None:
        if isinstance(meta, property):
            if isinstance(meta.fget, types.FunctionType):
                return tx.call_function(tx.wrap(meta.fget, None, constant=True), [self])
            return tx.constant(getattr(self.cls, name))
        getter, _ = find_on_type(type(meta), "__get__")
        own = raw if raw is not MISSING and not is_read_first(meta) else MISSING
        if own is not MISSING:
            return None
        if isinstance(meta, types.FunctionType):
            return MethodVariable(tx.wrap(meta, None, constant=True), self)
        if isinstance(getter, types.FunctionType):
            kind = tx.wrap(type(self.cls), None, constant=True)
            place = TypeAttrSource(ConstSource(type(self.cls)), name)
            return tx.call_function(tx.wrap(getter, None, constant=True), [tx.wrap(meta, place), self, kind])
        if isinstance(meta, classmethod):
            return MethodVariable(
                tx.wrap(meta.__func__, None, constant=True), tx.wrap(type(self.cls), None, constant=True)
            )
        if isinstance(meta, staticmethod):
            return tx.wrap(meta.__func__, None, constant=True)
        if getter is MISSING:
            return tx.wrap(meta, TypeAttrSource(ConstSource(type(self.cls)), name))
        return None

    def _missing(self, tx: Tracer, name: str, meta: Any, fallback: bool) -> VT:
        if isinstance(meta, SLOTS) and meta.__objclass__ is type:
            return TypeMethodVariable(self, name, meta)
        getter, _ = find_on_type(type(self.cls), "__getattr__")
        python_getter = isinstance(getter, types.FunctionType)
        if python_getter and getter.__module__ == "enum" and name in self.cls.__members__:  # type: ignore[attr-defined]
            return tx.wrap(getattr(self.cls, name), None, constant=True)
        if not python_getter and hasattr(self.cls, name):  # supplied by the metaclass in C
            value = getattr(self.cls, name)
            if callable(value) and not isinstance(value, type):
                return UnboundVariable(self, name, value)
            return tx.wrap(value, None, constant=True)
        if python_getter and fallback:
            return tx.call_function(tx.wrap(getter, None, constant=True), [self, tx.constant(name)])
        tx.raise_exception(AttributeError, f"type object '{self.cls.__name__}' has no attribute '{name}'")

    def _bind(self, tx: Tracer, name: str, raw: Any, source: Any) -> VT:
        if isinstance(raw, staticmethod):
            return tx.wrap(raw.__func__, None, constant=True)
        if isinstance(raw, classmethod):
            if CHAINED and isinstance(raw.__func__, property):
                return tx.call_function(tx.wrap(raw.__func__.fget, None, constant=True), [self])
            return MethodVariable(tx.wrap(raw.__func__, None, constant=True), self)
        if isinstance(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return UnboundVariable(self, name, raw)
        if isinstance(raw, (types.ClassMethodDescriptorType, types.BuiltinFunctionType)) or name == "__new__":
            if isinstance(raw, types.FunctionType):
                return tx.wrap(raw, source)
            return UnboundVariable(self, name, getattr(self.cls, name))
        if isinstance(raw, (types.FunctionType, property, types.MemberDescriptorType)):
            return tx.wrap(raw, source)
        getter, _ = find_on_type(type(raw), "__get__")
        if isinstance(getter, types.FunctionType) and getter.__module__.startswith("torch."):
            return tx.wrap(getter(raw, None, self.cls), None, constant=True)  # what torch's own give without an object
        if isinstance(getter, types.FunctionType):
            none = tx.constant(None)
            return tx.call_function(tx.wrap(getter, None, constant=True), [tx.wrap(raw, source), none, self])
        if source is None and not tx.is_unreal(self.cls) and not isinstance(self.cls, enum.EnumMeta):
            source = TypeAttrSource(ConstSource(self.cls), name)
        return tx.wrap(getattr(self.cls, name), source)

    # -- enums are containers of their members ---------------------------------------------------------------------

    def _members(self, tx: Tracer) -> VT:
        if not isinstance(self.cls, enum.EnumMeta):
            tx.raise_exception(TypeError, f"'{type(self.cls).__name__}' object is not iterable")
        return tx.new_tuple([tx.wrap(member, None, constant=True) for member in self.cls])

    def get_item(self, tx: Tracer, key: VT) -> VT:
        """cls[key]; generics with their parameters given are made, and kept, by the typing module."""
        own, _ = find_on_type(type(self.cls), "__getitem__")
        if isinstance(own, types.FunctionType):
            return self.bind_special(tx, own).call(tx, [key], {})
        maker, _ = find_on_type(self.cls, "__class_getitem__")
        key = key.look_inside(tx)
        if find_on_type(type(self.cls), "__getitem__")[0] is MISSING and isinstance(maker, classmethod):
            function = maker.__func__
            generic = isinstance(function, type) and issubclass(function, types.GenericAlias)
            if (generic or function.__module__ in ("typing", "typing_extensions")) and key.is_constant():
                return tx.wrap(run(tx, operator.getitem, [self.cls, key.as_constant()]), None, constant=True)
        if maker is not MISSING:
            return self.get_attr(tx, "__class_getitem__").call(tx, [key], {})
        if find_on_type(type(self.cls), "__getitem__")[0] is MISSING:
            tx.raise_exception(TypeError, f"type '{self.cls.__name__}' is not subscriptable")
        return super().get_item(tx, key)

    def _own(self, tx: Tracer, name: str) -> VT | None:
        """A special method that a metaclass of the program's defines."""
        raw, _ = find_on_type(type(self.cls), name)
        if isinstance(raw, types.FunctionType) and raw.__module__ != "enum":
            return MethodVariable(tx.wrap(raw, None, constant=True), self)
        return None

    def iterate(self, tx: Tracer) -> VT:
        own = self._own(tx, "__iter__")
        return own.call(tx, [], {}).realize(tx) if own is not None else self._members(tx).iterate(tx)

    def length(self, tx: Tracer) -> VT:
        own = self._own(tx, "__len__")
        return own.call(tx, [], {}) if own is not None else self._members(tx).length(tx)

    def contains(self, tx: Tracer, item: VT) -> bool:
        own, _ = find_on_type(type(self.cls), "__contains__")  # of enums, too: what is no member is its affair
        if isinstance(own, types.FunctionType):
            return tx.truth(self.bind_special(tx, own).call(tx, [item], {}))
        return self._members(tx).contains(tx, item)

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        setter, _ = find_on_type(type(self.cls), "__setattr__")
        if isinstance(setter, types.FunctionType):
            tx.call_function(tx.wrap(setter, None, constant=True), [self, tx.constant(name), value])
            return
        self.plain_set_attr(tx, name, value)

    def plain_set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        """type.__setattr__."""
        if self.cls.__flags__ & IMMUTABLE_TYPE:
            tx.raise_exception(TypeError, f"cannot set {name!r} attribute of immutable type {self.cls.__name__!r}")
        if type(self.cls).__setattr__ is not type.__setattr__:
            raise self.refuse(f"setting attribute {name!r}")
        tx.side_effects.mutated(self)
        self.written[name] = value

    def write_back(self, emit: Emitter) -> None:
        for name, value in self.written.items():
            emit.load(value)
            emit.load(self)
            emit.store_attr(name)

    # -- calls -----------------------------------------------------------------------------------------------------

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        meta_call, _ = find_on_type(type(self.cls), "__call__")
        if isinstance(meta_call, types.FunctionType):
            return tx.call_function(tx.wrap(meta_call, None, constant=True), [self, *args], kwargs)
        return self.instantiate(tx, args, kwargs)

    def instantiate(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """type.__call__: __new__, then __init__."""
        new, _ = find_on_type(self.cls, "__new__")
        maker = new.__func__ if isinstance(new, staticmethod) else new
        if isinstance(maker, types.FunctionType):
            instance = tx.call_function(tx.wrap(maker, None, constant=True), [self, *args], kwargs)
            if not issubclass(instance.python_type(), self.cls):
                return instance
        else:
            instance = self.make(tx, args, kwargs)
        init, _ = find_on_type(self.cls, "__init__")
        if isinstance(init, types.FunctionType):
            result = tx.call_function(tx.wrap(init, None, constant=True), [instance, *args], kwargs)
            if not (result.is_constant() and result.as_constant() is None):
                tx.raise_exception(TypeError, "__init__() should return None")
        elif isinstance(instance, NamespaceVariable):
            instance.init_base(tx, args, kwargs)
        elif isinstance(instance, UserObjectVariable) and instance.payload is not None and init is not object.__init__:
            BoundSlotVariable(instance, "__init__", init).call(tx, args, kwargs)
        elif isinstance(instance, UserObjectVariable) and init is object.__init__ and (args or kwargs):
            if new is object.__dict__["__new__"]:
                tx.raise_exception(TypeError, f"{self.cls.__name__}() takes no arguments")
        return instance

    def make(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """The object that the builtin __new__ at the end of the MRO gives."""
        if hasattr(self.cls, "__del__"):
            raise self.refuse("making an object that runs code when it goes", remedy="make it outside the function")
        if issubclass(self.cls, BaseException):
            return self._exception(tx, list(args), kwargs)
        if getattr(self.cls, "__abstractmethods__", None):
            run(tx, object.__new__, [self.cls])  # raises what this version of Python raises
        if issubclass(self.cls, type):
            return tx.make_class(self.cls, args, kwargs)
        base = payload_base(self.cls)
        if kwargs and base in (tuple, frozenset) and find_on_type(self.cls, "__init__")[0] is object.__init__:
            tx.raise_exception(TypeError, f"{base.__name__}() takes no keyword arguments")
        if self.cls in SINGLETONS:
            return tx.constant(run(tx, self.cls, [None] * len(args), dict.fromkeys(kwargs)))
        if base is None and _is_partial(self.cls) and args:
            partial = PartialVariable.make(tx, args[0].realize(tx), list(args[1:]), kwargs)
            partial.cls = self.cls
            return partial
        if base is None:
            if self._builtin_new() not in (object.__new__, types.SimpleNamespace.__new__):
                raise self.refuse("making an object of a class written in C")
            if (args or kwargs) and self._builtin_new() is object.__new__:
                self._refuse_arguments(tx)
            return new_object(self.cls)
        return UserObjectVariable(self.cls, payload=self._payload(tx, base, args))

    def _refuse_arguments(self, tx: Tracer) -> None:
        """object.__new__ takes arguments only for an __init__ that will read them."""
        if find_on_type(self.cls, "__new__")[0] is not object.__dict__["__new__"]:
            text = "object.__new__() takes exactly one argument (the type to instantiate)"
            tx.raise_exception(TypeError, text)
        if find_on_type(self.cls, "__init__")[0] is object.__init__:
            tx.raise_exception(TypeError, f"{self.cls.__name__}() takes no arguments")

    def _exception(self, tx: Tracer, args: list[VT], kwargs: dict[str, VT]) -> VT:
        if issubclass(self.cls, BaseExceptionGroup):
            raise self.refuse("making a group of exceptions")
        cls, kept = self.cls, args
        if issubclass(cls, OSError) and len(args) > 1:
            values = [arg.look_inside(tx).as_constant() for arg in args]
            real = run(tx, OSError, values)  # picks a subclass by the error's number, and keeps two arguments
            cls = type(real) if cls is OSError else cls
            kept = [tx.constant(value) for value in real.args]
        made = ExceptionVariable(cls, kept, kwargs)
        made.given = (args, kwargs)
        return made

    def _builtin_new(self) -> Any:
        """The __new__ at the end of the way: the first that is written in C."""
        for base in self.cls.__mro__:
            new = base.__dict__.get("__new__")
            if new is not None and not isinstance(getattr(new, "__func__", new), types.FunctionType):
                return new
        return object.__new__

    def _payload(self, tx: Tracer, base: type, args: Sequence[VT]) -> VT:
        if base in LITERALS:
            value = tx.wrap(base, None, constant=True).call(tx, args, {}).realize(tx)
            if value.kind != "constant":
                raise self.refuse("making a number that only a run can tell")
            return value
        if issubclass(base, dict):
            return tx.new_dict([], base)
        if base is list:
            return tx.new_list([])
        if base is tuple:
            return tx.new_tuple(args[0].unpack(tx) if args else [], tuple)
        if base in (set, frozenset):
            return tx.new_set(args[0].unpack(tx) if args and base is frozenset else [], base)
        raise self.refuse(f"making a subclass of {base.__name__}")

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.cls)


class UnboundVariable(VariableTracker):
    """A C method of a class, not bound: object.__setattr__, dict.update, object.__new__."""

    kind = "method"

    def __init__(self, owner: ClassVariable, name: str, value: Any) -> None:
        super().__init__(None)
        self.owner = owner
        self.name = name
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def as_python_object(self) -> Any:
        return self.value

    def as_constant(self) -> Any:
        return self.value

    def hash_key(self, tx: Tracer) -> Any:
        return self.value

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if self.name == "__new__":
            cls = args[0].realize(tx)
            if not isinstance(cls, ClassVariable):
                raise self.refuse("a call")
            return cls.make(tx, args[1:], kwargs)
        if isinstance(self.value, (types.BuiltinFunctionType, types.BuiltinMethodType)):
            if self.name == "__init_subclass__":
                return tx.constant(None)
            if self.name == "fromkeys" and issubclass(self.owner.cls, dict):
                return call_checked(tx, "fromkeys", self._from_keys, args, kwargs)
            if not kwargs and self._is_pure() and all(arg.is_constant() for arg in args):
                return self._run(tx, [arg.as_constant() for arg in args])
            raise self.refuse("a call")
        if not args:
            tx.raise_exception(TypeError, f"unbound method {self.owner.cls.__name__}.{self.name}() needs an argument")
        receiver = args[0].realize(tx)
        if isinstance(receiver, UserObjectVariable):
            return BoundSlotVariable(receiver, self.name, self.value).call(tx, args[1:], kwargs)
        if self.name == "__setattr__":
            receiver.set_attr(tx, args[1].as_constant(), args[2])
            return tx.constant(None)
        if self.name == "__getattribute__":
            return receiver.get_attr(tx, args[1].as_constant())
        if isinstance(self.value, SLOTS):
            require_own(receiver, self.value, self.name, [*args[1:], *kwargs])
        return receiver.call_method(tx, self.name, list(args[1:]), kwargs)

    def _from_keys(self, tx: Tracer, iterable: VT, value: VT | None = None) -> VT:
        """As dict.fromkeys makes it for a class that extends dict: an object of the class, filled item by item."""
        made = tx.call_function(self.owner, [], {}).realize(tx)
        for key in iterator_of(tx, iterable).unpack(tx):
            made.set_item(tx, key.realize(tx), value if value is not None else tx.constant(None))
        return made

    def _run(self, tx: Tracer, values: list[Any]) -> VT:
        maker = self._maker()
        if maker is not self.owner.cls and self.name in CONSTRUCTORS:  # which end in a call of the class
            made = run(tx, getattr(maker, self.name), values)
            return tx.call_function(self.owner, [tx.constant(made)], {})
        return tx.wrap(run(tx, self.value, values), None, constant=True)

    def _maker(self) -> type:
        return next((base for base in self.owner.cls.__mro__ if self.name in base.__dict__), object)

    def _is_pure(self) -> bool:
        """Whether the answer depends on the arguments alone, unlike that of datetime.now()."""
        maker = self._maker()
        return maker.__module__ == "builtins" or maker in immutable.MOMENTS and self.name in immutable.PURE_MAKERS

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("__name__", "__qualname__", "__doc__", "__objclass__"):
            return tx.wrap(run(tx, getattr, [self.value, name]), None, constant=True)
        return super().get_attr(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load(self.owner)
        emit.load_attr(self.name)
