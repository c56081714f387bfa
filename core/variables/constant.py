"""ConstantVariable: a value known while tracing, with operations that run for real."""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from ..guards.checks import Equals, Is, MissingKey
from ..guards.source import AttrSource, ConstSource, DictItemSource, InstanceDictSource
from .base import BuiltinMethodVariable, NotConstant, VariableTracker
from .container import Cursor, SequenceCursor, as_index, as_slice, load_class
from .literal import fold, is_literal, is_torch_literal, run

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
SINGLETONS = (type(None), bool, type(Ellipsis), type(NotImplemented))


def from_value(tx: Tracer, value: Any, source: Any) -> ConstantVariable:
    """The tracker of a real literal; its type and value are guarded."""
    tx.guard(source, check_of(value))
    return ConstantVariable(value, source)


def check_of(value: Any) -> Is | Equals:
    """What makes a literal part of the entry."""
    single = type(value) in SINGLETONS or isinstance(value, enum.Enum) or is_torch_literal(value)
    return Is(value) if single and type(value).__name__ != "device" else Equals(value)


class ConstantVariable(VariableTracker):
    """A literal: see `literal.is_literal`."""

    kind = "constant"
    unread = False

    def __init__(self, value: Any, source: Any = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def as_constant(self) -> Any:
        return self.value

    def as_proxy(self) -> Any:
        return self.value

    def describe(self) -> str:
        return f"{self.source.name()} ({self.value!r})" if self.source is not None else repr(self.value)

    def hash_key(self, tx: Tracer) -> Hashable:
        if isinstance(self.value, enum.Enum) and _python_function(type(self.value), "__hash__", enum.Enum):
            raise self.refuse("hashing by a __hash__ of the enum")
        return self.value

    def truth(self, tx: Tracer) -> bool:
        if _python_function(type(self.value), "__bool__"):
            return tx.truth(self.call_method(tx, "__bool__", [], {}))
        return bool(self.value)

    def length(self, tx: Tracer) -> VT:
        return fold(tx, len, [self.value])

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        if isinstance(other, ConstantVariable):
            return tx.constant(self.value == other.value)
        return None

    # -- attributes ------------------------------------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> VT:
        value, cls = self.value, type(self.value)
        if name == "__class__":
            return tx.wrap(cls, None, constant=True)
        if isinstance(value, enum.Enum):
            return self._enum_attr(tx, name)
        found = run(tx, getattr, [value, name])
        if is_literal(found):
            return tx.constant(found)
        if callable(found):
            return BuiltinMethodVariable(self, name)
        raise self.refuse(f"the attribute {name!r}")

    def _enum_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("name", "_name_"):
            return tx.constant(self.value.name)
        cls = type(self.value)
        raw = inspect.getattr_static(cls, name, None)
        if isinstance(raw, types.FunctionType):
            return BuiltinMethodVariable(self, name)
        if isinstance(raw, property) and isinstance(raw.fget, types.FunctionType) and name not in ("value", "_value_"):
            if raw.fget.__module__ != "enum":
                return tx.call_function(tx.wrap(raw.fget, None, constant=True), [self])
        self._guard_enum_attr(tx, cls, "_value_" if name == "value" else name)
        found = run(tx, getattr, [self.value, name])
        if is_literal(found):
            return tx.constant(found)
        if inspect.isroutine(found) and not isinstance(found, types.FunctionType):
            return BuiltinMethodVariable(self, name)
        source = self.source if self.source is not None else ConstSource(self.value, str(self.value))
        return tx.wrap(found, AttrSource(source, name))

    def _guard_enum_attr(self, tx: Tracer, cls: type, name: str) -> None:
        """Members are known by identity: what they and their class hold may change."""
        if tx.is_unreal(cls):
            return
        tx.wrap(cls, None, constant=True)
        own = InstanceDictSource(ConstSource(self.value, f"{cls.__name__}.{self.value._name_}"))
        held = vars(self.value).get(name, self)
        if held is self:
            tx.guard(own, MissingKey(name))
        elif is_literal(held):
            tx.guard(DictItemSource(own, name), check_of(held))

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        cls = type(self.value)
        if isinstance(self.value, enum.Enum):
            raise self.refuse(f"setting attribute {name!r}")
        run(tx, setattr, [self.value, name, None])  # raises: literals take no attributes
        tx.raise_exception(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'")

    def del_attr(self, tx: Tracer, name: str) -> None:
        self.set_attr(tx, name, self)

    # -- methods ---------------------------------------------------------------------------------------------------

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if _python_function(type(self.value), "__call__"):
            return self.call_method(tx, "__call__", args, kwargs)
        tx.raise_exception(TypeError, f"'{type(self.value).__name__}' object is not callable")

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        value = self.value
        function = _python_function(type(value), name)
        if function is not None and getattr(function, "__module__", "") != "enum":
            return tx.call_function(tx.wrap(function, None, constant=True), [self, *args], kwargs)
        if isinstance(value, enum.Enum) and name in getattr(value, "__dict__", ()):
            return tx.call_function(self.get_attr(tx, name), args, kwargs)
        if name == "__iter__":
            return self.iterate(tx)
        if name == "__hash__":
            raise self.refuse("hash()")
        if type(value).__name__ == "device" and is_torch_literal(value) and name in ("__enter__", "__exit__"):
            return tx.enter_device(self) if name == "__enter__" else tx.leave_mode()
        if is_torch_literal(value) and name in ("__enter__", "__exit__", "__call__"):
            raise self.refuse("use as a context manager", "pass device= to the functions that make tensors")
        if name == "join" and isinstance(value, (str, bytes)) and len(args) == 1 and not kwargs:
            iterable = args[0].realize(tx)
            if iterable.lookup_special(tx, "__iter__") is None and iterable.lookup_special(tx, "__getitem__") is None:
                tx.raise_exception(TypeError, "can only join an iterable")
            return fold(tx, value.join, [_constants(tx, iterable)])
        if name == "__mod__" and isinstance(value, (str, bytes)):
            return self._percent(tx, args[0].realize(tx))
        if name == "format" and type(value) is str and not kwargs:
            later = tx.text_later(str.format, [self, *args])
            if later is not None:
                return later
        if name == "__format__" and args and args[0].realize(tx).kind == "constant":
            return fold(tx, format, [value, args[0].realize(tx).as_constant()])
        method = run(tx, getattr, [value, name])
        take = _shown if name in ("format", "format_map") else _argument
        real = [take(tx, arg) for arg in args]
        if name == "format" and isinstance(value, str):  # what the text does not name is not looked at
            kwargs = {key: arg for key, arg in kwargs.items() if key in value}
        keywords = {key: take(tx, arg) for key, arg in kwargs.items()}
        return fold(tx, method, real, keywords)

    def _percent(self, tx: Tracer, operand: VT) -> VT:
        payload = getattr(operand, "payload", None)
        if payload is not None and payload.kind == "tuple":
            operand = payload  # Python takes the items of any tuple, whatever its class makes of iteration
        return fold(tx, type(self.value).__mod__, [self.value, _shown(tx, operand)])

    def get_item(self, tx: Tracer, key: VT) -> VT:
        value = self.value
        if not isinstance(value, (str, bytes)):
            tx.raise_exception(TypeError, f"'{type(value).__name__}' object is not subscriptable")
        key = key.realize(tx)
        if key.kind == "slice":
            return fold(tx, value.__getitem__, [as_slice(tx, key)])
        unit = "string" if isinstance(value, str) else "byte"
        return fold(tx, value.__getitem__, [as_index(tx, key, _INDEX_TEXT[unit])])

    def set_item(self, tx: Tracer, key: VT, value: VT) -> None:
        tx.raise_exception(TypeError, f"'{type(self.value).__name__}' object does not support item assignment")

    def del_item(self, tx: Tracer, key: VT) -> None:
        tx.raise_exception(TypeError, f"'{type(self.value).__name__}' object doesn't support item deletion")

    def contains(self, tx: Tracer, item: VT) -> bool:
        if _python_function(type(self.value), "__contains__") is not None:
            return tx.truth(self.call_method(tx, "__contains__", [item], {}))
        if not isinstance(self.value, (str, bytes)):
            tx.raise_exception(TypeError, f"argument of type '{type(self.value).__name__}' is not iterable")
        item = item.realize(tx)
        if not item.is_constant():
            needed = "string" if isinstance(self.value, str) else "bytes"
            kind = item.python_type().__name__
            tx.raise_exception(TypeError, f"'in <{needed}>' requires {needed} as left operand, not {kind}")
        return bool(run(tx, self.value.__contains__, [item.as_constant()]))

    def iterate(self, tx: Tracer) -> VT:
        value = self.value
        if isinstance(value, enum.Flag):
            return tx.new_tuple([tx.constant(member) for member in value]).iterate(tx)
        if not isinstance(value, (str, bytes)):
            tx.raise_exception(TypeError, f"'{type(value).__name__}' object is not iterable")

        def take(tx: Tracer, index: int) -> VT | None:
            return tx.constant(value[index]) if index < len(value) else None

        cursor: Cursor = SequenceCursor(self, take)
        return tx.new_iterator(cursor, type(iter(value)))

    def unpack(self, tx: Tracer) -> list[VT]:
        if isinstance(self.value, (str, bytes)):
            return [tx.constant(item) for item in self.value]
        return super().unpack(tx)

    def reconstruct(self, emit: Emitter) -> None:
        if isinstance(self.value, enum.Enum) and self.value.name is not None:
            load_class(emit, type(self.value))
            emit.load_attr(self.value.name)
        else:
            emit.load_const(self.value)


_INDEX_TEXT = {
    "string": "string indices must be integers, not '{}'",
    "byte": "byte indices must be integers or slices, not {}",
}


def _python_function(cls: type, name: str, but: type | None = None) -> types.FunctionType | None:
    """The Python function that a class (other than `but`) defines for `name`; builtin types have none."""
    if cls.__flags__ & (1 << 9) == 0:  # not a heap type: no Python code in it
        return None
    for base in cls.__mro__:
        if name in base.__dict__:
            found = base.__dict__[name]
            return found if isinstance(found, types.FunctionType) and base is not but else None
    return None


def _argument(tx: Tracer, arg: VT) -> Any:
    """The value of an argument to a method of a literal."""
    arg = arg.look_inside(tx)
    if arg.kind == "symbolic":
        arg = arg.specialize(tx)  # type: ignore[attr-defined]
    payload = getattr(arg, "payload", None)
    if payload is not None and payload.kind == "constant":
        return payload.as_constant()  # C code reads what the object extends
    try:
        return arg.as_constant()
    except NotConstant:
        raise Unsupported(
            f"{arg.describe()} is an argument of a method of a constant",
            remedy="pass numbers, strings or containers of them",
        ) from None


def _shown(tx: Tracer, arg: VT) -> Any:
    """The value of an argument that is made a text."""
    arg = arg.look_inside(tx)
    for item in (arg, *(arg.unpack(tx) if arg.kind in ("list", "tuple") else ())):
        cls = item.realize(tx).python_type()
        if getattr(item.realize(tx), "payload", None) is not None and any(
            _python_function(cls, name) for name in ("__format__", "__str__", "__repr__")
        ):
            raise item.realize(tx).refuse("formatting by a method of the class", remedy="format str() of it")
    return _argument(tx, arg)


def _constants(tx: Tracer, iterable: VT) -> list[Any]:
    return [_argument(tx, item) for item in iterable.unpack(tx)]
