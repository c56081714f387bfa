"""copy.copy and copy.deepcopy over trackers, by the copy module's own rules.

Enters: the tracker to copy, and for a deep copy the memo of the copies made so far. Leaves: the tracker of the copy, an
object that the traced code made. What the rules leave to C code (a reduction of a C class's own) breaks the graph.
"""

from __future__ import annotations

import copy
import copyreg
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import Unsupported
from ..guards.checks import Predicate
from ..guards.source import CallSource
from ..variables.base import VariableTracker
from ..variables.builtin import BuiltinVariable
from ..variables.deque import DequeVariable
from ..variables.function import MethodVariable
from ..variables.instance_dict import InstanceDictVariable
from ..variables.mapping import DictVariable
from ..variables.object import MISSING, UserObjectVariable, find_on_type
from ..variables.partial import PartialVariable
from ..variables.sequence import TupleVariable, is_namedtuple
from .special_calls import function

VT = VariableTracker

ITSELF = frozenset("constant symbolic function builtin class torch_function range slice".split())
OWN_ATTRIBUTES = operator.attrgetter("__dict__")
REMEDY = "copy it outside the compiled function"


class MemoVariable(VariableTracker):
    """The memo of a deep copy, as a user's __deepcopy__ hands it on: copies by the tracker of the original."""

    kind = "memo"

    def __init__(self) -> None:
        super().__init__(None)
        self.copies: dict[int, tuple[VT, VT]] = {}  # the original too, so that its id stays taken

    def python_type(self) -> type:
        return dict

    def truth(self, tx: Any) -> bool:
        return bool(self.copies)


