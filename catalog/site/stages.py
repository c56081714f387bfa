"""stages/<backend>.json: how far a backend is shown to work where its device is not at hand, stage by stage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from core.backends.policy import normalise

from .names import ROOT, CatalogError
from .reports import digest_of

STAGES = ROOT / "stages"
SCHEMA = 1
OUTCOMES = ("passed", "failed", "not run")


@dataclass(frozen=True)
class Row:
    """One model at one stage. seconds: of the stage's work; error, eager_error: relative, against float64."""

    model: str
    stage: str
    outcome: str
    parameters: int
    error: float | None
    eager_error: float | None
    seconds: float | None
    note: str


@dataclass(frozen=True)
class Stages:
    """A run. states: stage -> the outcome of all its rows, in the order of the work."""

    backend: str
    version: str
    day: str
    machine: str
    versions: str
    states: Mapping[str, str]
    rows: tuple[Row, ...]


def read_stages(folder: Path, names: Sequence[str]) -> dict[str, Stages]:
    """Every run below `folder` by its backend. Raises CatalogError for one that doesn't verify.

    names: the backends of the catalog; a run of any other is refused.
    """
    found = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        made = _read(path)
        if normalise(made.backend) not in set(map(normalise, names)) or path.stem != made.backend:
            raise _refused(path, f"it is of {made.backend!r}")
        found[normalise(made.backend)] = made
    return found


def _read(path: Path) -> Stages:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["schema"] != SCHEMA:
            raise _refused(path, f"its schema is not {SCHEMA}")
        if data["digest"] != digest_of(data):
            raise _refused(path, "its digest does not fit its contents")
        rows = tuple(_row(row) for row in data["rows"])
        strange = {row.outcome for row in rows} - set(OUTCOMES)
        if strange:
            raise _refused(path, f"unknown outcomes: {', '.join(sorted(strange))}")
        states = {stage: _state(stage, rows) for stage in dict.fromkeys(row.stage for row in rows)}
        if states != data["stages"]:
            raise _refused(path, f"it says {data['stages']}, its rows say {states}")
        return Stages(
            backend=data["backend"]["name"],
            version=data["backend"]["version"],
            day=date.fromisoformat(data["date"]).isoformat(),
            machine=", ".join(str(value) for value in data["machine"].values() if value),
            versions=", ".join(f"{name} {version}" for name, version in data["versions"].items()),
            states=states,
            rows=rows,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, CatalogError):
            raise
        raise _refused(path, f"it is incomplete: {type(error).__name__}: {error}") from None


def _row(row: Mapping[str, Any]) -> Row:
    keys = ("model", "stage", "outcome", "parameters", "note")
    numbers = {name: row.get(name) for name in ("error", "eager_error", "seconds")}
    return Row(**{key: row[key] for key in keys}, **numbers)


def _state(stage: str, rows: Sequence[Row]) -> str:
    outcomes = {row.outcome for row in rows if row.stage == stage}
    return "failed" if "failed" in outcomes else outcomes.pop() if len(outcomes) == 1 else "not run"


def _refused(path: Path, why: str) -> CatalogError:
    return CatalogError(f"stages/{path.name} is refused: {why}")
