"""Raising, catching, with-blocks."""

from __future__ import annotations

from typing import Any

from ...guards.source import AttrSource
from ...variables.base import ObservedException, VariableTracker
from ...variables.exception import ExceptionVariable
from ..tracebacks import passed
from .host import Host

RAISING_AGAIN = ("RERAISE", "CLEANUP_THROW")
"""Opcodes that let an exception go on as it is."""


class ExceptionOpcodes(Host):
    """Handlers of exceptions, and the unwinding that the exception table describes."""

    def unwind(self, raised: ObservedException) -> None:
        """Go to the handler of the current instruction, or let the exception out of this code."""
        entry = self.decoded.handler_of(self.current)
        name = self.current.opname
        if name not in RAISING_AGAIN and (name != "RAISE_VARARGS" or self.current.arg):
            passed(self, raised.value)
        if entry is None:
            try:
                raise raised
            finally:
                del raised  # the traceback leads to this frame: a circle, in which the program's objects would stay
        del self.stack[entry.depth :]
        if entry.lasti:
            self.push(self.constant(self.current.offset))
        self.push(raised.value)
        self.jump(entry.target)

    def PUSH_EXC_INFO(self, instruction: Any) -> None:
        exception = self.pop()
        handled = self.trace.exceptions
        self.push(handled[-1] if handled else self.constant(None))
        handled.append(exception)
        self.push(exception)

    def POP_EXCEPT(self, instruction: Any) -> None:
        self.pop()
        self.trace.exceptions.pop()

    def CHECK_EXC_MATCH(self, instruction: Any) -> None:
        wanted = self.pop()
        self.push(self.constant(self.exception_matches(self.stack[-1], wanted)))

    def exception_matches(self, exception: VariableTracker, wanted: VariableTracker) -> bool:
        """isinstance(exception, wanted) as `except` decides it."""
        classes = wanted.as_constant()
        return issubclass(exception.python_type(), classes)

    def CHECK_EG_MATCH(self, instruction: Any) -> None:
        raise self.unsupported("except* is not traced", "use except")

    def PREP_RERAISE_STAR(self, instruction: Any) -> None:
        raise self.unsupported("except* is not traced", "use except")

    def RERAISE(self, instruction: Any) -> None:
        raise ObservedException(self.pop())

    def RAISE_VARARGS(self, instruction: Any) -> None:
        handled = self.trace.exceptions
        if instruction.arg == 0:
            if not handled:
                self.raise_exception(RuntimeError, "No active exception to reraise")
            raise ObservedException(handled[-1])
        cause = self.pop() if instruction.arg == 2 else None
        exception = self.as_exception(self.pop())
        if cause is not None:
            cause = cause.realize(self)
            text = "exception causes must derive from BaseException"
            made_outside = cause.source is not None and issubclass(cause.python_type(), BaseException)
            if self.is_none(cause):
                exception.cause = None
            else:
                exception.cause = cause if made_outside else self.as_exception(cause, text)
            exception.suppress_context = True
        if handled:
            exception.chain(handled[-1])
        raise ObservedException(exception)

    def as_exception(self, value: VariableTracker, text: str = "exceptions must derive from BaseException") -> Any:
        """The exception that `raise value` raises: value itself, or an instance of the class."""
        value = value.realize(self)
        if value.kind == "class":
            value = self.call_function(value, [])
        if not issubclass(value.python_type(), BaseException):
            self.raise_exception(TypeError, text)
        if not isinstance(value, ExceptionVariable):
            raise self.unsupported("raising an exception object made outside", "make the exception where it is raised")
        return value

    # -- with ------------------------------------------------------------------------------------------------------

    def BEFORE_WITH(self, instruction: Any) -> None:
        manager = self.pop()
        enter, leave = self.special_method(manager, "__enter__"), self.special_method(manager, "__exit__")
        if enter is None or leave is None:
            text = f"'{manager.python_type().__name__}' object does not support the context manager protocol"
            self.raise_exception(TypeError, text if enter is None else f"{text} (missed __exit__ method)")
        self.push(leave)
        self.push(enter.call(self, [], {}))

    def WITH_EXCEPT_START(self, instruction: Any) -> None:
        # stack: __exit__, lasti, previous exception, exception
        leave, exception = self.stack[-4], self.stack[-1]
        cls = self.wrap(exception.python_type(), None, constant=True)
        self.push(leave.call(self, [cls, exception, self.traceback_of(exception)], {}))

    def traceback_of(self, exception: Any) -> Any:
        """exception.__traceback__; that of an exception which Python raised is a real one, to be handed on."""
        real = getattr(exception, "value", None)
        if exception.source is None or not isinstance(real, BaseException):
            return exception.get_attr(self, "__traceback__")
        return self.lazy(real.__traceback__, AttrSource(exception.source, "__traceback__"))

    def CLEANUP_THROW(self, instruction: Any) -> None:
        exception = self.stack[-1]
        if issubclass(exception.python_type(), StopIteration):
            value = exception.get_attr(self, "value")
            self.pop_many(3)
            self.push(self.constant(None))
            self.push(value)
        else:
            raise ObservedException(exception)
