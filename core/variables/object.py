"""UserObjectVariable: an instance of a Python class, real or made by the traced code.

Attribute access follows object.__getattribute__ step by step; every step that found (or did not find) something in
mutable state leaves a guard.
"""

from __future__ import annotations

import collections
import functools
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.autograd.function import FunctionCtx

from .. import _C
from ..guards.checks import MissingInstanceAttr, Predicate
from ..guards.source import AttrSource, ConstSource, InstanceAttrSource, SlotAttrSource, TypeAttrSource
from .base import SlotMethodVariable, VariableTracker, find_special, names_its_class
from .container import require_own
from .function import MethodVariable
from .instance_dict import InstanceDictVariable
from .literal import run
from .process_group import fixed, is_process_group
from .slot_results import checked
from .type_method import TypeMethodVariable

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker

MISSING: Any = object()
FIELDS = (types.MemberDescriptorType, types.GetSetDescriptorType)  # what holds a value of its own in the object
IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE: a class written in C
NAMED_ITEM: type = type(inspect.getattr_static(inspect.Traceback, "lineno"))  # what a named tuple reads a field by
OF_CONTEXT = ("saved_tensors", "needs_input_grad")  # what a backward reads of the object that its forward filled
TO_CONTEXT = ("to_save", "dirty_tensors", "non_differentiable", "materialize_grads")  # what a forward leaves there
DELETED = VariableTracker()  # marks an attribute that the traced code deleted


def find_on_type(cls: type, name: str) -> tuple[Any, type | None]:
    """The raw class attribute and the class of the MRO that holds it; (MISSING, None) when there is none."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name], base
    return MISSING, None


def rewritten(tx: Tracer, cls: type, name: str) -> VT | None:
    """What the traced code made of an attribute of the class or of one of its bases; None where it left it alone."""
    for base in cls.__mro__:
        if not tx.is_untouched(base):
            written = getattr(tx.wrap(base, None, constant=True), "written", {})
            if name in written:
                return written[name]
        if name in base.__dict__:
            return None
    return None


def plain_value(tx: Tracer, holder: VT, name: str, value: VT) -> VT:
    """An attribute that the traced code gave a class, as objects see it: only what binds to nothing is followed."""
    value = value.realize(tx)
    if value.kind not in ("constant", "symbolic", "tensor", "list", "tuple", "dict"):
        raise holder.refuse(f"reading attribute {name!r}, which the function set on the class,")
    return value


def is_data_descriptor(value: Any) -> bool:
    """True when an assignment to an attribute of this name is the descriptor's business."""
    cls = type(value)
    return hasattr(cls, "__set__") or hasattr(cls, "__delete__")


def is_read_first(value: Any) -> bool:
    """True when instance attributes of the same name come second; a descriptor without `__get__` reads nothing."""
    return is_data_descriptor(value) and hasattr(type(value), "__get__")


def _slot_is_empty(name: str, instance: Any) -> bool:
    descriptor, _ = find_on_type(type(instance), name)
    try:
        descriptor.__get__(instance, type(instance))
    except AttributeError:
        return isinstance(descriptor, types.MemberDescriptorType)
    return False


