"""reports/<suite>/<backend>/<version>-<profile>-<device>.json: read, verified, and reduced to what pages show.

A run with another minor of torch is a report of its own, beside it with that minor: `...-<device>-torch2.11.json`.

A report whose digest, place or counts don't verify stops the generator: nothing of it is published.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from core.backends.certificates import Certificate, device_kind, minor
from core.backends.policy import normalise

from .names import ROOT, CatalogError

REPORTS = ROOT / "reports"
SUITES = ROOT / "suites.toml"
SCHEMA = 1
OUTCOMES = ("passed", "failed", "xfailed", "skipped", "declared")
GOOD = {"passed", "declared", "skipped"}
_COUNTED = {"passed": "passed", "failed": "failed", "declared": "declared"}


@dataclass(frozen=True)
class Report:
    """One verified report. `place` is its path below reports/, with forward slashes and without the suffix."""

    place: str
    data: Mapping[str, Any] = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        """`report.suite`, `report.profile`, ...: the keys of the JSON."""
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def name(self) -> str:
        return str(self.data["backend"]["name"])

    @property
    def claim(self) -> str:
        """The profile, with the precision behind it when the run was one in a looser precision."""
        label = self.data.get("precision")
        return f"{self.data['profile']}@{label}" if label else str(self.data["profile"])

    @property
    def kind(self) -> tuple[str, ...]:
        """What decides which tests a run has."""
        return (self.data["suite"], self.data["profile"], self.device, minor(self.environment_of("torch")))

    @property
    def version(self) -> str:
        return str(self.data["backend"]["version"])

    @property
    def device(self) -> str:
        return device_kind(self.data["device"])

    @property
    def day(self) -> str:
        """The date on which the run ended."""
        return str(self.data["ended"])[:10]

    @property
    def certified(self) -> bool:
        """Whether it certifies its claim; a labelled run never certifies the profile without the label."""
        summary = self.data["summary"]
        return bool(summary["passes"] if self.data.get("precision") else summary["certified"])

    @property
    def coverage(self) -> float | None:
        """The share of operators that ran in the backend's own code, None where nothing was measured."""
        value = self.data["summary"].get("coverage")
        return float(value) if isinstance(value, (int, float)) else None

    @property
    def signature(self) -> str:
        return str(self.data.get("signature_level") or "self-reported")

    def of(self, *outcomes: str) -> list[tuple[str, Mapping[str, Any]]]:
        """(test id, facts) of the tests with one of these outcomes, in order."""
        return sorted((id, test) for id, test in self.data["tests"].items() if test["outcome"] in outcomes)

    @cached_property
    def counts(self) -> Counter[str]:
        """Outcome -> number of tests."""
        return Counter(test["outcome"] for test in self.data["tests"].values())

    @cached_property
    def classes(self) -> dict[str, Counter[str]]:
        """Test class -> outcomes."""
        found: dict[str, Counter[str]] = {}
        for id, test in sorted(self.data["tests"].items()):
            found.setdefault(id.split("::")[1], Counter())[test["outcome"]] += 1
        return found

    @cached_property
    def operators(self) -> dict[str, Counter[str]]:
        """Operator -> outcomes of its tests: `ops::OpTests::op[add-float32]` is one of `add`."""
        found: dict[str, Counter[str]] = {}
        for id, test in self.data["tests"].items():
            if id.split("::")[1] == "OpTests" and "[" in id:
                operator = id.partition("[")[2].removesuffix("]").rpartition("-")[0]
                found.setdefault(operator, Counter())[test["outcome"]] += 1
        return dict(sorted(found.items()))

    def environment_of(self, name: str) -> str:
        """The version of "core", "torch", "python", ... in the run's environment."""
        value = self.data["environment"].get(name, "")
        return str(value.get("version", "")) if isinstance(value, Mapping) else str(value)

    def certificate(self) -> Certificate:
        """The row of the table that core carries."""
        summary = self.data["summary"]
        return Certificate(
            backend=self.name,
            distribution=self.data["backend"]["distribution"],
            version=self.version,
            suite=self.data["suite"],
            profile=self.claim,
            device=self.device,
            core=minor(self.environment_of("core")),
            torch=minor(self.environment_of("torch")),
            certified=self.certified,
            ended=self.day,
            passed=summary["passed"],
            failed=summary["failed"],
            declared=summary["declared"],
            total=summary["total"],
            coverage=self.coverage,
            signature=self.signature,
            digest=self.data["digest"],
        )


