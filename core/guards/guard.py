"""Guard: one assumption of a capture (source, check, why, where), and GuardSet, the ordered set of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..errors import UserLine
from .checks import Check
from .source import Source


@dataclass(frozen=True)
class Guard:
    """`check` must hold for the value of `source` (None where the check names its own sources).

    `line` is the user's line that made the assumption, `reason` what it was made for; neither takes part in equality.
    """

    source: Source | None
    check: Check
    line: UserLine | None = field(default=None, compare=False)
    reason: str = field(default="", compare=False)

    def describe(self) -> str:
        """The guard as a statement, such as `L['x'].dtype is torch.float32`."""
        return self.check.describe("" if self.source is None else self.source.name())

    def sources(self) -> tuple[Source, ...]:
        """Every source whose value the guard needs."""
        own = () if self.source is None else (self.source,)
        return (*own, *self.check.inputs())

    def __str__(self) -> str:
        where = f"  ({self.line})" if self.line is not None else ""
        return self.describe() + where


class GuardSet:
    """Guards in the order of their making, each once; the first line and reason of a repeated guard stay."""

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self._guards: dict[Guard, None] = {}
        for guard in guards:
            self.add(guard)

    def add(self, guard: Guard) -> bool:
        """Add a guard; False when an equal one is there already."""
        if guard in self._guards:
            return False
        self._guards[guard] = None
        return True

    def update(self, guards: Iterable[Guard]) -> None:
        """Add several guards."""
        for guard in guards:
            self.add(guard)

    def sources(self) -> list[Source]:
        """The sources that the guards need, each once, in order; steps on the way to them are not listed."""
        return list(dict.fromkeys(source for guard in self._guards for source in guard.sources()))

    def copy(self) -> GuardSet:
        """A set with the same guards, to go back to after a failed attempt."""
        return GuardSet(self._guards)

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards)

    def __len__(self) -> int:
        return len(self._guards)

    def __contains__(self, guard: object) -> bool:
        return guard in self._guards

    def __repr__(self) -> str:
        return "\n".join(str(guard) for guard in self._guards)
