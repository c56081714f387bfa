"""conformance.toml: what a vendor says beforehand that its backend does not do, or does wrong, and the profiles it has.

Enters: the file, the ids of the profile, raw outcomes. Leaves: outcomes as the report has them. A declaration excuses
nothing silently: one that fits no test, is outdated or turns out untrue fails.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from core.errors import SuiteMisused

from .patterns import matches
from .profiles import Profile, load

KINDS = ("unsupported", "known-wrong")
REQUIRED = ("id", "kind", "reason", "issue", "expires")


@dataclass(frozen=True)
class Declaration:
    """One declaration. id: a pattern of test ids; expires: the last day on which it counts."""

    id: str
    kind: str
    reason: str
    issue: str
    expires: str

    def expired(self, today: date) -> bool:
        """Whether its last day is over."""
        return today > date.fromisoformat(self.expires)

    def as_json(self) -> dict[str, str]:
        """For the report."""
        return asdict(self)


def read(path: Path) -> list[Declaration]:
    """The declarations of a file. Raises SuiteMisused for anything that is not one."""
    return [_parsed(path.name, number, entry) for number, entry in enumerate(_data(path)[1], 1)]


def profiles_of(path: Path) -> list[str]:
    """The profiles that a file says its backend passes. Raises SuiteMisused for one that there is not."""
    found = _data(path)[0]
    for name in found:
        load(name)
    return found


def _data(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """The profiles and the declarations as they stand in the file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise _misused(f"{path.name} can't be read: {error}") from None
    profiles, entries = data.pop("profiles", []), data.pop("declaration", [])
    if data:
        raise _misused(f"{path.name} has unknown keys: {', '.join(data)}")
    if not isinstance(profiles, list) or not all(isinstance(name, str) for name in profiles):
        raise _misused(f"{path.name}: profiles is {profiles!r}, not a list of names")
    return profiles, entries


def _parsed(file: str, number: int, entry: dict[str, Any]) -> Declaration:
    where = f"{file}, declaration {number}"
    values = {key: str(value) for key, value in entry.items()}
    if set(values) != set(REQUIRED) or not all(values.values()):
        raise _misused(f"{where}: it must have {', '.join(REQUIRED)}, none of them empty, and nothing else")
    if values["kind"] not in KINDS:
        raise _misused(f"{where}: kind is {values['kind']!r}, it must be one of {', '.join(KINDS)}")
    try:
        date.fromisoformat(values["expires"])
    except ValueError:
        raise _misused(f"{where}: expires is {values['expires']!r}, not a date as 2027-01-31") from None
    return Declaration(**values)


def check(declarations: Sequence[Declaration], profile: Profile, tests: Sequence[str], suite: Sequence[str]) -> None:
    """Refuse declarations that fit no test of the suite, and those that a profile does not admit.

    tests: the profile's; suite: all there are. Raises SuiteMisused.
    """
    for declaration in declarations:
        if not any(matches(declaration.id, test) for test in suite):
            raise _misused(f"the declaration {declaration.id!r} fits no test of the suite")
        required = [test for test in tests if matches(declaration.id, test) and profile.requires(test)]
        if required:
            raise _misused(
                f"the declaration {declaration.id!r} covers {required[0]}, which must pass in profile {profile.name}"
            )


def _misused(what: str) -> SuiteMisused:
    return SuiteMisused(what, instead="no test was run", remedy="correct conformance.toml; see docs/conformance.md")


def covering(declarations: Sequence[Declaration], test: str) -> Declaration | None:
    """The first declaration whose pattern fits a test."""
    return next((each for each in declarations if matches(each.id, test)), None)


@dataclass(frozen=True)
class Judged:
    """The outcome for the report, and its message."""

    outcome: str
    message: str


def judge(
    outcome: str, message: str, declaration: Declaration | None, *, required: bool, today: date | None = None
) -> Judged:
    """What a raw outcome ("passed", "failed", "refused", "skipped") is worth in the report.

    "refused": the backend raised Unsupported, and with a fallback the program was right.
    """
    if declaration is not None:
        if declaration.expired(today or date.today()):
            return Judged("failed", f"its declaration expired on {declaration.expires}: {declaration.reason}")
        if declaration.kind == "known-wrong":
            if outcome == "failed":
                return Judged("xfailed", message)
            return Judged("failed", f"declared as known to be wrong, but it {_happened(outcome)}: {declaration.reason}")
        if outcome == "refused":
            return Judged("declared", message)
        text = f"declared as unsupported, but the backend {_happened(outcome)}: {declaration.reason}"
        return Judged("failed", f"{text}\n{message}" if message else text)
    if outcome == "refused":
        return Judged("failed", f"the backend does not support it and declares no such thing: {message}")
    if outcome == "skipped" and required:
        return Judged("failed", f"a test that must pass was skipped: {message}")
    return Judged(outcome, message)


def _happened(outcome: str) -> str:
    return {"passed": "passed", "failed": "failed", "refused": "refused to compile", "skipped": "was skipped"}[outcome]