class UserObjectVariable(VariableTracker):
    """An object with attributes.

    value: the real object, None for one that the traced code made; payload: the tracker of the builtin container that
    the class extends (dict, list, ...), if it does; written: attributes that the traced code set; moved: those of them
    that it had deleted from the real object before, and that come last in its dict now.
    """

    kind = "user_object"
    mutable = True

    def __init__(self, cls: type, value: Any = None, source: Any = None, payload: VT | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.value = value
        self.payload = payload
        self.written: dict[str, VT] = {}
        self.moved: set[str] = set()
        if payload is not None:
            payload.payload_of = self

    @property
    def is_new(self) -> bool:
        return self.value is None

    def python_type(self) -> type:
        return self.cls

    def as_python_object(self) -> Any:
        if self.value is None:
            raise self.refuse("using the object while it does not exist")
        return self.value

    # -- the class's attributes ------------------------------------------------------------------------------------

    def type_attribute(self, tx: Tracer, name: str) -> tuple[Any, Any]:
        """(raw attribute of the class or MISSING, its source)."""
        if rewritten(tx, self.cls, name) is not None:
            raise self.refuse(f"using attribute {name!r}, which the function set on the class,")
        raw, base = find_on_type(self.cls, name)
        if base is not None and tx.is_unreal(self.cls):  # the class is made anew each time; a base may be real
            return raw, None if tx.is_unreal(base) else TypeAttrSource(ConstSource(base), name)
        return raw, TypeAttrSource(ConstSource(self.cls), name)

    def lookup_special(self, tx: Tracer, name: str) -> VT | None:
        """A special method as Python looks it up (on the type), bound; None when the class has none."""
        raw, source = self.type_attribute(tx, name)
        if raw is MISSING or raw is None:
            return None
        return self.bind_descriptor(tx, name, raw, source)

    def bind_descriptor(self, tx: Tracer, name: str, raw: Any, source: Any) -> VT:
        """What `raw.__get__(object, type)` gives."""
        if is_process_group(self.cls):
            answer = fixed(tx, self, name, raw)
            if answer is not None:
                return answer
        if isinstance(raw, (types.FunctionType, _C.CompiledCallable)):
            return MethodVariable(tx.wrap(raw, source), self)
        if isinstance(raw, staticmethod):
            return tx.wrap(raw.__func__, None, constant=True)
        if isinstance(raw, classmethod):
            return MethodVariable(tx.wrap(raw.__func__, None, constant=True), tx.wrap(self.cls, None, constant=True))
        if isinstance(raw, property):
            if raw.fget is None:
                tx.raise_exception(
                    AttributeError, f"property {name!r} of {self.cls.__qualname__!r} object has no getter"
                )
            return tx.call_function(tx.wrap(raw.fget, None, constant=True), [self])
        if isinstance(raw, types.MemberDescriptorType):
            return self._slot(tx, name)
        if isinstance(raw, types.ClassMethodDescriptorType):
            return tx.wrap(self.cls, None, constant=True).get_attr(tx, name)
        if isinstance(raw, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return BoundSlotVariable(self, name, raw)
        if isinstance(raw, types.GetSetDescriptorType):
            return self._getset(tx, name, raw)
        if (
            type(raw) is functools.cached_property
            and raw.attrname == name
            and find_on_type(self.cls, "__dict__")[0] is not MISSING
        ):
            # Python 3.11 takes a lock for it, later ones take none: each thread may run the function.
            result = tx.call_function(tx.wrap(raw.func, None, constant=True), [self])
            self.write(tx, name, result)
            return result
        getter, _ = find_on_type(type(raw), "__get__")
        if isinstance(getter, types.FunctionType):
            holder = tx.wrap(raw, source)
            cls = tx.wrap(self.cls, None, constant=True)
            return tx.call_function(tx.wrap(getter, None, constant=True), [holder, self, cls])
        if type(raw) is NAMED_ITEM and self.payload is not None and self.payload.kind == "tuple":
            return self.payload.get_item(tx, tx.constant(raw.__reduce__()[1][0]))
        bound = getattr(tx.wrap(raw, source), "bind", None) if isinstance(raw, functools._lru_cache_wrapper) else None
        if bound is not None:
            return bound(self)
        if getter is not MISSING and not isinstance(raw, type):
            raise self.refuse(f"the descriptor {type(raw).__name__} behind attribute {name!r}")
        return tx.wrap(raw, source)

    def _slot(self, tx: Tracer, name: str) -> VT:
        if self.value is not None:
            try:
                found = getattr(self.value, name)
            except AttributeError:
                found = MISSING
            if found is not MISSING:
                return tx.wrap(found, SlotAttrSource(self.source, name) if self.source is not None else None)
            tx.guard(self.source, Predicate((self.source,), functools.partial(_slot_is_empty, name)))
        tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def _getset(self, tx: Tracer, name: str, raw: Any) -> VT:
        if name == "__dict__":
            return InstanceDictVariable(self)
        if name == "__weakref__" and self.is_new:
            return tx.constant(None)
        if name == "__weakref__":
            raise self.refuse("reading __weakref__")
        readable = name in OF_CONTEXT and issubclass(self.cls, FunctionCtx) and "to_save" not in self.written
        if readable and self.source is not None:
            return tx.wrap(tx.answer(getattr, [self.value, name], {}), AttrSource(self.source, name))
        raise self.refuse(f"the C attribute {name!r}")

    # -- the object's own attributes -------------------------------------------------------------------------------

    def own_attribute(self, tx: Tracer, name: str) -> VT | None:
        """An attribute of the instance dict, None when it has none (guarded)."""
        if name in self.written:
            value = self.written[name]
            return None if value is DELETED else value.realize(tx)
        if self.value is None:
            return None
        own = getattr(self.value, "__dict__", {})
        if name in own:
            return tx.wrap(own[name], InstanceAttrSource(self.source, name) if self.source is not None else None)
        if self.source is not None and hasattr(self.value, "__dict__"):
            tx.guard(self.source, MissingInstanceAttr(name))
        return None

    def own_names(self) -> list[str]:
        """Names in the instance dict, in order."""
        names = [name for name in getattr(self.value, "__dict__", {}) if name not in self.moved]
        names += [name for name in self.written if name not in names]
        return [name for name in names if self.written.get(name) is not DELETED]

    def get_attr(self, tx: Tracer, name: str) -> VT:
        custom, source = self.type_attribute(tx, "__getattribute__")
        if isinstance(custom, types.FunctionType):
            return tx.call_function(tx.wrap(custom, source), [self, tx.constant(name)])
        return self.plain_get_attr(tx, name)

    def plain_get_attr(self, tx: Tracer, name: str) -> VT:
        """object.__getattribute__, then __getattr__."""
        if name == "__class__" and not names_its_class(self.cls):
            return tx.wrap(self.cls, None, constant=True)
        new = rewritten(tx, self.cls, name)
        if new is not None:
            own = self.own_attribute(tx, name)
            return own if own is not None else plain_value(tx, self, name, new)
        raw, source = self.type_attribute(tx, name)
        if raw is not MISSING and not type(raw).__flags__ & IMMUTABLE_TYPE and not isinstance(raw, type):
            tx.wrap(type(raw), None, constant=True)  # guarded: its methods make `raw` a descriptor or a plain value
        slot = isinstance(raw, types.MemberDescriptorType)
        if raw is not MISSING and is_read_first(raw) and not (slot and name in self.written):
            return self.bind_descriptor(tx, name, raw, source)
        own = self.own_attribute(tx, name)
        if own is not None:
            return own
        if raw is not MISSING:
            return self.bind_descriptor(tx, name, raw, source)
        return self.fallback_get_attr(tx, name)

    def fallback_get_attr(self, tx: Tracer, name: str) -> VT:
        """__getattr__, or AttributeError."""
        getter, source = self.type_attribute(tx, "__getattr__")
        if isinstance(getter, types.FunctionType):
            return tx.call_function(tx.wrap(getter, source), [self, tx.constant(name)])
        tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        custom, source = self.type_attribute(tx, "__setattr__")
        if isinstance(custom, types.FunctionType):
            tx.call_function(tx.wrap(custom, source), [self, tx.constant(name), value])
            return
        self.plain_set_attr(tx, name, value)

    def plain_set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        """object.__setattr__."""
        raw, source = self.type_attribute(tx, name)
        if isinstance(raw, property):
            if raw.fset is None:
                tx.raise_exception(
                    AttributeError, f"property {name!r} of {self.cls.__qualname__!r} object has no setter"
                )
            tx.call_function(tx.wrap(raw.fset, None, constant=True), [self, value])
            return
        if raw is not MISSING and not isinstance(raw, types.MemberDescriptorType) and is_data_descriptor(raw):
            setter, _ = find_on_type(type(raw), "__set__")
            if name in TO_CONTEXT and issubclass(self.cls, FunctionCtx) and self.source is not None:
                return self.write(tx, name, value)
            if not isinstance(setter, types.FunctionType):
                raise self.refuse(f"setting the C attribute {name!r}")
            tx.call_function(tx.wrap(setter, None, constant=True), [tx.wrap(raw, source), self, value])
            return
        if not isinstance(raw, types.MemberDescriptorType) and find_on_type(self.cls, "__dict__")[0] is MISSING:
            text = f"'{self.cls.__name__}' object has no attribute '{name}'"
            if raw is not MISSING:
                text = f"'{self.cls.__name__}' object attribute '{name}' is read-only"
            tx.raise_exception(AttributeError, text)
        self.write(tx, name, value)

    def write(self, tx: Tracer, name: str, value: VT) -> None:
        """Store into the instance dict (or slot)."""
        tx.side_effects.mutated(self)
        if self.written.get(name) is DELETED:
            del self.written[name]
            self.moved.add(name)
        self.written[name] = value

    def del_attr(self, tx: Tracer, name: str) -> None:
        custom, source = self.type_attribute(tx, "__delattr__")
        if isinstance(custom, types.FunctionType):
            tx.call_function(tx.wrap(custom, source), [self, tx.constant(name)])
            return
        self.plain_del_attr(tx, name)

    def plain_del_attr(self, tx: Tracer, name: str) -> None:
        """object.__delattr__."""
        if self.own_attribute(tx, name) is None:
            tx.raise_exception(AttributeError, f"'{self.cls.__name__}' object has no attribute '{name}'")
        self.remove(tx, name)

    def remove(self, tx: Tracer, name: str) -> None:
        """Take an attribute that is there out of the instance dict (or slot)."""
        tx.side_effects.mutated(self)
        if name in self.written and self._is_only_traced(tx, name):
            del self.written[name]
        else:
            self.written[name] = DELETED

    def _is_only_traced(self, tx: Tracer, name: str) -> bool:
        """True for an attribute that the real object, if there is one, lacks (guarded)."""
        if isinstance(find_on_type(self.cls, name)[0], FIELDS):
            return False
        if name in getattr(self.value, "__dict__", {}):
            return False
        if self.source is not None:
            tx.guard(self.source, MissingInstanceAttr(name))
        return True

    # -- operations ------------------------------------------------------------------------------------------------

    def special(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT] | None = None) -> VT:
        """Call a special method, or raise what Python raises when there is none."""
        method = self.lookup_special(tx, name)
        if method is None:
            tx.raise_exception(TypeError, f"'{self.cls.__name__}' object does not support {name}")
        return method.call(tx, args, kwargs or {})

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        method = self.lookup_special(tx, "__call__")
        if method is None:
            tx.raise_exception(TypeError, f"'{self.cls.__name__}' object is not callable")
        return tx.call_function(method, args, kwargs)

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        if name.startswith("__") and name.endswith("__"):
            return self.special(tx, name, args, kwargs)
        return self.get_attr(tx, name).call(tx, args, kwargs)

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            method = self.lookup_special(tx, name)
            if method is not None:
                return tx.truth(checked(tx, name, self.cls, method.call(tx, [], {})))
        return True

    def iterate(self, tx: Tracer) -> VT:
        raw, _ = self.type_attribute(tx, "__iter__")
        if raw is MISSING:
            if self.type_attribute(tx, "__getitem__")[0] is not MISSING:
                return tx.iterate_by_index(self)
            tx.raise_exception(TypeError, f"'{self.cls.__name__}' object is not iterable")
        iterator = self.special(tx, "__iter__", []).realize(tx)
        if find_special(iterator.python_type(), "__next__") is None:
            kind = iterator.python_type().__name__
            tx.raise_exception(TypeError, f"iter() returned non-iterator of type '{kind}'")
        return iterator

    def next_item(self, tx: Tracer) -> VT | None:
        return tx.until_stop(self.lookup_special(tx, "__next__"))

    def contains(self, tx: Tracer, item: VT) -> bool:
        if self.lookup_special(tx, "__contains__") is not None:
            return tx.truth(self.special(tx, "__contains__", [item]))
        iterator = self.iterate(tx)
        while (candidate := iterator.next_item(tx)) is not None:
            if candidate is item or tx.compare_equal(candidate, item):
                return True
        return False

    def as_proxy(self) -> Any:
        if self.payload is not None:
            return self.payload.as_proxy()
        if getattr(self.cls, "__torch_function__", None) is not None:
            from .tensor_subclass import ClassDecides

            raise ClassDecides(f"{self.describe()} takes the call over", remedy="pass a tensor")
        return super().as_proxy()

    def own_method(self, tx: Tracer, name: str, args: Sequence[VT]) -> VT | None:
        """What a method in C of the class's base, other than object and a container, gives; None: not traced."""
        return None

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        base = next((b for b in self.cls.__mro__ if b.__flags__ & IMMUTABLE_TYPE and "__new__" in b.__dict__), object)
        emit.push_null()
        emit.load_global_object(base)
        emit.load_attr("__new__")
        emit.load_global_object(self.cls)
        if self.payload is not None and issubclass(self.cls, (tuple, frozenset, int, float, str, bytes)):
            emit.load(self.payload)
            emit.call(2)
        else:
            emit.call(1)
        emit.remember(self)
        if self.payload is not None and not issubclass(self.cls, (tuple, frozenset, int, float, str, bytes)):
            self._fill_payload(emit)
        for name, value in self.written.items():
            if value is not DELETED:
                emit.copy_top()
                self._emit_store(emit, name, value)

    def _fill_payload(self, emit: Emitter) -> None:
        # stack: object -> object; the builtin's own method, not an override of the class
        assert self.payload is not None
        base, method = {
            dict: (dict, "update"),
            list: (list, "extend"),
            set: (set, "update"),
        }.get(next(b for b in self.cls.__mro__ if b in (dict, list, set)), (dict, "update"))

        if issubclass(self.cls, collections.OrderedDict):
            base = collections.OrderedDict
        emit.copy_top()
        emit.push_null_under(1)
        emit.load_global_object(base)
        emit.load_attr(method)
        emit.swap(2)
        self.payload.reconstruct(emit)
        emit.call(2)
        emit.pop_top()

    def _behind_descriptor(self, name: str) -> bool:
        """True for a key of the instance dict that the class hides behind a descriptor, as a property."""
        raw = find_on_type(self.cls, name)[0]
        return is_data_descriptor(raw) and not isinstance(raw, FIELDS)

    def _emit_store(self, emit: Emitter, name: str, value: VT) -> None:
        # stack: object -> ; at the level of object.__setattr__, where the traced code's own __setattr__ ended
        if self._behind_descriptor(name):
            emit.load_attr("__dict__")
            emit.load(value)
            emit.swap(2)
            emit.load_const(name)
            emit.store_subscr()
            return
        if self.cls.__setattr__ is object.__setattr__:
            emit.load(value)
            emit.swap(2)
            emit.store_attr(name)
            return
        call_attribute_method(emit, object, "__setattr__", name, value)

    def write_back(self, emit: Emitter) -> None:
        for name, value in self.written.items():
            if value is DELETED or name in self.moved:
                emit.load(self)
                self._emit_delete(emit, name)
            if value is not DELETED:
                emit.load(self)
                self._emit_store(emit, name, value)

    def _emit_delete(self, emit: Emitter, name: str) -> None:
        # stack: object -> ; as _emit_store
        if self._behind_descriptor(name):
            emit.load_attr("__dict__")
            emit.load_const(name)
            emit.delete_subscr()
        elif self.cls.__delattr__ is object.__delattr__:
            emit.delete_attr(name)
        else:
            call_attribute_method(emit, object, "__delattr__", name)


def call_attribute_method(emit: Emitter, cls: type, method: str, name: str, *values: VT) -> None:
    """Call `cls.method(object, name, *values)` on the object on top of the stack, which it takes off."""
    emit.push_null_under(1)
    emit.load_global_object(cls)
    emit.load_attr(method)
    emit.swap(2)
    emit.load_const(name)
    for value in values:
        emit.load(value)
    emit.call(2 + len(values))
    emit.pop_top()


class BoundSlotVariable(SlotMethodVariable):
    """A C method bound to an object of a Python class: object.__init__, dict.__setitem__ of a dict subclass, ..."""

    receiver: UserObjectVariable

    def python_type(self) -> type:
        return type(object().__str__)

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        receiver, name = self.receiver, self.name
        owner = getattr(self.descriptor, "__objclass__", None)
        if receiver.payload is not None and owner is not object:
            if issubclass(receiver.cls, collections.OrderedDict):
                require_own(receiver.payload, self.descriptor, name, [*args, *kwargs])
            if name == "__init__":
                return self._init_payload(tx, args, kwargs)
            if name == "__reduce__" or name == "__reduce_ex__":
                raise receiver.refuse(name)
            return receiver.payload.call_method(tx, name, list(args), kwargs)
        if owner is object:
            handler = getattr(self, "object_" + name.strip("_"), None)
            if handler is not None:
                return handler(tx, *args, **kwargs)
        if name == "__init__":
            return receiver.init_base(tx, args, kwargs) if hasattr(receiver, "init_base") else tx.constant(None)
        own = receiver.own_method(tx, name, args)
        if own is not None:
            return own
        raise receiver.refuse(f"the C method {name!r}")

    def _init_payload(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        payload = self.receiver.payload
        assert payload is not None
        cls = self.receiver.cls
        if issubclass(cls, collections.defaultdict) and args:
            raise self.receiver.refuse("giving a default factory to an object of a class over defaultdict")
        base = list if issubclass(cls, list) else set if issubclass(cls, set) else None
        if base is not None and isinstance(getattr(find_special(cls, "__new__"), "__func__", None), types.FunctionType):
            kwargs = {}  # list and set ignore what is meant for a __new__ of the class's own
        if base is not None and (kwargs or len(args) > 1):
            run(tx, base, [()] * len(args), dict.fromkeys(kwargs))  # raises what this version of Python raises
        if not payload.mutable:
            return tx.constant(None)
        if base is not None:
            tx.side_effects.mutated(self.receiver)
            payload.call_method(tx, "clear", [], {})
        if args or kwargs:
            tx.side_effects.mutated(self.receiver)
            payload.call_method(tx, "extend" if base is list else "update", list(args), kwargs)
        return tx.constant(None)

    def object_init(self, tx: Tracer, /, *args: VT, **kwargs: VT) -> VT:
        cls = self.receiver.cls
        if (args or kwargs) and find_special(cls, "__init__") is not object.__init__:
            text = "object.__init__() takes exactly one argument (the instance to initialize)"
            tx.raise_exception(TypeError, text)
        if (args or kwargs) and find_special(cls, "__new__") is object.__dict__["__new__"]:
            text = f"{cls.__name__}.__init__() takes exactly one argument (the instance to initialize)"
            tx.raise_exception(TypeError, text)
        return tx.constant(None)

    def object_init_subclass(self, tx: Tracer, *args: VT) -> VT:
        return tx.constant(None)

    def object_setattr(self, tx: Tracer, name: VT, value: VT) -> VT:
        self.receiver.plain_set_attr(tx, name.as_constant(), value)
        return tx.constant(None)

    def object_delattr(self, tx: Tracer, name: VT) -> VT:
        self.receiver.plain_del_attr(tx, name.as_constant())
        return tx.constant(None)

    def object_getattribute(self, tx: Tracer, name: VT) -> VT:
        return self.receiver.plain_get_attr(tx, name.as_constant())

    def object_eq(self, tx: Tracer, other: VT) -> VT:
        return tx.constant(True if other.realize(tx) is self.receiver else NotImplemented)

    def object_ne(self, tx: Tracer, other: VT) -> VT:
        equal = self.receiver.special(tx, "__eq__", [other])
        if equal.is_constant() and equal.as_constant() is NotImplemented:
            return equal
        return tx.constant(not tx.truth(equal))

    def object_lt(self, tx: Tracer, other: VT) -> VT:
        return tx.constant(NotImplemented)

    object_le = object_gt = object_ge = object_lt

    def object_hash(self, tx: Tracer) -> VT:
        raise self.receiver.refuse("hash()")

    def reconstruct(self, emit: Emitter) -> None:
        # bound by the descriptor itself: by name, the object's class may answer with an override
        emit.push_null()
        emit.load_global_object(self.descriptor)
        emit.load_attr("__get__")
        emit.load(self.receiver)
        emit.call(1)


class SuperVariable(VariableTracker):
    """super(cls, object): attribute access that starts behind `cls` in the MRO."""

    kind = "super"

    def __init__(self, start: type, receiver: VT, receiver_type: type) -> None:
        super().__init__(None)
        self.start = start
        self.receiver = receiver
        self.receiver_type = receiver_type

    def python_type(self) -> type:
        return super

    def get_attr(self, tx: Tracer, name: str) -> VT:
        mro = self.receiver_type.__mro__
        for base in mro[mro.index(self.start) + 1 :]:
            if not tx.is_untouched(base) and rewritten(tx, base, name) is not None:
                raise self.refuse(f"reading attribute {name!r}, which the function set on the class,")
            if name in base.__dict__:
                return self._bind(tx, name, base)
        tx.raise_exception(AttributeError, f"'super' object has no attribute '{name}'")

    def _of_class(self) -> bool:
        """True for super(cls, other_class): what is found is bound to no object."""
        return self.receiver.kind == "class" and self.receiver.as_constant() is self.receiver_type

    def _bind(self, tx: Tracer, name: str, base: type) -> VT:
        raw = base.__dict__[name]
        source = TypeAttrSource(ConstSource(base), name) if not tx.is_unreal(base) else None
        if isinstance(raw, (types.FunctionType, _C.CompiledCallable)):
            if name == "__new__" or self._of_class():
                return tx.wrap(raw, source)
            return MethodVariable(tx.wrap(raw, source), self.receiver)
        if isinstance(raw, classmethod):
            cls = self.receiver if self._of_class() else tx.wrap(self.receiver_type, None, constant=True)
            return MethodVariable(tx.wrap(raw.__func__, None, constant=True), cls)
        if name in ("__new__", "__init_subclass__", "__prepare__"):
            return tx.wrap(getattr(base, name), None, constant=True)
        if self.receiver.kind == "class" and getattr(raw, "__objclass__", None) is type:
            return TypeMethodVariable(self.receiver, name, raw)
        if isinstance(self.receiver, UserObjectVariable):
            return self.receiver.bind_descriptor(tx, name, raw, source)
        if isinstance(raw, staticmethod):
            return tx.wrap(raw.__func__, None, constant=True)
        if inspect.isroutine(raw):
            if issubclass(self.receiver_type, collections.OrderedDict):
                require_own(self.receiver, raw, name, [raw])
            return self.receiver.get_attr(tx, name)
        return tx.wrap(raw, source)
