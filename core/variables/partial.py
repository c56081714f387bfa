"""PartialVariable: functools.partial, made by the traced code or outside."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..guards.checks import DictKeys, TypeIs
from ..guards.source import AttrSource, DictItemSource, TupleItemSource
from .base import VariableTracker
from .own_attributes import OwnAttributes

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker


class PartialVariable(OwnAttributes, VariableTracker):
    """A partial call. `value` is the real object, `written` are attributes that the traced code gave it."""

    kind = "partial"
    mutable = True
    cls: type = functools.partial

    def __init__(self, function: VT, args: list[VT], kwargs: dict[str, VT], source: Any = None, value: Any = None):
        super().__init__(source)
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.value = value
        self.keywords: VT | None = None
        self.written: dict[str, VT] = {}

    @classmethod
    def from_value(cls, tx: Tracer, value: functools.partial[Any], source: Any) -> PartialVariable:
        """The tracker of a real partial; its parts are guarded when they are used."""
        tx.guard(source, TypeIs(functools.partial))

        def part(name: str) -> Any:
            return AttrSource(source, name) if source is not None else None

        args = [
            tx.lazy(item, TupleItemSource(part("args"), i) if source is not None else None)
            for i, item in enumerate(value.args)
        ]
        kwargs = {
            key: tx.lazy(item, DictItemSource(part("keywords"), key) if source is not None else None)
            for key, item in value.keywords.items()
        }
        if source is not None:
            tx.guard(part("keywords"), DictKeys(tuple(value.keywords)))
        return cls(tx.wrap(value.func, part("func")), args, kwargs, source, value)

    @classmethod
    def make(cls, tx: Tracer, fn: VT, args: list[VT], kwargs: dict[str, VT]) -> PartialVariable:
        """functools.partial(fn, *args, **kwargs); a partial without attributes of its own is taken apart."""
        if isinstance(fn, PartialVariable) and not fn.has_attributes():
            return cls(fn.function, [*fn.args, *args], {**fn.given(tx), **kwargs})
        return cls(fn, args, kwargs)

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        return tx.call_function(self.function, [*self.args, *args], {**self.given(tx), **kwargs})

    # -- attributes ------------------------------------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if name == "func":
            return self.function
        if name == "args":
            return tx.new_tuple(self.args)
        if name == "keywords":
            return self._keywords(tx)
        if name == "__call__":
            return self
        found = self.own_attribute(tx, name)
        if found is not None:
            return found
        if name == "__dict__":
            return self._attributes(tx)
        inherited = self.inherited(tx, name)
        if inherited is not None:
            return inherited
        tx.raise_exception(AttributeError, f"'functools.partial' object has no attribute '{name}'")

    def _keywords(self, tx: Tracer) -> VT:
        """The dict, of which there is one; what is done to it shows in calls."""
        if self.keywords is None and self.value is not None:
            source = self.source and AttrSource(self.source, "keywords")
            self.keywords = tx.wrap(self.value.keywords, source).realize(tx)
        elif self.keywords is None:
            self.keywords = tx.new_dict([(tx.constant(key), value) for key, value in self.kwargs.items()])
        return self.keywords

    def given(self, tx: Tracer) -> dict[str, VT]:
        """The keywords as they are now."""
        if self.keywords is not None:
            pairs = self.keywords.pairs(tx)  # type: ignore[attr-defined]
            self.kwargs = {key.realize(tx).as_constant(): value for key, value in pairs}
        return self.kwargs

    def _attributes(self, tx: Tracer) -> VT:
        if self.value is not None:
            raise self.refuse("reading attribute '__dict__'")
        return tx.new_dict([(tx.constant(key), value) for key, value in self.written.items()])

    def set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if name in ("func", "args", "keywords"):
            tx.raise_exception(AttributeError, "readonly attribute")
        if name in ("__dict__", "__class__"):
            raise self.refuse(f"setting attribute {name!r}")
        tx.side_effects.mutated(self)
        self.written[name] = value

    # -- coming back -----------------------------------------------------------------------------------------------

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.cls)
        emit.load(self.function)
        keywords = self.kwargs if self.keywords is None else {}
        for value in (*self.args, *keywords.values()):
            emit.load(value)
        if keywords:
            emit.call_keywords(tuple(keywords), 1 + len(self.args) + len(keywords))
        else:
            emit.call(1 + len(self.args))
        emit.remember(self)
        if self.keywords is not None:
            self._emit_keywords(emit)
        self.emit_written(emit)

    def _emit_keywords(self, emit: Emitter) -> None:
        # stack: partial -> partial; it takes the dict itself, which others may hold as well
        emit.copy_top()
        emit.push_null_under(1)
        emit.load_global_object(functools.partial)
        emit.load_attr("__setstate__")
        emit.swap(2)
        emit.load(self.function)
        for value in self.args:
            emit.load(value)
        emit.build_tuple(len(self.args))
        assert self.keywords is not None
        emit.load(self.keywords)
        emit.load_const(None)
        emit.build_tuple(4)
        emit.call(2)
        emit.pop_top()
