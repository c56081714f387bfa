"""ExceptionVariable: an exception object raised or made by the traced code."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .base import BuiltinMethodVariable, VariableTracker, find_special
from .literal import from_result
from .object import FIELDS, UserObjectVariable, find_on_type
from .slot_results import checked

if TYPE_CHECKING:
    from .protocols import Emitter, Tracer

VT = VariableTracker
HEAP_TYPE = 1 << 9
NOTES = "__notes__"
PLAIN_TEXT = (BaseException, KeyError, AttributeError, NameError, ImportError)  # the text is that of their arguments


class ExceptionVariable(UserObjectVariable):
    """An exception. Links to other exceptions are kept as Python keeps them."""

    kind = "exception"

    def __init__(self, cls: type[BaseException], args: list[VT], kwargs: dict[str, VT] | None = None) -> None:
        super().__init__(cls)
        self.args = args
        self.given = (args, kwargs or {})  # what its class was called with
        self.raised_by_python = False  # by C code, which also fills in what its arguments don't say
        self.cause: VT | None = None
        self.context: VT | None = None
        self.suppress_context = False
        self.traceback: VT | None = None

    def init_base(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        """BaseException.__init__."""
        self.args = list(args)
        return tx.constant(None)

    def chain(self, handled: VT) -> None:
        """The exception is raised while `handled` is being handled."""
        if handled is self:
            return
        link = handled
        while isinstance(link, ExceptionVariable) and link.context is not None:  # no cycle may come of it
            if link.context is self:
                link.context = None
                break
            link = link.context
        self.context = handled

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            function = find_special(self.cls, name)
            if isinstance(function, types.FunctionType):
                answer = tx.call_function(tx.wrap(function, None, constant=True), [self])
                return tx.truth(checked(tx, name, self.cls, answer))
        return True

    def plain_get_attr(self, tx: Tracer, name: str) -> VT:
        none = tx.constant(None)
        if name == "args":
            return tx.new_tuple(self.args)
        if name == "__cause__":
            return self.cause or none
        if name == "__context__":
            return self.context or none
        if name == "__suppress_context__":
            return tx.constant(self.suppress_context)
        if name == "__traceback__":
            return self.traceback or none
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else none
        if name == "with_traceback":
            return WithTracebackVariable(self)
        if name == "add_note" and find_on_type(self.cls, name)[1] is BaseException:
            return BuiltinMethodVariable(self, name)
        raw, base = find_on_type(self.cls, name)
        if name not in self.written and base not in (None, BaseException) and isinstance(raw, FIELDS):
            return from_result(tx, getattr(self._example(), name))
        return super().plain_get_attr(tx, name)

    def _example(self) -> Any:
        """A real exception of the class written in C that this one extends, made with the same arguments."""
        args, kwargs = self.given
        known = all(value.is_constant() for value in (*args, *kwargs.values()))
        tells_all = issubclass(self.cls, SyntaxError)  # in its arguments, also where the parser raises it
        if self.raised_by_python and not tells_all or not known:
            raise self.refuse("reading what C code stored", remedy="look at args")
        base = next(base for base in self.cls.__mro__ if not base.__flags__ & HEAP_TYPE)
        return base(*(arg.as_constant() for arg in args), **{key: value.as_constant() for key, value in kwargs.items()})

    def plain_set_attr(self, tx: Tracer, name: str, value: VT) -> None:
        if name == "__cause__":
            self.cause, self.suppress_context = value, True
        elif name == "__context__":
            self.context = value
        elif name == "__suppress_context__":
            self.suppress_context = value.as_constant()
        elif name == "args":
            self.args = value.unpack(tx)
        elif name == "__traceback__":
            self.set_traceback(tx, value)
        else:
            super().plain_set_attr(tx, name, value)

    def set_traceback(self, tx: Tracer, value: VT) -> None:
        """`error.__traceback__ = value`."""
        value = value.realize(tx)
        if value.kind == "constant" and value.as_constant() is None:
            self.traceback = None
        elif value.python_type() is types.TracebackType:
            self.traceback = value
        else:
            tx.raise_exception(TypeError, "__traceback__ must be a traceback or None")

    def call_method(self, tx: Tracer, name: str, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        raw, base = find_on_type(self.cls, name)
        in_c = name in ("__str__", "__repr__") and not isinstance(raw, types.FunctionType)
        if in_c and all(arg.look_inside(tx).is_constant() for arg in self.args):
            if base not in PLAIN_TEXT:
                example = self._example()
                for field in self.written:
                    if isinstance(find_on_type(self.cls, field)[0], FIELDS):
                        if not self.written[field].is_constant():
                            raise self.refuse(f"{name} after a change of its fields")
                        setattr(example, field, self.written[field].as_constant())
                return tx.constant(str(example) if name == "__str__" else repr(example))
            example = BaseException(*(arg.as_constant() for arg in self.args))
            text = str(example)
            if name == "__repr__":
                text = self.cls.__name__ + repr(example)[len("BaseException") :]
            elif issubclass(self.cls, KeyError) and len(self.args) == 1:
                text = repr(self.args[0].as_constant())
            return tx.constant(text)
        if name == "with_traceback":
            self.set_traceback(tx, args[0])
            return self
        if name == "add_note" and base is BaseException and len(args) == 1 and not kwargs:
            return self._add_note(tx, args[0].realize(tx))
        return super().call_method(tx, name, args, kwargs)

    def _add_note(self, tx: Tracer, note: VT) -> VT:
        if not issubclass(note.python_type(), str):
            tx.raise_exception(TypeError, f"note must be a str, not '{note.python_type().__name__}'")
        notes = self.own_attribute(tx, NOTES)
        if notes is None:
            self.set_attr(tx, NOTES, tx.new_list([note]))
        elif not issubclass(notes.python_type(), list):
            tx.raise_exception(TypeError, "Cannot add note: __notes__ is not a list")
        else:
            notes.call_method(tx, "append", [note], {})
        return tx.constant(None)

    def reconstruct(self, emit: Emitter) -> None:
        emit.push_null()
        emit.load_global_object(self.cls.__new__)
        emit.load_global_object(self.cls)
        for arg in self.args:
            emit.load(arg)
        emit.call(1 + len(self.args))
        emit.remember(self)
        emit.copy_top()
        for arg in self.args:
            emit.load(arg)
        emit.build_tuple(len(self.args))
        emit.swap(2)
        emit.store_attr("args")
        for name, value in self.written.items():
            emit.copy_top()
            self._emit_store(emit, name, value)
        links = (("__cause__", self.cause), ("__context__", self.context), ("__traceback__", self.traceback))
        for name, link in links:
            if link is not None:
                emit.copy_top()
                emit.load(link)
                emit.swap(2)
                emit.store_attr(name)
        if self.suppress_context != (self.cause is not None):  # `raise ... from None` leaves no link
            emit.copy_top()
            emit.load_const(self.suppress_context)
            emit.swap(2)
            emit.store_attr("__suppress_context__")


class WithTracebackVariable(VariableTracker):
    """`exception.with_traceback`."""

    kind = "method"

    def __init__(self, exception: Any) -> None:
        super().__init__(None)
        self.exception = exception

    def call(self, tx: Tracer, args: Sequence[VT], kwargs: dict[str, VT]) -> VT:
        self.exception.set_traceback(tx, args[0])
        return self.exception
