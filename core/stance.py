"""set_stance: how compiled callables of the process run from now on, without compiling them anew.

Enters: a stance. Leaves: bits for the C side, and the answer to what a miss may do. No torch is imported here. State
shared between threads: `_current` and `_followed`, frozen objects that are replaced as a whole, under the GIL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _C
from .errors import InvalidOption

STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile")

_EAGER, _SKIP_GUARDS, _REDIRECT, _ASK = 1, 2, 4, 8  # of core/_C/core.h


@dataclass(frozen=True)
class Stance:
    """What is in force. force_backend: None, or what takes the place of every callable's own backend."""

    name: str = "default"
    skip_guards: bool = False
    force_backend: Any = None

    @property
    def bits(self) -> int:
        """For the C side."""
        bits = _EAGER if self.name == "force_eager" else 0
        bits |= _ASK if self.name == "fail_on_recompile" or self.skip_guards else 0
        bits |= _SKIP_GUARDS if self.skip_guards else 0
        return bits | (_REDIRECT if self.force_backend is not None else 0)


_current = Stance()
_followed = Stance()  # of torch.compiler.set_stance
_redirect: Callable[[Any], Any] | None = None

_NAMES_OF_TORCH = {"aot_eager_then_compile": "eager_then_compile"}


def current() -> Stance:
    """The stance in force: that of set_stance where it is no default, else that of torch.compiler.set_stance."""
    return _followed if _current == Stance() else _current


def follow(name: str, skip_guards: bool, force_backend: Any) -> None:
    """Take over a stance that torch.compiler.set_stance was given."""
    global _followed
    name = _NAMES_OF_TORCH.get(name, name)
    _followed = Stance(name, skip_guards, _own_name(force_backend)) if name in STANCES else Stance()
    _apply(_current)


def _own_name(backend: Any) -> Any:
    """The backend of core behind one that core.bridge publishes; another as it is."""
    published = getattr(backend, "__module__", None) == f"{__package__}.bridge"
    name = backend.__name__ if published else backend
    if isinstance(name, str) and (name == __package__ or name.startswith(f"{__package__}_")):
        return name[len(__package__) + 1 :] or None
    return backend


def redirect_by(function: Callable[[Any], Any]) -> None:
    """Tell how a callable is found that runs another one's function on the forced backend."""
    global _redirect
    _redirect = function
    _apply(_current)


class StanceChange:
    """What set_stance returns: the change is made already; leaving its `with` block, it is undone."""

    def __init__(self, wanted: Stance) -> None:
        self._wanted = wanted
        self._before: list[Stance] = [_current]
        self._entered = False
        _apply(wanted)

    def __enter__(self) -> None:
        if self._entered:  # once more: the first time it was in force already
            self._before.append(_current)
            _apply(self._wanted)
        self._entered = True

    def __exit__(self, *raised: object) -> None:
        _apply(self._before.pop() if self._before else Stance())

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """As a decorator: the stance holds while `fn` runs, and only then."""
        _apply(self._before.pop() if self._before else Stance())

        @functools.wraps(fn)
        def under_stance(*args: Any, **kwargs: Any) -> Any:
            with StanceChange(self._wanted):
                return fn(*args, **kwargs)

        return under_stance


def set_stance(
    stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
) -> StanceChange:
    """Say how compiled callables run from now on: a statement, a `with` block or a decorator.

    stance: "default"; "force_eager" runs them as written; "eager_on_recompile" uses the entries there are and runs new
    cases as written; "fail_on_recompile" raises RecompileRefused for a new case; "eager_then_compile" runs the first
    call of each callable as written and compiles the second, so that sizes that differ are symbolic at once.
    skip_guard_eval_unsafe: a callable with one entry runs it without asking its guards, which gives wrong results when
    they would not hold; a miss raises. force_backend: with "default" only, the backend in place of each callable's own.
    """
    if stance not in STANCES:
        raise InvalidOption(
            f"stance {stance!r} is not known", instead="nothing was changed", remedy=f"use one of {', '.join(STANCES)}"
        )
    if force_backend is not None and stance != "default":
        raise InvalidOption(
            f"force_backend goes with the stance 'default', not with {stance!r}",
            instead="nothing was changed",
            remedy="drop one of the two",
        )
    return StanceChange(Stance(stance, skip_guard_eval_unsafe, force_backend))


def _apply(stance: Stance) -> None:
    global _current
    _current = stance
    stance = current()
    _C.set_stance(stance.bits if _redirect is not None else stance.bits & ~_REDIRECT, _redirect)
