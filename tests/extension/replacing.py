"""Frame callbacks and programs that the tests of frame evaluation share."""

import contextlib
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from core import _C


def first_is(kind: type) -> "_C.GuardProgram":
    """Holds when the first argument slot is exactly of this type."""
    return _C.GuardProgram([("local", 0, 0), ("type_is", 0, kind)], 1)


def copied(code: CodeType) -> CodeType:
    """A code object of its own that does the same."""
    return code.replace(co_name=code.co_name)


def grown(code: CodeType, slots: int = 7) -> CodeType:
    """A copy that asks for more stack, so that its frame is larger."""
    return code.replace(co_stacksize=code.co_stacksize + slots)


class Callback:
    """A callback that logs each call and answers with what `answer(code)` gives."""

    def __init__(self, answer: Callable[[CodeType], Any]) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, str, tuple]] = []

    def __call__(self, owner: Any, code: CodeType, args: tuple, *rest: Any) -> Any:
        self.calls.append((owner, code.co_name, args))
        return self.answer(code)

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.calls]


def copying(closed: bool = False, copy: Callable[[CodeType], CodeType] = copied) -> Callback:
    """A callback that replaces every code by a copy, with no guards."""
    return Callback(lambda code: _C.Entry(None, copy(code), closed))


def only(code: CodeType, answer: Any) -> Callback:
    """A callback that answers for one code object and leaves the others alone for the call."""
    return Callback(lambda seen: answer() if seen is code else False)


@contextlib.contextmanager
def hooked(callback: Any) -> Iterator[None]:
    """The frame hook with this callback on the current thread."""
    _C.install_hook()
    former = _C.set_frame_callback(callback)
    try:
        yield
    finally:
        _C.set_frame_callback(former)
        _C.uninstall_hook()
