"""Version numbers and version ranges, as manifests write them (`>=2.11,<3`), compared without importing anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

_VERSION = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)[-_.]?(?:(?P<stage>dev|a|alpha|b|beta|rc|c|post)[-_.]?(?P<number>\d*))?"
)
_CLAUSE = re.compile(r"(?P<operator>~=|==|!=|<=|>=|<|>)\s*(?P<version>[^\s,]+?)(?P<wildcard>\.\*)?$")
_STAGES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1, "c": -1, "post": 1}


@dataclass(frozen=True, order=True)
class Version:
    """A parsed version. Ordering follows release, then stage (dev < alpha < beta < rc < final < post)."""

    release: tuple[int, ...]
    stage: int = 0
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Version:
        """Parse `2.13.0+cpu`, `3.12`, `1.0rc1`; the local part is dropped. Raises ValueError for anything else."""
        match = _VERSION.match(text.strip().lower().partition("+")[0])
        if match is None:
            raise ValueError(f"{text!r} is not a version")
        release = tuple(int(part) for part in match["release"].split("."))
        while len(release) > 1 and release[-1] == 0:
            release = release[:-1]
        return cls(release, _STAGES.get(match["stage"] or "", 0), int(match["number"] or 0))

    def starts_with(self, prefix: Version, length: int) -> bool:
        """True when the first `length` release numbers equal those of `prefix` (missing numbers count as zero)."""
        mine, other = (v.release + (0,) * length for v in (self, prefix))
        return mine[:length] == other[:length]


def _clause_holds(version: Version, clause: str) -> bool:
    match = _CLAUSE.match(clause.strip())
    if match is None:
        raise ValueError(f"{clause!r} is not a version range")
    bound = Version.parse(match["version"])
    length = match["version"].count(".") + 1
    match match["operator"], bool(match["wildcard"]):
        case "==", True:
            return version.starts_with(bound, length)
        case "!=", True:
            return not version.starts_with(bound, length)
        case "==", _:
            return version == bound
        case "!=", _:
            return version != bound
        case "~=", _:
            return version >= bound and version.starts_with(bound, max(length - 1, 1))
        case ">=", _:
            return version >= bound
        case "<=", _:
            return version <= bound
        case ">", _:
            return version > bound
        case _:
            return version < bound


@cache  # a hundred manifests have few ranges
def in_range(version: str, specifier: str) -> bool:
    """True when `version` fulfils every clause of `specifier`; an empty specifier accepts all.

    Raises ValueError for text that is no version or no range.
    """
    parsed = Version.parse(version)
    return all(_clause_holds(parsed, clause) for clause in specifier.split(",") if clause.strip())


@cache
def side_of(version: str, specifier: str) -> str:
    """Where `version` lies when it is not in the range: "below", "above", or "outside"; an empty text when it is in."""
    parsed = Version.parse(version)
    failing = [
        clause.strip() for clause in specifier.split(",") if clause.strip() and not _clause_holds(parsed, clause)
    ]
    sides = set()
    for clause in failing:
        match = _CLAUSE.match(clause)
        assert match is not None  # _clause_holds has parsed it
        if match["operator"] == "!=":
            sides.add("outside")
        else:
            sides.add("below" if parsed < Version.parse(match["version"]) else "above")
    return "" if not failing else sides.pop() if len(sides) == 1 else "outside"
