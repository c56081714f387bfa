"""VariableTracker: what the interpreter knows of one Python object while it traces.

Enters: real values with the source that reaches them, or objects made by the traced code. Leaves: answers to the
operations that bytecode asks for (attribute, call, item, iteration, truth), as other trackers; and, at the end, the
bytecode that brings the object back (`reconstruct`). One tracker stands for one object: `is` on trackers is `is` on
objects, and a mutable kind changes in place. Trackers must not know the interpreter: what they need of it comes in as
`tx`, typed by `protocols.Tracer`; kinds make each other through `tx` (`tx.new_list`), never by import.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import Unsupported

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer


_made = itertools.count(1)


class NotConstant(Exception):
    """The tracker stands for something that has no value while tracing."""


class ObservedException(Exception):
    """The traced program raised. `value` is the tracker of the exception object; the interpreter unwinds with it."""

    def __init__(self, value: VariableTracker) -> None:
        super().__init__(value)
        self.value = value


def find_special(cls: type, name: str) -> Any:
    """What a class or its bases define for a special method, the metaclass left out; None where there is nothing."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def names_its_class(cls: type) -> bool:
    """Whether objects of the class say themselves what their class is, as stand-ins for others do."""
    return isinstance(find_special(cls, "__class__"), property)


def has_special(cls: type, name: str) -> bool:
    """True when a class or its bases define the name (as None too), the metaclass left out."""
    return any(name in base.__dict__ for base in cls.__mro__)


OUTSIDE = "do it outside the compiled function, or with plain Python objects"


