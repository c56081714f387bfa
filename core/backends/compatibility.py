"""Does a plugin fit this process? Its ranges against the versions here, and which side to change when not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..plugin import PLUGIN_API
from .versions import side_of

_SIDES = {"plugin_api": "plugin API", "core": "core", "torch": "torch", "python": "Python"}


@dataclass(frozen=True)
class Mismatch:
    """One range that a version falls out of. where: "below" the range, "above" it, or "outside" (a hole in it)."""

    side: str
    wanted: str
    have: str
    where: str

    def __str__(self) -> str:
        return f"needs {self.side.replace('_', ' ')} {self.wanted}, this process has {self.have}"

    @property
    def untested(self) -> bool:
        """A newer torch than the plugin was tested with: a warning, and a refusal only under CORE_STRICT."""
        return self.side == "torch" and self.where == "above"

    def remedy(self, distribution: str) -> str:
        """Which side to change. Core changes with its plugin API."""
        ours = "core" if self.side == "plugin_api" else self.side
        if self.where == "below":
            if self.side == "python":
                return f"use Python {self.wanted}, or another version of {distribution}"
            line = "pip install --upgrade core" if ours == "core" else f'pip install "{ours}{self.wanted}"'
            return f"upgrade {ours}: {line}; or install an older {distribution}"
        if self.where == "above":
            reason = ""
            if self.side == "plugin_api":
                reason = f" (core speaks plugin API {PLUGIN_API[0]} and no earlier major)"
            return f"upgrade {distribution}{reason}: pip install --upgrade {distribution}"
        return f"bring {ours} into {self.wanted}, or install another version of {distribution}"


def mismatches(ranges: Mapping[str, str], versions: Mapping[str, str]) -> list[Mismatch]:
    """One Mismatch for each range that `versions` falls out of; both have the keys plugin_api, core, torch, python."""
    found = []
    for side in _SIDES:
        wanted, have = ranges.get(side, ""), versions.get(side)
        where = side_of(have, wanted) if wanted and have else ""
        if have and where:
            found.append(Mismatch(side, wanted, have, where))
    return found


def described(versions: Mapping[str, str]) -> str:
    """`core 0.1.0 with plugin API 1.0, torch 2.13.0, Python 3.11.7`: what stands on this side of a mismatch."""
    named = [f"{_SIDES[side]} {versions[side]}" for side in ("torch", "python") if side in versions]
    return ", ".join([f"core {versions.get('core', '?')} with plugin API {versions.get('plugin_api', '?')}", *named])
