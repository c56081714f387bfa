"""The table of the sixteen probes: which ordinary semantics a backend keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.backends.registry import resolve_backend

from .cases import Case, cases_of, run_case


@dataclass(frozen=True)
class Row:
    """One probe. outcome: "passed", "failed", "refused" (the backend says that it can't) or "skipped"."""

    probe: str
    test: str
    outcome: str
    rule: str = ""
    message: str = ""

    def as_dict(self) -> dict[str, str]:
        """The row for `--json`."""
        return {
            "probe": self.probe,
            "test": self.test,
            "outcome": self.outcome,
            "rule": self.rule,
            "message": self.message,
        }


def probes() -> list[Case]:
    """The sixteen tests, in the order of the table."""
    from .suite.semantics import SemanticsTests

    return [case for case in cases_of(SemanticsTests) if case.probe]


def run(spec: Any, *, device: str = "cpu", seed: int = 0) -> list[Row]:
    """Run every probe on a backend, given as `backend=` takes it. Raises the errors of its resolution."""
    resolve_backend(spec)
    rows = []
    for case in probes():
        result = run_case(case, spec, device=device, seed=seed)
        first = result.message.strip().splitlines()
        rows.append(Row(case.probe, case.id, result.outcome, result.rule, first[0] if first else ""))
    return rows


def table(name: str, rows: Sequence[Row]) -> str:
    """The rows as text, and the count."""
    width = max(len(row.probe) for row in rows)
    lines = [f"{row.probe:{width}}  {row.outcome:7}  {row.message if row.outcome != 'passed' else ''}" for row in rows]
    passed = sum(row.outcome == "passed" for row in rows)
    return "\n".join([*(line.rstrip() for line in lines), f"{name}: {passed} of {len(rows)} probes passed"])
