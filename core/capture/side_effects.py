"""SideEffects: what the traced code changed outside its own frame, in the order it first changed each thing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import Unsupported
from ..variables.base import VariableTracker


class NotGivenBack(Unsupported):
    """An object of the traced code can't become a real one. `made_at`: the step of the root frame that made it."""

    def __init__(self, what: str, made_at: int, **parts: Any) -> None:
        super().__init__(what, **parts)
        self.made_at = made_at


class SideEffects:
    """A log of changed trackers and globals. Replay brings each real object to its final state once."""

    def __init__(self) -> None:
        self._changed: dict[int, VariableTracker] = {}
        self._seal: tuple[int, str, str] | None = None
        self.deferred: list[tuple[Any, list[VariableTracker], dict[str, VariableTracker]]] = []
        self.closing: list[tuple[Any, list[VariableTracker]]] = []
        self.globals: dict[tuple[int, str], tuple[dict[str, Any], Any, VariableTracker | None]] = {}

    @contextmanager
    def sealed(self, reason: str, remedy: str) -> Iterator[None]:
        """While entered, a change of anything older than this moment is refused."""
        outer, self._seal = self._seal, (VariableTracker().made, reason, remedy)
        try:
            yield
        finally:
            self._seal = outer

    def _refuse_if_sealed(self, tracker: VariableTracker | None) -> None:
        if self._seal is not None and (tracker is None or tracker.made < self._seal[0] or not self.is_new(tracker)):
            raise Unsupported(self._seal[1], remedy=self._seal[2])

    def refuse_if_sealed(self) -> None:
        """Something outside the traced code changes by other means than through a tracker."""
        self._refuse_if_sealed(None)

    def older_than(self, moment: int) -> list[VariableTracker]:
        """Changed objects that existed at a moment (a tracker's `made`) or that exist outside the traced code."""
        return [item for item in self._changed.values() if item.made < moment or not self.is_new(item)]

    def mutated(self, tracker: VariableTracker) -> None:
        """`tracker` changes. Objects that the traced code made are made with their end state, by whoever uses them."""
        self._refuse_if_sealed(tracker)
        self._changed.setdefault(id(tracker), tracker)

    def of_kind(self, kind: str) -> list[VariableTracker]:
        """Changed objects of one kind."""
        return [tracker for tracker in self._changed.values() if tracker.kind == kind]

    def is_mutated(self, tracker: VariableTracker) -> bool:
        """True when the object differs from the real one."""
        return id(tracker) in self._changed

    def is_new(self, tracker: VariableTracker) -> bool:
        """True for an object that exists only in the traced code."""
        owner = tracker.payload_of or tracker
        return owner.source is None and not getattr(owner, "held", False)

    def store_global(self, namespace: dict[str, Any], source: Any, name: str, value: VariableTracker | None) -> None:
        """A global was bound, or with None deleted. `source` reaches a foreign namespace; None is the frame's own."""
        self._refuse_if_sealed(None)
        self.globals[(id(namespace), name)] = (namespace, source, value)

    def global_value(self, namespace: dict[str, Any], name: str) -> tuple[bool, VariableTracker | None]:
        """(True, value or None when deleted) where the traced code bound the name."""
        entry = self.globals.get((id(namespace), name))
        return (False, None) if entry is None else (True, entry[2])

    def defer(self, fn: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> None:
        """A call whose result nobody uses (logging, warnings): made for real, in order, after the graph ran."""
        self._refuse_if_sealed(None)
        self.deferred.append((fn, args, kwargs))

    def finally_call(self, fn: Any, args: list[VariableTracker]) -> None:
        """A call without a result that is made for real behind all other effects."""
        self._refuse_if_sealed(None)
        self.closing.append((fn, args))

    def changed(self) -> list[VariableTracker]:
        """Changed objects that exist outside the traced code."""
        return [tracker for tracker in self._changed.values() if not self.is_new(tracker)]

    @property
    def empty(self) -> bool:
        """True when nothing outside needs to change."""
        return not self.globals and not self.deferred and not self.closing and not self.changed()

    def release(self) -> None:
        """Forget everything, after replay was written."""
        self._changed.clear()
        self.deferred.clear()
        self.closing.clear()
        self.globals.clear()
