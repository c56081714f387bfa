"""Numbers that are drawn at random on each call: symbols about which nothing may be assumed, for no guard can hold.

A decision about one is made only where the range of the draw decides it; any other is a graph break.
"""

from __future__ import annotations

from typing import Any

from ..errors import Unsupported, UserLine
from ..torch_compat import data_dependent_errors, shape_guards, tracing
from .symbols import expression

REMEDY = "decide outside the compiled function, or compute with the number instead of deciding by it"


class Chance:
    """The symbols of the numbers that one capture draws."""

    def __init__(self) -> None:
        self.symbols: set[Any] = set()
        self._guards = 0

    def __bool__(self) -> bool:
        return bool(self.symbols)

    def add(self, symbol: Any) -> None:
        """A number more."""
        self.symbols |= expression(symbol).free_symbols

    def decide(self, value: Any, kind: type, line: UserLine | None) -> Any:
        """kind(value) of a symbolic number."""
        if self.symbols and not expression(value).free_symbols.isdisjoint(self.symbols):
            known = tracing.known_by_range(value)
            if known is None:
                raise Unsupported("a decision depends on a random number", where=line, remedy=REMEDY)
            return kind(known)
        try:
            return kind(value)
        except data_dependent_errors():
            raise Unsupported(
                "a decision depends on the values in a tensor",
                remedy="use torch.where or torch.cond, or make the decision outside the compiled function",
            ) from None

    def check(self, env: Any, name: str, line: UserLine | None) -> None:
        """Refuse an operation that assumed something about a number."""
        if not self.symbols:
            return
        guards = shape_guards(env)
        fresh, self._guards = guards[self._guards :], len(guards)
        if any(not guard.free_symbols.isdisjoint(self.symbols) for guard in fresh):
            raise Unsupported(f"{name} depends on the value of a random number", where=line, remedy=REMEDY)

    def is_assumed(self, env: Any) -> bool:
        """Whether anything was assumed of the numbers in the end."""
        guards = shape_guards(env) if self.symbols else ()
        return any(not guard.free_symbols.isdisjoint(self.symbols) for guard in guards)
