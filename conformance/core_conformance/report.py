"""Reports: what a run found, in a form that can be checked without repeating it."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from core.plugin import installed_version

from . import SUITE
from .digests import distribution_digest
from .profiles import Profile

SCHEMA = 1
GOOD = frozenset(("passed", "declared", "skipped"))
"""Outcomes of a test that stand in no certificate's way."""
ENVIRONMENT = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CORE_STRICT", "CUDA_VISIBLE_DEVICES", "CORE_CXX")
"""The variables of the environment that a report tells."""


def canonical(report: Mapping[str, Any]) -> bytes:
    """The one form of a report that its digest is made from: without the digest, keys in order, no spaces."""
    body = {key: value for key, value in report.items() if key != "digest"}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest(report: Mapping[str, Any]) -> str:
    """sha256 of the canonical form."""
    return hashlib.sha256(canonical(report)).hexdigest()


def summary(tests: Mapping[str, Mapping[str, Any]], label: str = "") -> dict[str, Any]:
    """The counts of a report and its verdict, which follow from the outcomes alone.

    certified: every outcome is good, and the run has no label; `passes` says the first alone.
    coverage: the share of the operator tests' nodes that the backend says it runs itself, None where it says nothing.
    """
    outcomes = Counter(test["outcome"] for test in tests.values())
    kinds: Counter[str] = Counter()
    for name, test in tests.items():
        if name.startswith("ops::"):
            kinds.update(test.get("provenance") or {})
    nodes = sum(kinds.values())
    passes = bool(outcomes["passed"]) and set(outcomes) <= GOOD
    return {
        "passed": outcomes["passed"],
        "failed": outcomes["failed"],
        "declared": outcomes["declared"],
        "xfailed": outcomes["xfailed"],
        "skipped": outcomes["skipped"],
        "total": len(tests),
        "passes": passes,
        "certified": passes and not label,
        "coverage": round(kinds["native"] / nodes, 4) if nodes else None,
    }


def build(
    *,
    profile: Profile,
    backend: Mapping[str, Any],
    device: str,
    tests: Mapping[str, Mapping[str, Any]],
    nonce: str,
    seed: int,
    started: str,
    ended: str,
    declarations: Sequence[Mapping[str, str]],
    label: str = "",
) -> dict[str, Any]:
    """A report with its digest. label: the lower precision of the run, or "partial"; such a run certifies nothing."""
    report: dict[str, Any] = {
        "schema": SCHEMA,
        "suite": SUITE,
        "profile": profile.name,
        "must_pass": list(profile.must_pass),
        "backend": dict(backend),
        "device": device,
        "tests": {name: dict(tests[name]) for name in sorted(tests)},
        "summary": summary(tests, label),
        "environment": environment(str(backend.get("distribution", ""))),
        "nonce": nonce,
        "seed": seed,
        "started": started,
        "ended": ended,
        "declarations": [dict(each) for each in declarations],
    }
    if label:
        report["precision"] = label
    report["digest"] = digest(report)
    return report


def environment(plugin: str) -> dict[str, Any]:
    """Versions and digests of what took part, the machine, and the variables of ENVIRONMENT."""
    versions = {name: installed_version(name) for name in ("core", "core-conformance", "torch", plugin) if name}
    return {
        "core": versions["core"],
        "torch": versions["torch"],
        "python": platform.python_version(),
        "platform": platform.system().lower(),
        "machine": platform.machine(),
        "processors": os.cpu_count() or 0,
        "versions": versions,
        "digests": {name: distribution_digest(name) for name in versions},
        "installed": sorted({f"{d.name}=={d.version}" for d in metadata.distributions() if d.name}),
        "variables": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }


def write(report: Mapping[str, Any], path: Path) -> None:
    """Write a report as indented JSON; the digest is of its canonical form, whatever the spaces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def place(report: Mapping[str, Any], *, apart: bool = False) -> Path:
    """Where the catalog keeps a report, below its folder of reports.

    apart: the place beside, of a report that another minor of torch has one besides.
    """
    backend, label = report["backend"], report.get("precision")
    claim = f"{report['profile']}@{label}" if label else str(report["profile"])
    device = str(report["device"]).partition(":")[0]
    folder = str(backend["name"]).replace(":", "-")
    beside = f"-torch{torch_minor(report)}" if apart else ""
    return Path(str(report["suite"])) / folder / f"{backend['version']}-{claim}-{device}{beside}.json"


def torch_minor(report: Mapping[str, Any]) -> str:
    """`2.13` of a run with torch 2.13.0+cpu: what a certificate belongs to."""
    return ".".join(str(report["environment"]["torch"]).partition("+")[0].split(".")[:2])


def read(path: Path) -> dict[str, Any]:
    """A report from its file. Raises ValueError where it is none."""
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise ValueError("a report is a JSON object")
    return value