@function(copy.deepcopy)
def deep_copy(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    value, memo = _arguments(tx, args, kwargs)
    if memo is None or memo.is_constant() and memo.as_constant() is None:
        memo = MemoVariable()
    if not isinstance(memo, MemoVariable):
        raise Unsupported("copy.deepcopy with a memo of the program's own is not traced", remedy=REMEDY)
    return Copier(tx, memo)(value)


@function(copy.copy)
def shallow_copy(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    value, _ = _arguments(tx, args, kwargs)
    return Copier(tx, None)(value)


def _arguments(tx: Any, args: Sequence[VT], kwargs: dict[str, VT]) -> tuple[VT, VT | None]:
    given = dict(zip(("x", "memo"), args)) | kwargs
    if "x" not in given or not given.keys() <= {"x", "memo"}:
        raise Unsupported("copy was called with other arguments than it takes", remedy=REMEDY)
    memo = given.get("memo")
    return given["x"].realize(tx), None if memo is None else memo.realize(tx)


class Copier:
    """Copies objects; with a memo deeply, each object once."""

    def __init__(self, tx: Any, memo: MemoVariable | None) -> None:
        self.tx = tx
        self.memo = memo

    @property
    def deep(self) -> bool:
        return self.memo is not None

    def __call__(self, value: VT) -> VT:
        value = value.realize(self.tx)
        if value.kind in ITSELF:
            return value
        if self.memo is not None and id(value) in self.memo.copies:
            return self.memo.copies[id(value)][1]
        maker = MAKERS.get(value.kind)
        if maker is None:
            raise Unsupported(f"copying {value.describe()} is not traced", remedy=REMEDY)
        made = maker(self, value)
        return made if made is value else self.keep(value, made)

    def keep(self, value: VT, made: VT) -> VT:
        """Note the copy before its contents are copied: they may lead back to the original."""
        if self.memo is not None:
            self.memo.copies[id(value)] = (value, made)
        return made

    def inner(self, value: VT) -> VT:
        """What stands in the copy for an object that the original holds."""
        return self(value) if self.deep else value

    def each(self, values: Sequence[VT]) -> list[VT]:
        return [self.inner(value) for value in values]

    # -- builtin containers ----------------------------------------------------------------------------------------

    def list_(self, value: VT) -> VT:
        made = self.keep(value, self.tx.new_list([]))
        for item in value.unpack(self.tx):
            made.call_method(self.tx, "append", [self.inner(item)], {})
        return made

    def tuple_(self, value: VT) -> VT:
        assert isinstance(value, TupleVariable)
        cls = value.python_type()
        if cls is tuple and not self.deep:
            return value
        if cls not in (tuple, torch.Size) and not is_namedtuple(cls) or cls.__dictoffset__:
            raise Unsupported(f"copying {value.describe()} is not traced", remedy=REMEDY)
        items = [item.realize(self.tx) for item in value.unpack(self.tx)]
        copies = self.each(items)
        if self.memo is not None and id(value) in self.memo.copies:  # made meanwhile, by an item that leads back here
            return self.memo.copies[id(value)][1]
        if cls is tuple and all(made is item for made, item in zip(copies, items)):
            return value
        return self.tx.new_tuple(copies, cls)

    def dict_(self, value: VT) -> VT:
        assert isinstance(value, DictVariable)
        cls = value.python_type()
        if cls is types.MappingProxyType:
            raise Unsupported("a mappingproxy can't be copied", remedy=REMEDY)
        factory = value.default_factory
        made = DictVariable({}, cls, default_factory=None if factory is None else self.inner(factory))
        self.keep(value, made)
        for key, item in value.pairs(self.tx):
            made.set_item(self.tx, self.inner(key).realize(self.tx), self.inner(item))
        for name, item in value.attributes.items():
            made.set_attr(self.tx, name, self.inner(item))
        return made

    def instance_dict(self, value: VT) -> VT:
        made = self.keep(value, self.tx.new_dict([]))
        for key in value.unpack(self.tx):
            made.set_item(self.tx, key.realize(self.tx), self.inner(value.get_item(self.tx, key)))
        return made

    def set_(self, value: VT) -> VT:
        if value.python_type() is frozenset and not self.deep:
            return value
        return self.tx.new_set(self.each(value.unpack(self.tx)), value.python_type())

    def deque_(self, value: VT) -> VT:
        assert isinstance(value, DequeVariable)
        made = DequeVariable([], value.items.maxlen)
        self.keep(value, made)
        made.items.extend(self.each(value.unpack(self.tx)))
        return made

    # -- callables -------------------------------------------------------------------------------------------------

    def method(self, value: VT) -> VT:
        if not self.deep:
            return value
        if not isinstance(value, MethodVariable):
            raise Unsupported(f"copying {value.describe()} is not traced", remedy=REMEDY)
        return MethodVariable(value.function, self.inner(value.receiver))

    def partial(self, value: VT) -> VT:
        assert isinstance(value, PartialVariable)
        if value.has_attributes():
            raise Unsupported("copying a partial that has attributes is not traced", remedy=REMEDY)
        keywords = {key: self.inner(item) for key, item in value.kwargs.items()}
        return PartialVariable(self.inner(value.function), self.each(value.args), keywords)

    # -- tensors ---------------------------------------------------------------------------------------------------

    def tensor(self, value: Any) -> VT:
        """A deep copy has storage of its own, shared as the originals share theirs; plain leaves only."""
        fake = value.fake
        plain = not fake.requires_grad and fake._base is None and fake.is_contiguous() and fake.storage_offset() == 0
        if not self.deep or not plain or value.cls is not torch.Tensor or value.attributes:
            raise Unsupported("copying this tensor is not traced", remedy="clone() it")
        if value.source is not None:  # it is copied with what the program has set on it
            own = CallSource(value.source, OWN_ATTRIBUTES)
            if value.real is None or value.real.__dict__:
                raise Unsupported("copying a tensor with attributes is not traced", remedy="clone() it")
            self.tx.guard(value.source, Predicate((own,), operator.not_))
        return self.tx.graph_method("clone", [value], {})

    # -- objects of Python classes ---------------------------------------------------------------------------------

    def object_(self, value: VT) -> VT:
        assert isinstance(value, UserObjectVariable)
        own = self._own_method(value)
        if own is not None:
            return self.tx.call_function(own, [self.memo] if self.memo is not None else [])
        reduced = self._reduced(value)
        if reduced is not None:
            return self._rebuilt(value, reduced)
        self._check_reduction(value)
        made = self.keep(value, self._new(value.cls))
        self._copy_state(value, made)
        if isinstance(value.payload, DictVariable):
            for key, item in value.payload.pairs(self.tx):
                made.set_item(self.tx, self.inner(key).realize(self.tx), self.inner(item))
        elif value.payload is not None:
            for item in value.payload.unpack(self.tx):
                made.call_method(self.tx, "append", [self.inner(item)], {})
        return made

    def _own_method(self, value: UserObjectVariable) -> VT | None:
        """__deepcopy__ is looked up on the object, __copy__ on its class."""
        if not self.deep:
            return value.lookup_special(self.tx, "__copy__")
        nothing = self.tx.constant(None)
        found = BuiltinVariable(getattr).call(self.tx, [value, self.tx.constant("__deepcopy__"), nothing], {})
        return None if found is nothing else found

    def _reduced(self, value: UserObjectVariable) -> VT | None:
        """What a reduction of the class's own gives; None for a class without one."""
        if value.cls in copyreg.dispatch_table:
            return None
        for name, args in (("__reduce_ex__", [self.tx.constant(4)]), ("__reduce__", [])):
            found, _ = find_on_type(value.cls, name)
            if isinstance(found, types.FunctionType):
                return value.call_method(self.tx, name, args, {}).realize(self.tx)
            if name == "__reduce_ex__" and found is not object.__reduce_ex__:
                return None
        return None

    def _rebuilt(self, value: VT, reduced: VT) -> VT:
        if issubclass(reduced.python_type(), str):
            return value
        parts = [part.realize(self.tx) for part in reduced.unpack(self.tx)]
        if self.deep:
            items = [self.tx.new_list(part.unpack(self.tx)) for part in parts[3:] if not self.tx.is_none(part)]
            if len(items) != len(parts[3:]):
                raise Unsupported(f"copying {value.describe()} is not traced", remedy=REMEDY)
            parts[1:] = [self(part) for part in (*parts[1:3], *items)]
        made: VT = self.tx.inline(copy._reconstruct, [value, self.tx.constant(None), *parts])  # type: ignore[attr-defined]
        return made.realize(self.tx)

    def _check_reduction(self, value: UserObjectVariable) -> None:
        """Only the reduction that object.__reduce_ex__ gives by default is followed."""
        cls = value.cls
        rules = (
            find_on_type(cls, "__reduce_ex__")[0] is object.__reduce_ex__,
            find_on_type(cls, "__reduce__")[0] is object.__dict__["__reduce__"],
            find_on_type(cls, "__getnewargs__")[0] is MISSING,
            find_on_type(cls, "__getnewargs_ex__")[0] is MISSING,
            cls not in copyreg.dispatch_table,
            value.kind == "user_object",
            value.payload is None or value.payload.kind in ("list", "dict"),
        )
        if not all(rules):
            raise Unsupported(f"copying {value.describe()} is not traced", remedy=REMEDY)

    def _new(self, cls: type) -> VT:
        new, _ = find_on_type(cls, "__new__")
        maker = new.__func__ if isinstance(new, staticmethod) else new
        owner = self.tx.wrap(cls, None, constant=True)
        if isinstance(maker, types.FunctionType):
            return self.tx.call_function(self.tx.wrap(maker, None, constant=True), [owner])
        return owner.make(self.tx, [], {})

    def _copy_state(self, value: UserObjectVariable, made: VT) -> None:
        tx = self.tx
        getter, _ = find_on_type(value.cls, "__getstate__")
        state: VT
        if isinstance(getter, types.FunctionType):
            state = tx.call_function(tx.wrap(getter, None, constant=True), [value])
        else:
            attributes = self._attributes(value)
            slots = self._slots(value)
            if not attributes and not slots:
                return
            state = tx.new_dict([(tx.constant(name), item) for name, item in attributes.items()])
            if slots:
                pairs = tx.new_dict([(tx.constant(name), item) for name, item in slots.items()])
                state = tx.new_tuple([state if attributes else tx.constant(None), pairs])
        state = state.realize(tx)
        if state.is_constant() and state.as_constant() is None:
            return
        state = self.inner(state)
        setter, _ = find_on_type(made.python_type(), "__setstate__")
        if setter is not MISSING:
            made.call_method(tx, "__setstate__", [state], {})
            return
        own, slots_state = state, None
        if state.kind == "tuple":
            parts = state.unpack(tx)
            if len(parts) == 2:
                own, slots_state = parts[0].realize(tx), parts[1].realize(tx)
        if not (own.is_constant() and own.as_constant() is None):
            InstanceDictVariable(made).call_method(tx, "update", [own], {})  # type: ignore[arg-type]
        if slots_state is not None and slots_state.kind == "dict":
            for key in slots_state.unpack(tx):
                made.set_attr(tx, key.realize(tx).as_constant(), slots_state.get_item(tx, key))

    def _attributes(self, value: UserObjectVariable) -> dict[str, VT]:
        """The instance dict, its set of names guarded."""
        if value.cls.__dictoffset__ == 0:
            return {}
        space = value.get_attr(self.tx, "__dict__")
        if not isinstance(space, InstanceDictVariable) or space.owner is not value:
            raise Unsupported(f"copying {value.describe()} is not traced", remedy=REMEDY)
        found = {key.realize(self.tx).as_constant(): space.get_item(self.tx, key) for key in space.unpack(self.tx)}
        for name in self._slot_names(value.cls):
            found.pop(name, None)
        return found

    def _slots(self, value: UserObjectVariable) -> dict[str, VT]:
        found = {}
        nothing = self.tx.constant(None)
        missing = self.tx.new_tuple([nothing])
        for name in self._slot_names(value.cls):
            item = BuiltinVariable(getattr).call(self.tx, [value, self.tx.constant(name), missing], {})
            if item is not missing:
                found[name] = item
        return found

    @staticmethod
    def _slot_names(cls: type) -> list[str]:
        return [
            name
            for base in cls.__mro__
            for name, raw in vars(base).items()
            if isinstance(raw, types.MemberDescriptorType) and base.__module__ != "builtins"
        ]


MAKERS: dict[str, Callable[[Copier, Any], VT]] = {
    "list": Copier.list_,
    "tuple": Copier.tuple_,
    "dict": Copier.dict_,
    "instance_dict": Copier.instance_dict,
    "set": Copier.set_,
    "deque": Copier.deque_,
    "method": Copier.method,
    "partial": Copier.partial,
    "tensor": Copier.tensor,
    "user_object": Copier.object_,
}