class VariableTracker:
    """Base of all trackers. Every operation that a kind does not define is a graph break with a reason."""

    kind: ClassVar[str] = "object"
    mutable: ClassVar[bool] = False
    writes_first: ClassVar[bool] = False  # of what changed, this is written back before the rest

    payload_of: VariableTracker | None = None
    """For the builtin container inside an object of a subclass: the object."""

    made: int = 0
    """Counts up from tracker to tracker: which of two came into being first."""

    def __init__(self, source: Any = None) -> None:
        self.source = source
        self.made = next(_made)

    def standing_for(self, value: Any) -> VariableTracker:
        """The tracker, knowing its real object where no source reaches that."""
        if self.source is None:
            self.value = value
        return self

    # -- what it is ------------------------------------------------------------------------------------------------

    def python_type(self) -> type:
        """The class of the object this stands for."""
        raise NotImplementedError(type(self).__name__)

    def as_constant(self) -> Any:
        """The Python value, for kinds whose value is fully known and immutable (or a container of such)."""
        raise NotConstant(f"{self.kind} has no constant value")

    def is_constant(self) -> bool:
        """True when `as_constant` gives a value."""
        try:
            self.as_constant()
        except NotConstant:
            return False
        return True

    def as_proxy(self) -> Any:
        """What stands for the object in the arguments of a graph node: a GraphValue, a constant, or a tree of them."""
        try:
            return self.as_constant()
        except NotConstant:
            raise Unsupported(
                f"{self.describe()} can't be an argument of a tensor operation",
                remedy="pass tensors, numbers, strings or containers of them",
            ) from None

    def realize(self, tx: Tracer) -> VariableTracker:
        """The tracker itself; a lazy one gives the tracker it stands for."""
        return self

    def look_inside(self, tx: Tracer) -> VariableTracker:
        """The realized tracker, everything it contains realized and guarded too: needed before `as_constant` or
        `as_proxy` of a container that came from outside."""
        return self.realize(tx)

    def describe(self) -> str:
        """A few words for messages."""
        name = self.source.name() if self.source is not None else ""
        try:
            cls = self.python_type().__name__
        except NotImplementedError:
            cls = self.kind
        return f"{name} ({cls})" if name else cls

    # -- operations ------------------------------------------------------------------------------------------------

    def refuse(self, operation: str, remedy: str = "") -> Unsupported:
        """The graph break for an operation that this kind doesn't trace."""
        return Unsupported(f"{operation} on {self.describe()} is not traced", remedy=remedy or OUTSIDE)

    def truth(self, tx: Tracer) -> bool:
        """bool(object). Raises Unsupported where only a run can tell."""
        raise self.refuse("a truth test")

    def length(self, tx: Tracer) -> VariableTracker:
        """len(object)."""
        return self.call_method(tx, "__len__", [], {})

    def get_attr(self, tx: Tracer, name: str) -> VariableTracker:
        """getattr(object, name); raises ObservedException(AttributeError) where Python would."""
        raise self.refuse(f"reading attribute {name!r}")

    def set_attr(self, tx: Tracer, name: str, value: VariableTracker) -> None:
        """setattr(object, name, value)."""
        raise self.refuse(f"setting attribute {name!r}")

    def del_attr(self, tx: Tracer, name: str) -> None:
        """delattr(object, name)."""
        raise self.refuse(f"deleting attribute {name!r}")

    def call(self, tx: Tracer, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        """object(*args, **kwargs)."""
        if not has_special(self.python_type(), "__call__"):
            tx.raise_exception(TypeError, f"'{self.python_type().__name__}' object is not callable")
        raise self.refuse("a call")

    def call_method(
        self, tx: Tracer, name: str, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """object.name(*args, **kwargs), special methods looked up as Python does."""
        return self.get_attr(tx, name).call(tx, args, kwargs)

    def get_item(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        """object[key]."""
        return self.call_method(tx, "__getitem__", [key], {})

    def set_item(self, tx: Tracer, key: VariableTracker, value: VariableTracker) -> None:
        """object[key] = value."""
        self.call_method(tx, "__setitem__", [key, value], {})

    def del_item(self, tx: Tracer, key: VariableTracker) -> None:
        """del object[key]."""
        self.call_method(tx, "__delitem__", [key], {})

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        """item in object."""
        return tx.truth(self.call_method(tx, "__contains__", [item], {}))

    def iterate(self, tx: Tracer) -> VariableTracker:
        """iter(object): a tracker with `next_item`."""
        cls = self.python_type()
        if not has_special(cls, "__iter__") and not has_special(cls, "__getitem__"):
            tx.raise_exception(TypeError, f"'{cls.__name__}' object is not iterable")
        raise self.refuse("iteration")

    def next_item(self, tx: Tracer) -> VariableTracker | None:
        """next(object) for iterators; None stands for the end (StopIteration)."""
        raise self.refuse("next()")

    def unpack(self, tx: Tracer) -> list[VariableTracker]:
        """All items in order, as list(object) would give; consumes iterators."""
        iterator = self.iterate(tx)
        items = []
        while (item := iterator.next_item(tx)) is not None:
            items.append(item)
        return items

    def equals(self, tx: Tracer, other: VariableTracker) -> VariableTracker | None:
        """object == other, or None where this kind has no opinion (NotImplemented)."""
        return None

    def hash_key(self, tx: Tracer) -> Hashable:
        """A stand-in for the object among the keys of a dict or set: equal for objects that Python takes as one key.

        The constant itself, a tuple or frozenset of stand-ins, or the tracker where the object hashes by identity.
        """
        cls = self.python_type()
        by_identity = cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__
        if by_identity or self.kind == "tensor":  # a tensor hashes by address, and a dict asks for identity first
            return self
        if cls.__hash__ is None:
            tx.raise_exception(TypeError, f"unhashable type: '{cls.__name__}'")
        payload = getattr(self, "payload", None)
        if payload is not None:
            if payload.python_type().__hash__ is cls.__hash__ and payload.python_type().__eq__ is cls.__eq__:
                return payload.hash_key(tx)
        if isinstance(find_special(cls, "__hash__"), types.FunctionType):
            value = self.call_method(tx, "__hash__", [], {}).realize(tx)
            if not issubclass(value.python_type(), int):
                tx.raise_exception(TypeError, "__hash__ method should return an integer")
            return OwnHash(tx, self, value.as_constant())
        raise self.refuse("hashing")

    def inherited(self, tx: Tracer, name: str) -> VariableTracker | None:
        """The attribute that every object of a class written in C has: its class, a method; None where it has none."""
        cls = self.python_type()
        if name == "__class__":
            return tx.wrap(cls, None, constant=True)
        if not has_special(cls, name):
            return None
        raw = find_special(cls, name)
        if raw is None:
            return tx.constant(None)
        if isinstance(raw, str):
            return tx.constant(raw)
        if not callable(raw) and not isinstance(raw, (classmethod, staticmethod)):
            raise self.refuse(f"reading attribute {name!r}")
        return InheritedMethodVariable(self, name)

    def lookup_special(self, tx: Tracer, name: str) -> VariableTracker | None:
        """A special method as operators look it up (on the type), bound; None when the type has none."""
        return BuiltinMethodVariable(self, name) if find_special(self.python_type(), name) is not None else None

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        """Emit bytecode that leaves the object on the stack. Called only when the object has no usable source."""
        raise self.refuse("giving the object back to Python")

    def write_back(self, emit: Emitter) -> None:
        """Emit bytecode that brings the real object (reached by source, or already made) to the traced state.

        Called for trackers reported to `tx.side_effects.mutated`.
        """
        raise self.refuse("replaying a change")


class OwnHash:
    """Stands for an object whose class hashes and compares for itself; comparing runs its __eq__ in the traced code."""

    def __init__(self, tx: Any, tracker: VariableTracker, value: int) -> None:
        self.tx = tx
        self.tracker = tracker
        self.value = value

    def __hash__(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, OwnHash):
            return self.tracker is other.tracker or self.tx.compare_equal(self.tracker, other.tracker)
        if isinstance(other, VariableTracker):
            return self.tx.compare_equal(self.tracker, other)
        if isinstance(other, (tuple, frozenset)):
            raise self.tracker.refuse("comparing with a container that is a key")
        return self.tx.compare_equal(self.tracker, self.tx.constant(other))


class LazyVariable(VariableTracker):
    """A real value not yet looked at: no guard is made before the traced code touches it."""

    kind = "lazy"

    def __init__(self, value: Any, source: Any, tx: Any = None) -> None:
        super().__init__(source)
        self.value = value
        self.realized: VariableTracker | None = None
        self._tx = tx

    def as_constant(self) -> Any:
        return self.realize(self._tx).as_constant()

    def as_proxy(self) -> Any:
        return self.realize(self._tx).as_proxy()

    def realize(self, tx: Tracer) -> VariableTracker:
        if self.realized is None:
            self.realized = tx.wrap(self.value, self.source)
            self._tx = None  # what outlives the capture keeps nothing of it alive
        return self.realized

    def python_type(self) -> type:
        return type(self.value)

    def reconstruct(self, emit: Emitter) -> None:
        if self.realized is not None:
            emit.load(self.realized)
        else:
            emit.load_source(self.source)

    def look_inside(self, tx: Tracer) -> VariableTracker:
        return self.realize(tx).look_inside(tx)

    def hash_key(self, tx: Tracer) -> Hashable:
        return self.realize(tx).hash_key(tx)


class BuiltinMethodVariable(VariableTracker):
    """A method of a builtin type bound to its object (`items.append`), looked up but not yet called."""

    kind = "method"

    def __init__(self, receiver: VariableTracker, name: str) -> None:
        super().__init__(None)
        self.receiver = receiver
        self.name = name

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def equals(self, tx: Tracer, other: VariableTracker) -> VariableTracker | None:
        if not isinstance(other, BuiltinMethodVariable):
            return None
        return tx.constant(self.receiver is other.receiver and self.name == other.name)

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        return self.receiver.call_method(tx, self.name, args, kwargs)

    def get_attr(self, tx: Tracer, name: str) -> VariableTracker:
        if name == "__self__":
            return self.receiver
        if name == "__name__":
            return tx.constant(self.name)
        if name == "__call__":
            return self
        return super().get_attr(tx, name)

    def reconstruct(self, emit: Emitter) -> None:
        emit.load(self.receiver)
        emit.load_attr(self.name)


class SlotMethodVariable(BuiltinMethodVariable):
    """A method that a descriptor written in C gives an object, as `object.__init__` does; it is known by its name."""

    def __init__(self, receiver: VariableTracker, name: str, descriptor: Any) -> None:
        super().__init__(receiver, name)
        self.descriptor = descriptor

    def get_attr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in ("__name__", "__qualname__", "__doc__"):
            return tx.constant(getattr(self.descriptor, name))
        return super().get_attr(tx, name)

    def equals(self, tx: Tracer, other: VariableTracker) -> VariableTracker | None:
        same = isinstance(other, SlotMethodVariable) and self.descriptor is other.descriptor
        return super().equals(tx, other) if same else None

    def reconstruct(self, emit: Emitter) -> None:
        VariableTracker.reconstruct(self, emit)  # the name may give the object another method


class InheritedMethodVariable(BuiltinMethodVariable):
    """A method of a class written in C of which the kind knows no more than that it is there."""

    def call(self, tx: Tracer, args: Sequence[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        receiver = self.receiver
        if kwargs or len(args) != _ATTRIBUTE_METHODS.get(self.name, -1):
            raise receiver.refuse(f"calling {self.name!r}")
        name = args[0].realize(tx).as_constant()
        if self.name == "__getattribute__":
            return receiver.get_attr(tx, name)
        if self.name == "__setattr__":
            receiver.set_attr(tx, name, args[1])
        else:
            receiver.del_attr(tx, name)
        return tx.constant(None)


_ATTRIBUTE_METHODS = {"__getattribute__": 1, "__setattr__": 2, "__delattr__": 1}


class KnownVariable(VariableTracker):
    """Base of trackers of an object outside the program that the traced code can't change and that is true."""

    def __init__(self, value: Any, source: Any = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def as_python_object(self) -> Any:
        """The object."""
        return self.value

    def truth(self, tx: Tracer) -> bool:
        return True


def store_attributes(emit: Emitter, tracker: Any) -> None:
    """Set what the traced code set on a tensor that was just made, and is on top of the stack."""
    if tracker.attributes:
        emit.remember(tracker)
    for name, value in tracker.attributes.items():
        emit.copy_top()
        emit.load(value)
        emit.swap(2)
        emit.store_attr(name)


def write_attributes(emit: Emitter, tracker: Any) -> None:
    """Set what the traced code set on a tensor that existed before."""
    for name, value in tracker.attributes.items():
        emit.load(value)
        emit.load(tracker)
        emit.store_attr(name)
