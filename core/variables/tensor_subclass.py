"""Tensors of a program's own classes: what their classes do with torch's functions is traced, on plain tensors.

Enters: a tensor of a subclass of torch.Tensor without a __torch_dispatch__ of its own, or an object whose class has a
__torch_function__, among the arguments of a function of torch. Leaves: what the class's __torch_function__ returns.
The graph holds plain tensors: the class is put on a result where Python gets it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..errors import Unsupported
from ..guards.checks import Is, MissingInstanceAttr, TypeIs
from ..guards.source import CallSource, ConstSource, InstanceAttrSource, TypeAttrSource
from .base import (
    BuiltinMethodVariable,
    KnownVariable,
    VariableTracker,
    find_special,
    has_special,
    store_attributes,
    write_attributes,
)
from .class_attribute import MISSING, bound_attribute, own_attribute

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

KIND = "tensor_subclass"
_DISABLED = torch._C._disabled_torch_function_impl
READ_FIRST = (types.GetSetDescriptorType, property)  # comes before an attribute of the object
_DEFAULT = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
_TORCH_CLASSES = frozenset(torch.Tensor.__mro__)
# what is not the same for a tensor and for the plain alias of it that the graph has
_OF_THE_OBJECT = frozenset(
    "grad is_leaf grad_fn retains_grad output_nr names _base _version _backward_hooks _post_accumulate_grad_hooks "
    "_cdata _grad _grad_fn __dict__".split()
)
_CHANGE_THE_OBJECT = frozenset(
    "t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ resize_ resize_as_ set_ detach_ requires_grad_ "
    "rename_ retain_grad share_memory_ register_hook register_post_accumulate_grad_hook backward _is_view is_set_to "
    "__deepcopy__ __reduce_ex__ __setstate__".split()
)


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """A torch.Tensor on the memory, and with the history, of a tensor of a subclass."""
    return tensor.as_subclass(torch.Tensor)


def of_class(tensor: torch.Tensor, cls: type) -> Any:
    """What `plain` takes away is put on again."""
    return tensor.as_subclass(cls)


def functions_on(_: Any) -> bool:
    """Whether classes are asked about torch's functions here and now."""
    return torch._C._is_torch_function_enabled()


def is_traced(value: torch.Tensor) -> bool:
    """True for a tensor whose class may be taken apart here."""
    cls = type(value)
    own_dispatch = getattr(cls, "__torch_dispatch__", None) is not torch.Tensor.__torch_dispatch__
    return (
        not own_dispatch and not isinstance(value, (torch.nn.Parameter, torch.nn.Buffer)) and not plain(value).is_nested
    )


def class_takes_over(cls: type) -> bool:
    """True for a class with a __torch_function__, Tensor itself aside; a subclass that inherits it counts too."""
    own = getattr(cls, "__torch_function__", None)
    return cls is not torch.Tensor and own is not None and own is not _DISABLED


def takes_over(tracker: VT) -> bool:
    """True when a function of torch asks the object's class what to do."""
    return tracker.kind not in ("tensor", "constant", "symbolic") and class_takes_over(tracker.python_type())


class ClassDecides(Unsupported):
    """An argument's class decides what the call does; see `dispatch`."""


