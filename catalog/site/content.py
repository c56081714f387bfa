"""What the pages show, computed from the catalog's files for one date."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import combinations
from typing import Any

from core.backends.certificates import STATES
from core.backends.manifest import Manifest
from core.backends.policy import normalise

from .benchmarks import Benchmark
from .reports import Report
from .stages import Stages

PROFILES = (
    "smoke",
    "inference-core",
    "inference-full",
    "training",
    "dynamic",
    "deterministic",
    "serialization",
    "diagnosable",
    "gpu",
    "perf-sanity",
)
"""The order of the matrix; profiles that only reports name come after these."""

SIGNS = {"certified": "✓", "stale": "◷", "expired": "⊘", "failed": "✗", "none": "·"}
MEANINGS = {
    "certified": "every test of the profile passed, at most 180 days ago, with one of the last three suites",
    "stale": "passed more than 180 days ago",
    "expired": "passed more than 360 days ago, or with an older suite",
    "failed": "a report exists, and tests failed",
    "none": "no report",
}


@dataclass(frozen=True)
class Cell:
    """One field of the matrix: the best state of one backend, profile and device, and the report behind it."""

    state: str
    report: Report | None = None

    @property
    def sign(self) -> str:
        return SIGNS[self.state]

    @property
    def label(self) -> str:
        """What the sign says, in words."""
        if self.report is None:
            return "no report"
        counts = f"{self.report.counts['passed']} of {sum(self.report.counts.values())} passed"
        return f"{self.state}: {counts}, {self.report.version}, suite {self.report.suite}"


@dataclass(frozen=True)
class Content:
    """Everything that templates read. `today` is the date for which states are computed."""

    rows: Sequence[Mapping[str, Any]]
    reports: Sequence[Report]
    suites: Sequence[str]
    manifests: Mapping[str, Manifest]
    benchmarks: Sequence[Benchmark]
    today: date
    stages: Mapping[str, Stages] = field(default_factory=dict)

    def state(self, report: Report) -> str:
        return report.certificate().state(self.today, self.suites)

    def reports_of(self, name: str) -> list[Report]:
        """The reports of a name of the catalog, newest first. A foreign backend's reports name it as it is used."""
        uses = {row["use"] or row["name"] for row in self.rows if normalise(row["name"]) == normalise(name)}
        return [report for report in self.reports if normalise(report.name) in map(normalise, uses)]

    def row_of(self, report: Report) -> Mapping[str, Any]:
        """The row of a report's backend."""
        return next(row for row in self.rows if report in self.reports_of(row["name"]))

    def manifest_of(self, name: str) -> Manifest | None:
        return self.manifests.get(normalise(name))

    def stages_of(self, name: str) -> Stages | None:
        """How far a backend is shown to work where its device is not at hand."""
        return self.stages.get(normalise(name))

    @cached_property
    def live(self) -> list[Mapping[str, Any]]:
        """Backends that are or will be there."""
        return [row for row in self.rows if row["state"] != "gone"]

    @cached_property
    def gone(self) -> list[Mapping[str, Any]]:
        return [row for row in self.rows if row["state"] == "gone"]

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """(profile, device) pairs that any report has, in the order of PROFILES."""
        pairs = {(report.claim, report.device) for report in self.reports}
        known = {profile: at for at, profile in enumerate(PROFILES)}
        return sorted(pairs, key=lambda pair: (known.get(pair[0], len(known)), pair[0], pair[1]))

    def cell(self, name: str, profile: str, device: str) -> Cell:
        """The best of a backend's newest version that has a report for the profile."""
        found = [r for r in self.reports_of(name) if (r.claim, r.device) == (profile, device)]
        if not found:
            return Cell("none")
        newest = found[0].version
        best = min((r for r in found if r.version == newest), key=lambda r: STATES.index(self.state(r)))
        return Cell(self.state(best), best)

    @cached_property
    def tested(self) -> list[str]:
        """Names of the backends with reports, in the order of the rows."""
        return [row["name"] for row in self.rows if self.reports_of(row["name"])]

    def operators_of(self, name: str) -> dict[str, Counter[str]]:
        """Operator -> outcomes, of the newest report with operator tests."""
        return next((r.operators for r in self.reports_of(name) if r.operators), {})

    @cached_property
    def measured(self) -> list[str]:
        """Names of the backends with operator tests."""
        return [name for name in self.tested if self.operators_of(name)]

    @cached_property
    def operators(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """(operator, one (state, sign, label) a measured backend) for the heat map."""
        tables = {name: self.operators_of(name) for name in self.measured}
        names = sorted({operator for table in tables.values() for operator in table})
        return [(op, [_operator_cell(tables[name].get(op)) for name in self.measured]) for op in names]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of backends to compare."""
        return list(combinations(self.tested, 2))

    def differences(self, left: str, right: str) -> list[tuple[str, str, str]]:
        """(test id, outcome left, outcome right) where the newest reports of a common profile differ."""
        found: dict[str, tuple[str, str]] = {}
        for profile, device in self.columns:
            ours, theirs = self.cell(left, profile, device).report, self.cell(right, profile, device).report
            if ours is None or theirs is None:
                continue
            for id in sorted({*ours.tests, *theirs.tests}):
                pair = _outcome(ours, id), _outcome(theirs, id)
                if pair[0] != pair[1]:
                    found[id] = pair
        return [(id, *pair) for id, pair in sorted(found.items())]


def _outcome(report: Report, id: str) -> str:
    return str(report.tests[id]["outcome"]) if id in report.tests else "absent"


def _operator_cell(outcomes: Counter[str] | None) -> tuple[str, str, str]:
    if not outcomes:
        return "none", SIGNS["none"], "not tested"
    text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    if outcomes["failed"] or outcomes["xfailed"]:
        return "failed", SIGNS["failed"], text
    if outcomes["declared"]:
        return "stale", "⤳", text + " (handed to the declared fallback)"
    if not outcomes["passed"]:
        return "none", SIGNS["none"], text
    return "certified", SIGNS["certified"], text
