"""The text of an exception that the traced code has raised, as traceback.format_exc and format_exception write it.

It is made of the exception and of the frames that it has passed, all of which tracing knows, by the functions
themselves.
"""

from __future__ import annotations

import traceback
import types
from typing import Any

from ..errors import Unsupported
from ..variables.base import VariableTracker
from ..variables.exception import ExceptionVariable
from .host_calls import known
from .special_calls import function
from .tracebacks import TracebackVariable, paused_frame

VT = VariableTracker
SAYS_MORE = (AttributeError, NameError, ImportError, SyntaxError)  # by what C code fills in when it raises one
OF_ARGUMENTS = (BaseException.__str__, KeyError.__str__)
REMEDY = "format exceptions outside the compiled function"


@function(traceback.format_exc)
def format_exc(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """The text of the exception being handled."""
    handled = tx.trace.exceptions
    if args or not handled:
        raise _refusal("traceback.format_exc() here")
    return tx.constant("".join(_lines(tx, handled[-1], kwargs)))  # type: ignore[no-any-return]


@function(traceback.format_exception)
def format_exception(tx: Any, args: list[VT], kwargs: dict[str, VT]) -> VT:
    """Its lines: of the exception alone, or of its class, itself and its own traceback."""
    given = [arg.realize(tx) for arg in args]
    whole = len(given) == 3 and getattr(given[1], "traceback", None) is given[2]
    if len(given) != 1 and not whole:
        raise _refusal("traceback.format_exception() with these arguments")
    return tx.new_list([tx.constant(line) for line in _lines(tx, given[whole], kwargs)])  # type: ignore[no-any-return]


def _lines(tx: Any, error: VT, kwargs: dict[str, VT]) -> list[str]:
    _, settings = known(tx, "format_exception", [], kwargs)
    return traceback.format_exception(_real(tx, error, {}), **settings)


def _real(tx: Any, error: VT, made: dict[int, BaseException]) -> BaseException:
    """An exception that shows as the traced one does."""
    if id(error) in made:
        return made[id(error)]
    if not isinstance(error, ExceptionVariable) or error.written:
        raise _refusal("the text of this exception")
    cls = error.cls
    filled = error.raised_by_python and (issubclass(cls, SAYS_MORE) or cls.__str__ not in OF_ARGUMENTS)
    in_python = isinstance(cls.__str__, types.FunctionType)
    if filled or in_python or tx.is_unreal(cls) or not all(arg.is_constant() for arg in error.args):
        raise _refusal(f"the text of this {cls.__name__}")
    values = [arg.as_constant() for arg in error.args]
    real = made[id(error)] = cls.__new__(cls, *values)  # type: ignore[call-overload]
    real.args = tuple(values)
    if error.cause is not None and not _is_none(error.cause):
        real.__cause__ = _real(tx, error.cause, made)
    if error.context is not None and not _is_none(error.context):
        real.__context__ = _real(tx, error.context, made)
    real.__suppress_context__ = error.suppress_context
    real.__traceback__ = _real_traceback(error.traceback)
    return real


def _is_none(value: VT) -> bool:
    return value.is_constant() and value.as_constant() is None


def _real_traceback(steps: Any) -> types.TracebackType | None:
    if steps is None:
        return None
    if not isinstance(steps, TracebackVariable) or steps.step is None:
        raise _refusal("the text of a traceback whose frames are not known")
    following = _real_traceback(steps.following)
    return types.TracebackType(following, paused_frame(steps.step), steps.step.offset, steps.step.line)


def _refusal(what: str) -> Unsupported:
    return Unsupported(f"{what} is not traced", remedy=REMEDY)
