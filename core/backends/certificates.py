"""What the catalog has certified, read from the table that core carries: no network, no torch.

A certificate belongs to one (plugin version, suite, profile, core minor, torch minor, device kind). It is *certified*
while its suite is the current one or one of the two before and its run is at most 180 days old; then *stale*; after 360
days, or once its suite has left that window, *expired*. A report with failures is *failed*, and no report at all is
*none*.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import date
from functools import cache
from pathlib import Path

from .policy import normalise

STATES = ("certified", "stale", "expired", "failed", "none")
"""From the best to the worst; `lookup` answers with the best that applies."""

TABLE = Path(__file__).parent / "certificates.json"
STALE_DAYS = 180
EXPIRED_DAYS = 360
SUITES_KEPT = 3


@dataclass(frozen=True)
class Certificate:
    """One report of the catalog. `core` and `torch` are minors ("2.13"), `device` a kind ("cpu"), `ended` a date.

    coverage: the share of operators that ran in the backend's own code, None where the profile measures none;
    signature: "self-reported", "vendor-signed" or "reproduced".
    """

    backend: str
    distribution: str
    version: str
    suite: str
    profile: str
    device: str
    core: str
    torch: str
    certified: bool
    ended: str
    passed: int = 0
    failed: int = 0
    declared: int = 0
    total: int = 0
    coverage: float | None = None
    signature: str = "self-reported"
    digest: str = ""

    def state(self, today: date, suites: Sequence[str]) -> str:
        """One of STATES but "none". `suites`: every released suite, oldest first."""
        if not self.certified:
            return "failed"
        age = (today - date.fromisoformat(self.ended[:10])).days
        if age > EXPIRED_DAYS or self.suite not in suites[-SUITES_KEPT:]:
            return "expired"
        return "stale" if age > STALE_DAYS else "certified"


def minor(version: str) -> str:
    """`2.13.0+cpu` as `2.13`."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def device_kind(device: str) -> str:
    """`cuda:0` as `cuda`."""
    return device.partition(":")[0]


def certificate(entry: dict[str, object]) -> Certificate:
    """One row of the table; keys of a newer core are left out."""
    known = {part.name for part in fields(Certificate)}
    return Certificate(**{key: value for key, value in entry.items() if key in known})  # type: ignore[arg-type]


@cache
def bundled(path: Path = TABLE) -> tuple[tuple[str, ...], tuple[Certificate, ...]]:
    """(suites, oldest first; certificates) of the table. Without a table there are none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return (), ()
    return tuple(data["suites"]), tuple(certificate(entry) for entry in data["certificates"])


def certificates(backend: str, version: str | None = None) -> list[Certificate]:
    """The reports of a backend (of one version of it), newest first."""
    wanted = normalise(backend)
    found = [
        each
        for each in bundled()[1]
        if normalise(each.backend) == wanted and (version is None or each.version == version)
    ]
    return sorted(found, key=lambda each: each.ended, reverse=True)


def lookup(
    backend: str,
    version: str,
    profile: str,
    device: str,
    torch_version: str,
    *,
    core_version: str | None = None,
    today: date | None = None,
) -> str:
    """The state of a backend's certificate for a profile here: "certified", "stale", "expired", "failed" or "none".

    torch_version, core_version: full versions or minors; without core_version any core counts.
    """
    found = [
        each
        for each in certificates(backend, version)
        if each.profile == profile
        and each.device == device_kind(device)
        and each.torch == minor(torch_version)
        and (core_version is None or each.core == minor(core_version))
    ]
    return best_state(found, today=today)


def best_state(found: Iterable[Certificate], *, today: date | None = None) -> str:
    """The best state among certificates, "none" without any."""
    suites, day = bundled()[0], today or date.today()
    states = {each.state(day, suites) for each in found}
    return next((state for state in STATES if state in states), "none")
