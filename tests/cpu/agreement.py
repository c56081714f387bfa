"""Calling a function eager and compiled side by side: results, arguments, printed text and exceptions must agree."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import traceback
from collections.abc import Callable
from typing import Any

from compare import same

import core


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """(kind, result or exception, what was printed)."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        try:
            result = ("returned", fn(*args))
        except Exception as error:  # noqa: BLE001  whatever the function raises is what is compared
            result = ("raised", error)
    return (*result, text.getvalue())


def lines_of(error: BaseException, fn: Callable[..., Any]) -> list[int]:
    """The lines of the function's own file in the traceback."""
    filename = fn.__code__.co_filename
    return [entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename == filename]


def agree(
    fn: Callable[..., Any], *args: Any, calls: int = 3, compiled: Any = None, settles: bool = True, **options: Any
) -> dict[str, int]:
    """Compare `calls` calls on copies of `args`; the totals of core.stats() afterwards.

    compiled: the compiled function, where it is not core.compile(fn, backend="eager", **options); settles: the last
    call must capture nothing.
    """
    core.reset()
    subject = compiled if compiled is not None else core.compile(fn, backend="eager", **options)
    for call in range(calls):
        frames = core.stats()["frames"]
        ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
        got, want = outcome(subject, ours), outcome(fn, theirs)
        if "raised" in (got[0], want[0]):
            assert (got[0], type(got[1]), str(got[1])) == (want[0], type(want[1]), str(want[1])), (got, want)
            assert lines_of(got[1], fn)[-1:] == lines_of(want[1], fn)[-1:], "the traceback ends at another line"
        else:
            assert same(got[1], want[1]), (got[1], want[1])
        assert got[2] == want[2], "printed text differs"
        assert same(list(ours), list(theirs)), "arguments differ afterwards"
        assert not settles or call < calls - 1 or core.stats()["frames"] == frames, "the last call captured again"
    return core.stats()


def notices_each(make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...], list[Callable[[], None]]]]) -> Any:
    """A test of what `make` gives: a function, its arguments, and changes to make between calls.

    After each change the compiled function must give eager's result, and give it again without another capture.
    """

    @functools.wraps(make, assigned=("__name__", "__module__", "__qualname__", "__doc__"))
    def test() -> None:
        fn, args, changes = make()
        compiled = core.compile(fn, backend="eager")
        assert same(compiled(*args), fn(*args))
        for change in changes:
            change()
            assert same(compiled(*args), fn(*args)), change.__name__
            frames = core.stats()["frames"]
            assert same(compiled(*args), fn(*args))
            assert core.stats()["frames"] == frames, "the entry of the call before did not hold"
        assert core.stats()["breaks"] == core.stats()["skipped"] == 0

    return test