class SubclassTensorVariable(VariableTracker):
    """A tensor of a subclass. `inner` is the tracker of the plain tensor in the graph."""

    kind = KIND
    mutable = True

    def __init__(self, inner: VT, cls: type, real: Any = None, source: Any = None) -> None:
        super().__init__(source)
        self.inner = inner
        self.cls = cls
        self.real = real
        self.attributes: dict[str, VT] = {}

    def python_type(self) -> type:
        return self.cls

    def as_proxy(self) -> Any:
        if self.cls.__torch_function__ is _DISABLED:  # type: ignore[attr-defined]
            return self.inner.as_proxy()
        raise ClassDecides(
            f"{self.describe()} takes the call over", remedy="use plain tensors in the compiled function"
        )

    def truth(self, tx: Tracer) -> bool:
        return tx.truth(self.call_method(tx, "__bool__", [], {}))

    def hash_key(self, tx: Tracer) -> Any:
        if self.cls.__hash__ is torch.Tensor.__hash__:
            return self
        raise self.refuse("hashing")

    # -- attributes ------------------------------------------------------------------------------------------------

    def _own(self, name: str) -> Any:
        """What the program's classes define; torch's own are left out."""
        return own_attribute(self.cls, name, _TORCH_CLASSES)

    def _bound(self, tx: Tracer, name: str) -> VT | None:
        raw = self._own(name)
        if raw is MISSING:
            return None
        bound = bound_attribute(tx, self, self.cls, name, raw)
        if bound is None:
            raise self.refuse(f"the descriptor behind attribute {name!r}")
        return bound

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in self.attributes:
            return self.attributes[name]
        if find_special(self.cls, "__getattr__") is not None or self._own("__getattribute__") is not MISSING:
            raise self.refuse(f"reading attribute {name!r} of a class that answers for itself")
        if self.real is not None and self.source is not None and name in self.real.__dict__:
            return tx.wrap(self.real.__dict__[name], InstanceAttrSource(self.source, name))
        if self.source is not None and not isinstance(getattr(torch.Tensor, name, None), READ_FIRST):
            tx.guard(self.source, MissingInstanceAttr(name))
        own = self._bound(tx, name)
        if own is not None:
            return own
        if name == "__class__":
            return tx.wrap(self.cls, None, constant=True)
        raw = getattr(torch.Tensor, name, None)
        if name in _OF_THE_OBJECT or raw is None and has_special(torch.Tensor, name):
            raise self.refuse(f"reading attribute {name!r}")
        if raw is not None:
            return (
                BuiltinMethodVariable(self, name) if callable(raw) else dispatch(tx, GetterVariable(name), [self], {})
            )
        tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if hasattr(torch.Tensor, name) or self._own(name) is not MISSING or self._own("__setattr__") is not MISSING:
            raise self.refuse(f"setting attribute {name!r}")
        if self.source is not None:
            tx.side_effects.mutated(self)
        self.attributes[name] = value

    # -- calls -----------------------------------------------------------------------------------------------------

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        own = self._bound(tx, name)
        if own is not None:
            return own
        return BuiltinMethodVariable(self, name) if has_special(torch.Tensor, name) else None

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name == "as_subclass" and len(args) == 1 and not kwargs:
            return as_subclass(tx, self.inner, args[0])
        if name in _CHANGE_THE_OBJECT:
            raise self.refuse(f"a call of {name}")
        method = getattr(torch.Tensor, name, None)
        if isinstance(method, types.FunctionType):  # in Python, it asks the classes itself, or what it calls does
            return tx.trace_into(tx.wrap(method, None, constant=True), [self, *args], kwargs)
        return dispatch(tx, tx.wrap(recorded(name, len(args)), None, constant=True), [self, *args], kwargs)

    def iterate(self, tx: Tracer) -> VT:
        return tx.call_function(self.lookup_special(tx, "__iter__"), [], {})

    def length(self, tx: Tracer) -> VT:
        return self.call_method(tx, "__len__", [], {})

    def get_item(self, tx: Tracer, key: VT) -> VT:
        return tx.call_function(self.lookup_special(tx, "__getitem__"), [key], {})

    def set_item(self, tx: Tracer, key: VT, value: VT) -> None:
        tx.call_function(self.lookup_special(tx, "__setitem__"), [key, value], {})

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(of_class)
        emit.load(self.inner)
        emit.load_const(self.cls)
        emit.call(2)
        store_attributes(emit, self)

    def write_back(self, emit: Emitter) -> None:
        write_attributes(emit, self)


class GetterVariable(VariableTracker):
    """`torch.Tensor.NAME.__get__`: the function that a read of an attribute is for a class with __torch_function__."""

    kind = "torch_function"

    def __init__(self, name: str) -> None:
        super().__init__(None)
        self.name = name
        self.fn = getattr(torch.Tensor, name).__get__

    def python_type(self) -> type:
        return type(self.fn)

    def as_python_object(self) -> Any:
        return self.fn

    def as_constant(self) -> Any:
        return self.fn

    def truth(self, tx: Tracer) -> bool:
        return True

    def equals(self, tx: Tracer, other: VT) -> VT | None:
        return tx.constant(self.name == other.name) if isinstance(other, GetterVariable) else None

    def hash_key(self, tx: Tracer) -> Any:
        return self.fn

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name in ("__name__", "__qualname__"):
            return tx.constant(getattr(self.fn, name))
        if name == "__self__":
            return tx.wrap(self.fn.__self__, None, constant=True)
        raise self.refuse(f"reading attribute {name!r}")

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return args[0].realize(tx).get_attr(tx, self.name).realize(tx)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_const(self.fn)


