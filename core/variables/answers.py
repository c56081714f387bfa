"""Answers that tracing took from a function that no graph holds: each call of the program asks again, in a guard.

Enters: a function of the process's or of torch's state, its arguments and what it answered. Leaves: a guard.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..guards.checks import Predicate
from ..guards.held import Held
from ..guards.source import ConstSource
from .literal import is_literal

if TYPE_CHECKING:
    from .protocols import Tracer


def guard_answer(tx: Tracer, fn: Callable[..., Any], values: Sequence[Any], answer: Any) -> None:
    """Assume that fn(*values) goes on giving `answer`. Values and answer must compare by value, and are kept alive."""
    source = ConstSource(fn)
    tx.guard(source, Predicate((source,), Answers(tuple(values), answer)))


def guard_state(tx: Tracer, fn: Callable[..., Any], values: Sequence[Any], answer: Any) -> None:
    """Assume it for a question about state: one of literals, whose answer is a literal."""
    if is_literal(answer) and all(map(is_literal, values)):
        guard_answer(tx, fn, values, answer)


def guard_registered(tx: Tracer, own: type, cls: type) -> None:
    """Assume that `own` does not become a subclass of an abstract class by being registered with it."""
    if isinstance(cls, abc.ABCMeta) and not tx.is_unreal(cls) and not tx.is_unreal(own):
        source = ConstSource(cls)
        tx.guard(source, Predicate((source,), NotRegistered(own)))


class Answers:
    """The function still gives the same answer to these values."""

    def __init__(self, values: tuple[Any, ...], answer: Any) -> None:
        self.values = values
        self.answer = answer

    def __call__(self, fn: Callable[..., Any]) -> bool:
        now = fn(*self.values)
        return type(now) is type(self.answer) and bool(now == self.answer)

    def _content(self) -> tuple[Any, ...]:
        return (type(self.answer), self.answer, *((type(value), value) for value in self.values))

    def __eq__(self, other: object) -> bool:
        return type(other) is Answers and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())


class NotRegistered:
    """A class is no subclass of an abstract one. While nothing is registered anywhere, that is not asked again."""

    def __init__(self, own: type) -> None:
        self.own = Held(own)
        self.token = abc.get_cache_token()

    def __call__(self, cls: type) -> bool:
        token = abc.get_cache_token()
        if token != self.token:
            own = self.own.get()
            if own is None or issubclass(own, cls):
                return False
            self.token = token
        return True

    def __eq__(self, other: object) -> bool:
        return type(other) is NotRegistered and self.own == other.own

    def __hash__(self) -> int:
        return hash(self.own)
