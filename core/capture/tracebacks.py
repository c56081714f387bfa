"""TracebackVariable: the traceback of an exception that the traced code raised.

It grows by a step for each frame that the exception passes, as Python's does; that costs a small object. Where the
program gets to see one, the emitted code makes it of frames that show as the program's.
"""

from __future__ import annotations

import enum
import functools
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import _C
from ..bytecode.pausing import pausing
from ..torch_compat import OpOverload, OpOverloadPacket
from ..variables.base import VariableTracker
from ..variables.exception import ExceptionVariable
from .side_effects import NotGivenBack

if TYPE_CHECKING:
    from ..variables.protocols import Emitter, Tracer

VT = VariableTracker
OPERATORS = (OpOverload, OpOverloadPacket)
REMEDY = "look at tracebacks outside the compiled function"


class Step(NamedTuple):
    """Where an exception passed a frame. offset: of the instruction, in bytes."""

    code: types.CodeType
    globals: dict[str, Any]
    offset: int
    line: int


class TracebackVariable(VariableTracker):
    """A traceback. step: None where an exception passed frames that tracing did not see, those of a function of a
    library that it answers by itself; what then stands there only a run can tell. made_at: the step of the root frame
    at which the exception got here; where: its line."""

    kind = "traceback"

    def __init__(self, step: Step | None, following: VT | None, tx: Any) -> None:
        super().__init__(None)
        self.step = step
        self.following = following
        self.made_at = tx.trace.step
        self.where = tx.line if step is None else None

    def python_type(self) -> type:
        return types.TracebackType

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> VT:
        if self.step is not None and name == "tb_lineno":
            return tx.constant(self.step.line)
        following = self.following
        if self.step is not None and name == "tb_next":
            if following is None:
                return tx.constant(None)
            if not isinstance(following, TracebackVariable) or following.step is not None:
                return following
        raise self.refuse(f"reading {name}", remedy=REMEDY)

    def reconstruct(self, emit: Emitter) -> None:
        if self.step is None:
            what = "the frames that an exception passed in a library are not known"
            raise NotGivenBack(what, self.made_at, where=self.where, remedy=REMEDY)
        emit.load_global_object(types.TracebackType)
        if self.following is None:
            emit.load_const(None)
        else:
            emit.load(self.following)
        emit.load_const(types.FunctionType(_pausing(self.step.code), self.step.globals))
        emit.call(0)
        emit.load_attr("gi_frame")
        emit.load_const(self.step.offset)
        emit.load_const(self.step.line)
        emit.call(4)


@functools.lru_cache(maxsize=256)
def _pausing(code: types.CodeType) -> types.CodeType:
    made = pausing(code)
    _C.skip_code(made)
    return made


def paused_frame(step: Step) -> types.FrameType:
    """A frame that shows as the one that an exception passed."""
    frame: types.FrameType = types.FunctionType(_pausing(step.code), step.globals)().gi_frame
    return frame


def runs_python(fn: Any) -> bool:
    """Whether calling what a tracker stands for, or the method of tensors of a name, runs code written in Python."""
    if isinstance(fn, str):
        fn = getattr(torch.Tensor, fn, None)
    elif isinstance(fn, VariableTracker):
        real = getattr(fn, "fn", None)
        fn = getattr(fn, "cls", None) if real is None else real
    if isinstance(fn, type):
        ours = fn.__module__.partition(".")[0] == "torch" and isinstance(fn.__init__, types.FunctionType)
        return ours or issubclass(type(fn), enum.EnumMeta)
    return isinstance(fn, (types.FunctionType, types.MethodType, *OPERATORS))


def passed(tx: Any, error: VT) -> None:
    """The exception has come up in a frame of the traced code, at its current instruction, or from a call there."""
    if isinstance(error, ExceptionVariable):
        current, code = tx.current, tx.code
        step = Step(code, tx.globals_dict, current.offset, current.line or code.co_firstlineno)
        error.traceback = TracebackVariable(step, error.traceback, tx)


def passed_unseen(tx: Any, error: VT) -> None:
    """The exception comes from a function written in Python that tracing has answered without running its code."""
    if isinstance(error, ExceptionVariable):
        error.traceback = TracebackVariable(None, error.traceback, tx)
