"""Whether a report says what it may say: counts, digest, tests, declarations, signature. Offline."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from core.errors import SuiteMisused

from . import SUITE, declarations, profiles, report
from .seeds import seed_of

DISTRIBUTION = "core-conformance"
NAMESPACE = "core-conformance"
"""What signatures are made for."""
WORTH = ("passed", "skipped", "declared", "xfailed", "failed")
"""Outcomes, the best first: a test that passed and is skipped now says less than it did."""
NEEDED = (
    "schema suite profile backend device tests summary environment nonce seed started ended declarations digest"
).split()

KINDS = {
    "suite": str,
    "profile": str,
    "device": str,
    "nonce": str,
    "started": str,
    "ended": str,
    "digest": str,
    "backend": dict,
    "tests": dict,
    "summary": dict,
    "environment": dict,
    "declarations": list,
}
PARTS = {
    "backend": ("name", "distribution", "version"),
    "summary": ("passed", "failed", "declared", "total", "certified", "passes"),
    "environment": ("core", "torch", "python"),
}
"""What those parts of a report must have."""


@dataclass(frozen=True)
class Problem:
    """Something that makes a report invalid. `rule` is one word for machines."""

    rule: str
    text: str


def verify(made: Mapping[str, Any], *, suite_tests: Sequence[str] | None = None) -> list[Problem]:
    """What is wrong with a report; an empty list for nothing.

    suite_tests: every test of the installed suite; where given, and the report is of this suite, no test of the profile
    may be missing and none may be new.
    """
    misshapen = shape(made)
    if misshapen is not None:
        return [misshapen]
    if made["schema"] != report.SCHEMA:
        return [Problem("schema", f"its schema is {made['schema']!r}, this suite reads {report.SCHEMA}")]
    found = [*_contents(made), *_verdict(made)]
    try:
        profile = profiles.load(str(made["profile"]))
    except SuiteMisused as error:
        return [*found, Problem("profile", error.what)]
    found += _excuses(made, profile)
    if suite_tests is not None and made["suite"] == SUITE:
        found += _completeness(made, profile, suite_tests)
    return found


def shape(made: Mapping[str, Any]) -> Problem | None:
    """What keeps a JSON object from being read as a report at all."""
    missing = [key for key in NEEDED if key not in made]
    if missing:
        return Problem("schema", f"it has no {', '.join(missing)}")
    wrong = [key for key, kind in KINDS.items() if not isinstance(made[key], kind)]
    if wrong:
        return Problem("schema", f"{', '.join(wrong)}: not of the kind that a report has there")
    for part, keys in PARTS.items():
        missing = [key for key in keys if key not in made[part]]
        if missing:
            return Problem("schema", f"its {part} has no {', '.join(missing)}")
    odd = [id for id, test in made["tests"].items() if not isinstance(test, dict) or "outcome" not in test]
    return Problem("schema", f"test {odd[0]} has no outcome") if odd else None


def _contents(made: Mapping[str, Any]) -> Iterable[Problem]:
    tests = made["tests"]
    if report.digest(made) != made["digest"]:
        yield Problem("digest", "its contents are not those that its digest was made from")
    if not tests:
        yield Problem("empty", "it has no test")
    for name, test in tests.items():
        if test.get("outcome") not in WORTH:
            yield Problem("outcome", f"{name} has the outcome {test.get('outcome')!r}")
        elif test["outcome"] == "failed" and not test.get("message"):
            yield Problem("outcome", f"{name} failed, and nothing says how")
    if not made["nonce"]:
        yield Problem("nonce", "it has no nonce, so its values were known beforehand")
    digests = made["environment"].get("digests", {})
    plugin, suite = (digests.get(name, "") for name in (made["backend"].get("distribution"), DISTRIBUTION))
    if made["seed"] != seed_of(plugin, suite, str(made["nonce"])):
        yield Problem("seed", "its seed does not follow from its nonce and the digests of plugin and suite")


def _verdict(made: Mapping[str, Any]) -> Iterable[Problem]:
    recounted = report.summary(made["tests"], str(made.get("precision", "")))
    for key, value in recounted.items():
        if made["summary"].get(key) != value:
            yield Problem("counts", f"its summary says {key} {made['summary'].get(key)!r}, its tests say {value!r}")


def _excuses(made: Mapping[str, Any], profile: profiles.Profile) -> Iterable[Problem]:
    """Declarations excuse what they may, and no more."""
    given = [declarations.Declaration(**each) for each in made["declarations"]]
    ended = date.fromisoformat(str(made["ended"])[:10])
    for name, test in made["tests"].items():
        outcome = test.get("outcome")
        covering = declarations.covering(given, name)
        if profile.requires(name) and outcome in ("declared", "xfailed", "skipped"):
            yield Problem("must-pass", f"{name} must pass, and was {outcome}")
        if outcome in ("declared", "xfailed"):
            kind = {"declared": "unsupported", "xfailed": "known-wrong"}[outcome]
            if covering is None or covering.kind != kind:
                yield Problem("declaration", f"{name} was {outcome}, and no declaration of kind {kind} covers it")
            elif covering.expired(ended):
                yield Problem(
                    "declaration", f"{name} was {outcome} by a declaration that expired on {covering.expires}"
                )


def _completeness(made: Mapping[str, Any], profile: profiles.Profile, suite_tests: Sequence[str]) -> Iterable[Problem]:
    wanted, had = set(profile.selected(suite_tests)), set(made["tests"])
    if wanted - had:
        first = sorted(wanted - had)[0]
        yield Problem("missing", f"{len(wanted - had)} tests of the profile are missing, the first is {first}")
    if had - wanted:
        first = sorted(had - wanted)[0]
        yield Problem("unknown", f"{len(had - wanted)} tests are not the profile's, the first is {first}")


def verify_signature(path: Path, signature: Path, signers: Path, identity: str) -> Problem | None:
    """Check a signature made with `ssh-keygen -Y sign -n core-conformance`. None where it is good.

    signers: a file of allowed signers as ssh-keygen reads it; identity: who is to have signed.
    """
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", identity, "-n", NAMESPACE, "-s", str(signature)]
    try:
        with path.open("rb") as content:
            done = subprocess.run(command, stdin=content, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return Problem("signature", "ssh-keygen is not installed, so the signature can't be checked")
    if done.returncode:
        return Problem("signature", f"the signature is not {identity}'s: {(done.stderr or done.stdout).strip()}")
    return None


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[str]]:
    """What changed from one report to another: tests now worse, better, new or gone, each with its outcomes."""
    before, after = old["tests"], new["tests"]
    changed: dict[str, list[str]] = {"worse": [], "better": [], "new": [], "gone": []}
    for name in sorted(set(before) | set(after)):
        if name not in before:
            changed["new"].append(f"{name}: {after[name]['outcome']}")
        elif name not in after:
            changed["gone"].append(f"{name}: {before[name]['outcome']}")
        elif before[name]["outcome"] != after[name]["outcome"]:
            was, now = before[name]["outcome"], after[name]["outcome"]
            kind = "better" if WORTH.index(now) < WORTH.index(was) else "worse"
            changed[kind].append(f"{name}: {was}, now {now}")
    return changed
