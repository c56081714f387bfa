"""Call, change something that the program reads, call again: the compiled program must follow eager's results.

A mutation is a function that builds a world anew and gives (fn, args, change) or (fn, args, change, another change
...): `args()` makes the arguments of a call. It takes an ExitStack, on which it leaves what puts the process back.
The eager program and the compiled one live in worlds of their own, so that a call that consumes an iterator, counts
or writes is compared too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from observed import snapshot

import core
import core.errors


def equal(left: Any, right: Any) -> bool:
    """Equal in type, dtype, shape, strides, gradient and value; what can't be compared by == is compared by type."""
    if isinstance(left, torch.Tensor):
        left, right = (t.as_subclass(torch.Tensor) if isinstance(t, torch.Tensor) else t for t in (left, right))
        same_kind = isinstance(right, torch.Tensor) and left.dtype == right.dtype and left.shape == right.shape
        return same_kind and left.stride() == right.stride() and torch.equal(left.nan_to_num(7), right.nan_to_num(7))
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(equal(left[key], right[key]) for key in left)
    return left == right if isinstance(left, (int, float, str, bool, complex, type(None), torch.dtype)) else True


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What a call shows: its result, its arguments afterwards, or its exception."""
    try:
        result = snapshot(fn(*args))
    except core.errors.CoreError:
        raise
    except Exception as error:  # noqa: BLE001  whatever the program raises is what is compared
        return ["raised", type(error).__name__, str(error)]
    return ["returned", result, snapshot([arg for arg in args if isinstance(arg, torch.Tensor)])]


def history(mutation: Callable[[contextlib.ExitStack], tuple], compiled: Callable[[Any], Any]) -> tuple[list, list]:
    """(what each call showed, frames captured up to each call): two calls, then two more after each change."""
    seen, frames = [], []
    with contextlib.ExitStack() as later:
        fn, args, *changes = mutation(later)
        subject = compiled(fn)
        for change in [lambda: None, *changes]:
            change()
            for _ in range(2):
                seen.append(outcome(subject, args()))
                frames.append(core.stats()["frames"])
    return seen, frames


def check_mutation(mutation: Callable[[contextlib.ExitStack], tuple], **options: Any) -> None:
    """The compiled program follows the changes as eager does, and captures nothing on a call without one."""
    wish = getattr(mutation, "wish", {})
    torch.manual_seed(0)
    want, _ = history(mutation, lambda fn: fn)
    if wish.get("matters", True):
        assert any(not equal(want[0], later) for later in want[2:]), "the change changes nothing in eager"
    core.reset()
    torch.manual_seed(0)
    got, frames = history(
        mutation, lambda fn: core.compile(fn, **{"backend": "eager", "recompile_limit": 64, **options})
    )
    for call, (ours, theirs) in enumerate(zip(got, want)):
        assert equal(ours, theirs), f"call {call}: {ours} in place of {theirs}"
    stats = core.stats()
    if wish.get("captured", True):
        assert stats["graphs"] > 0 and stats["skipped"] == 0, stats
        assert stats["breaks"] == 0, stats
    if wish.get("settles", True):
        assert frames[-1] == frames[-2], frames


def wishes(**wish: bool) -> Callable[[Any], Any]:
    """matters=False: eager shows no difference; captured=False: the program may break; settles=False: each call may
    capture."""

    def mark(mutation: Any) -> Any:
        mutation.wish = wish
        return mutation

    return mark


def turned(owner: Any, name: str, later: Any) -> Callable[[], None]:
    """What makes a flag its opposite; `later` puts it back."""
    before = getattr(owner, name)
    later.callback(setattr, owner, name, before)
    return lambda: setattr(owner, name, not before)