class TensorAttributeVariable(KnownVariable):
    """`torch.Tensor.NAME`, the descriptor of an attribute."""

    kind = "tensor_attribute"

    def hash_key(self, tx: Tracer) -> Any:
        return self.value

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "__get__":
            return GetterVariable(self.value.__name__)
        if name in ("__name__", "__qualname__", "__doc__"):
            return tx.constant(getattr(self.value, name))
        return super().get_attr(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load_global_object(self.value)


def from_value(tx: Tracer, value: torch.Tensor, source: Any) -> VT | None:
    """The tracker of a real tensor of a subclass, None for those that are not taken apart."""
    if source is None or not is_traced(value) or not functions_on(None):
        return None
    cls = type(value)
    tx.guard(source, TypeIs(cls))
    _guard_function(tx, cls)
    inner = tx.wrap(plain(value), CallSource(source, plain))
    return SubclassTensorVariable(inner, cls, value, source)


def made_of(tx: Tracer, cls: VT, args: Sequence[VT], kwargs: dict[str, VT]) -> VT | None:
    """CLASS(tensor), for a class of the program's that leaves __new__ and __init__ to torch; None for other calls."""
    target = cls.as_constant()
    given = args[0].realize(tx) if len(args) == 1 and not kwargs else None
    own = [name for name in ("__new__", "__init__") if own_attribute(target, name, _TORCH_CLASSES) is not MISSING]
    if given is None or given.kind != "tensor" or target in _TORCH_CLASSES or own:
        return None
    return as_subclass(tx, given, cls)


def as_subclass(tx: Tracer, tensor: VT, cls: VT) -> VT:
    """tensor.as_subclass(cls): another tensor on the same memory."""
    target = cls.realize(tx).as_constant()
    alias = tx.graph_call(torch.ops.aten.alias.default, [tensor], {}).realize(tx)
    if target is torch.Tensor:
        return alias
    if not issubclass(target, torch.Tensor) or target.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise tensor.refuse(f"as_subclass({target.__name__})")
    if issubclass(target, (torch.nn.Parameter, torch.nn.Buffer)):
        raise tensor.refuse(f"as_subclass({target.__name__})")
    _guard_function(tx, target)
    return SubclassTensorVariable(alias, target)


def _guard_function(tx: Tracer, cls: type) -> None:
    tx.guard(CallSource(ConstSource(None), functions_on), Is(True))
    tx.guard(TypeAttrSource(ConstSource(cls), "__torch_function__"), Is(find_special(cls, "__torch_function__")))


# -- the protocol ------------------------------------------------------------------------------------------------------


def dispatch(tx: Tracer, fn: VT, args: Sequence[VT], kwargs: Mapping[str, VT]) -> VT:
    """fn(*args, **kwargs) where the classes of arguments take over, subclasses before the classes they extend."""
    asked = classes_asked(tx, [argument.realize(tx) for argument in (*args, *kwargs.values())])
    if not functions_on(None):
        raise fn.refuse("a call where torch's functions ask no class", "leave that region inside the function")
    if not asked or tx.trace.functions_off:
        return _on_plain(tx, fn, list(args), dict(kwargs), {})
    classes = tx.new_tuple([tx.wrap(tracker.python_type(), None, constant=True) for tracker in asked])
    for tracker in asked:
        _guard_function(tx, tracker.python_type())
        method = tx.wrap(tracker.python_type(), None, constant=True).get_attr(tx, "__torch_function__")
        words = tx.new_dict([(tx.constant(name), value) for name, value in kwargs.items()])
        result = tx.call_function(method, [fn, classes, tx.new_tuple(list(args)), words], {}).realize(tx)
        if not (result.kind == "constant" and result.as_constant() is NotImplemented):
            return result
    names = ", ".join(tracker.python_type().__name__ for tracker in asked)
    tx.raise_exception(
        TypeError,
        f"no implementation found for '{fn.describe()}' on types that implement __torch_function__: [{names}]",
    )


def classes_asked(tx: Tracer, arguments: Sequence[VT]) -> list[VT]:
    """Of arguments whose classes take torch's functions over one for each class, subclasses first."""
    found: list[VT] = []
    for tracker in _flat(arguments, tx):
        cls = tracker.python_type()
        if not takes_over(tracker) or any(other.python_type() is cls for other in found):
            continue
        place = next((at for at, other in enumerate(found) if issubclass(cls, other.python_type())), len(found))
        found.insert(place, tracker)
    return found


def _flat(arguments: Sequence[VT], tx: Tracer) -> Iterator[VT]:
    for tracker in arguments:
        if tracker.kind in ("list", "tuple"):
            yield from (item.realize(tx) for item in tracker.unpack(tx))
        else:
            yield tracker


def default(tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
    """torch.Tensor.__torch_function__(cls, func, types, args, kwargs): the call on plain tensors, then the class."""
    cls, fn, classes, *rest = [argument.realize(tx) for argument in args]
    words = {**kwargs}
    values = rest[0] if rest else words.pop("args", tx.new_tuple([])).realize(tx)
    names = rest[1] if len(rest) > 1 else words.pop("kwargs", tx.constant(None)).realize(tx)
    target = cls.as_constant()
    if words or len(rest) > 2 or not issubclass(target, torch.Tensor):
        raise fn.refuse("a call of Tensor.__torch_function__ with other arguments")
    if not all(issubclass(target, one.realize(tx).as_constant()) for one in classes.unpack(tx)):
        return tx.constant(NotImplemented)
    empty = names.is_constant() and names.as_constant() is None
    wrapped: dict[int, VT] = {}
    result = _on_plain(tx, fn, values.unpack(tx), {} if empty else dict(keywords(tx, names)), wrapped)
    if fn.as_python_object() in _nowrap():  # type: ignore[attr-defined]
        return result
    return _converted(tx, result, target, wrapped)


def _on_plain(tx: Tracer, fn: VT, args: Sequence[VT], kwargs: Mapping[str, VT], wrapped: dict[int, VT]) -> VT:
    """The call on plain tensors; a result that went in is what went in. `wrapped`: that, by id of the plain tensor."""
    given = [_unwrapped(tx, value.realize(tx), wrapped) for value in args]
    keywords = {key: _unwrapped(tx, value.realize(tx), wrapped) for key, value in kwargs.items()}
    name = _python_methods().get(fn.as_python_object())  # type: ignore[attr-defined]
    if name is not None and given and given[0].kind == "tensor":
        result = given[0].call_method(tx, name, given[1:], keywords).realize(tx)
    else:
        result = tx.call_function(fn, given, keywords).realize(tx)
    return wrapped.get(id(result), result)


def keywords(tx: Tracer, names: VT) -> Iterator[tuple[str, VT]]:
    """The pairs of a dict whose keys are strings."""
    for key in names.unpack(tx):
        yield key.realize(tx).as_constant(), names.get_item(tx, key)


def _unwrapped(tx: Tracer, value: VT, wrapped: dict[int, VT]) -> VT:
    if isinstance(value, SubclassTensorVariable):
        wrapped[id(value.inner)] = value
        return value.inner
    if value.kind in ("list", "tuple") and any(takes_over(item) or item.kind == KIND for item in _flat([value], tx)):
        items = [_unwrapped(tx, item, wrapped) for item in _flat([value], tx)]
        return tx.new_list(items) if value.kind == "list" else tx.new_tuple(items)
    if takes_over(value):
        raise value.refuse("a call of torch's own __torch_function__")
    return value


def _converted(tx: Tracer, result: VT, cls: type, wrapped: dict[int, VT]) -> VT:
    """Results get the class, unless they are the tensors that went in."""
    if cls is torch.Tensor or result.kind == KIND:
        return result
    if result.kind == "tensor":
        return SubclassTensorVariable(result, cls)
    if result.kind in ("list", "tuple"):
        items = [_converted(tx, item.realize(tx), cls, wrapped) for item in result.unpack(tx)]
        if result.kind == "list":
            return tx.new_list(items)
        return tx.new_tuple(items, result.python_type())
    return result


@functools.cache
def _nowrap() -> frozenset[Any]:
    return frozenset(torch.overrides.get_default_nowrap_functions())


@functools.cache
def _python_methods() -> dict[Any, str]:
    """Tensor's methods that are written in Python, by the function: the trackers of tensors know them by name."""
    named = {name: getattr(torch.Tensor, name) for name in dir(torch.Tensor) if not name.startswith("__torch_")}
    return {method: name for name, method in named.items() if isinstance(method, types.FunctionType)}


class _Recorded(Exception):
    """The function that a class is asked about was found."""


@functools.cache
def recorded(name: str, count: int) -> Any:
    """What torch asks a class about when a method is called: `Tensor.add` for `__add__` and `__radd__`."""
    own = getattr(torch.Tensor, name)
    if not (name.startswith("__") and name.endswith("__")):
        return own
    asked: list[Any] = []

    class Asks(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            asked.append(func)
            raise _Recorded

    probe = torch.empty(1).as_subclass(Asks)
    try:
        own(probe, *[probe] * count)
    except (_Recorded, TypeError, RuntimeError):  # a probe that fits no signature: the method itself is asked about
        pass
    return asked[0] if asked else own