def read_suites(path: Path = SUITES) -> list[str]:
    """The released suites, oldest first."""
    return [str(suite) for suite in tomllib.loads(path.read_text(encoding="utf-8"))["suites"]]


def folder_of(backend: str) -> str:
    """The folder of a backend's reports: `dynamo:NAME` has no colon there."""
    return backend.replace(":", "-")


def read_reports(folder: Path, names: Sequence[str], suites: Sequence[str]) -> list[Report]:
    """Every report below `folder`, newest first. Raises CatalogError for the first that doesn't verify.

    names: the backends of the catalog, as reports name them; a report of any other is refused.
    """
    reports = [_read(path, folder) for path in sorted(folder.rglob("*.json"))]
    for report in reports:
        if report.data["suite"] not in suites:
            raise _refused(report.place, f"suite {report.data['suite']} was never released")
        if normalise(report.name) not in {normalise(name) for name in names}:
            raise _refused(report.place, f"the catalog has no backend {report.name!r}")
    _require_all_tests(reports)
    return sorted(reports, key=lambda report: (str(report.data["ended"]), report.place), reverse=True)


def _require_all_tests(reports: Sequence[Report]) -> None:
    """A profile has the same tests for everybody: a report that lacks some that another one has is no whole run."""
    alike: dict[tuple[str, ...], set[str]] = {}
    for report in reports:
        alike.setdefault(report.kind, set()).update(report.tests)
    for report in reports:
        absent = sorted(alike[report.kind] - set(report.tests))
        if absent:
            raise _refused(report.place, f"it lacks {len(absent)} tests of the profile, the first is {absent[0]}")


def digest_of(data: Mapping[str, Any]) -> str:
    """sha256 of the canonical form of a report without its digest: sorted keys, no spaces, ASCII."""
    slim = {key: value for key, value in data.items() if key != "digest"}
    text = json.dumps(slim, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path, folder: Path) -> Report:
    place = path.relative_to(folder).with_suffix("").as_posix()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _refused(place, f"not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise _refused(place, f"its schema is not {SCHEMA}")
    try:
        _verify(place, data)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        if isinstance(error, CatalogError):
            raise
        raise _refused(place, f"it is incomplete: {type(error).__name__}: {error}") from None
    return Report(place, data)


def _verify(place: str, data: dict[str, Any]) -> None:
    expected = digest_of(data)
    if data["digest"].removeprefix("sha256:") != expected:
        raise _refused(place, "its digest does not fit its contents")
    report = Report(place, data)
    wanted = f"{data['suite']}/{folder_of(report.name)}/{report.version}-{report.claim}-{report.device}"
    if place not in (wanted, f"{wanted}-torch{minor(report.environment_of('torch'))}"):
        raise _refused(place, f"its contents belong at {wanted}")
    date.fromisoformat(report.day)
    if data.get("precision") == "partial":
        raise _refused(place, "it is of a part of the profile's tests")
    strange = {test["outcome"] for test in data["tests"].values()} - set(OUTCOMES)
    if strange:
        raise _refused(place, f"unknown outcomes: {', '.join(sorted(strange))}")
    summary = data["summary"]
    for outcome, key in _COUNTED.items():
        if summary[key] != report.counts[outcome]:
            raise _refused(place, f"its summary says {key} = {summary[key]}, its tests {report.counts[outcome]}")
    if summary["total"] != len(data["tests"]):
        raise _refused(place, f"its summary says {summary['total']} tests, it has {len(data['tests'])}")
    if not data.get("precision") and summary["certified"] != (
        report.counts["passed"] > 0 and set(report.counts) <= GOOD
    ):
        raise _refused(place, f"its summary says certified = {summary['certified']}, its tests don't")
    report.certificate()
    for problem in _problems(data):
        raise _refused(place, problem)


def _problems(data: Mapping[str, Any]) -> list[str]:
    """What the suite's own verification finds, where the suite is installed: excuses, must-pass tests, nonce."""
    try:
        from core_conformance.verify import verify
    except ImportError:
        return []
    return [f"{problem.rule}: {problem.text}" for problem in verify(data)]


def _refused(place: str, why: str) -> CatalogError:
    return CatalogError(f"reports/{place}.json is refused: {why}")
