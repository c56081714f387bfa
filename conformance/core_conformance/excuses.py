"""Declarations in a vendor's own test run: pytest's outcome of a test becomes what the report of a run would have."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .declarations import Declaration, covering, judge, read
from .refusals import refuses


@cache
def _declared(file: str) -> tuple[Declaration, ...]:
    return tuple(read(Path(file)))


def excuse(file: str, test: str, report: Any, error: BaseException | None) -> None:
    """Change pytest's report of a test as the declarations of `file` have it; see declarations.judge."""
    declaration = covering(_declared(file), test)
    if declaration is None:
        return
    skipped = isinstance(error, pytest.skip.Exception)
    raw = "passed" if error is None else "skipped" if skipped else "refused" if refuses(error) else "failed"
    verdict = judge(raw, str(error or ""), declaration, required=False)
    if verdict.outcome in ("xfailed", "declared"):
        report.outcome, report.wasxfail = "skipped", f"{declaration.kind}: {declaration.reason}"
    else:
        report.outcome, report.longrepr = "failed", verdict.message
