"""Backends that cheat, each in one way, and three that don't: what the suite is tested with.

Enters: nothing. Leaves: Backend classes, to be given to `core.compile(backend=...)` or to the suite by themselves; none
is an entry point. `CHEATS` and `HONEST` name them all. They must not know which tests look at them.
"""

from __future__ import annotations

from core.plugin import Backend

from . import arithmetic, cards, claims, failing, gradients, honest, process, remembered, storing, surroundings
from .interpreter import Interpreted, Program

_MODULES = (arithmetic, remembered, gradients, claims, failing, process, surroundings, storing)


def _backends(module: object) -> dict[str, type[Backend]]:
    """The backends that a module defines, by name."""
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Backend) and value.__module__ == module.__name__  # type: ignore[attr-defined]
    ]
    return {kind.name: kind for kind in own if kind.name}


CHEATS: dict[str, type[Backend]] = {
    name: kind
    for module in _MODULES
    for name, kind in _backends(module).items()
    if kind.__name__[0] != "_" and name.startswith("evil-")
}
"""Every cheat that can be made in this process; `on_import.ChangesSettingsOnImport` needs one of its own."""

ON_CARDS: dict[str, type[Backend]] = _backends(cards)
"""Cheats that need a GPU to be seen."""

HONEST: dict[str, type[Backend]] = _backends(honest)
"""Backends that must pass, or be refused where they say so."""

__all__ = ["CHEATS", "HONEST", "ON_CARDS", "Interpreted", "Program"]
