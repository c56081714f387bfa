"""benchmarks/*.json: what `core bench --json` printed, with the machine that it ran on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .names import ROOT, CatalogError

BENCHMARKS = ROOT / "benchmarks"


@dataclass(frozen=True)
class Row:
    """One backend on one model: microseconds of a run, its ratio to eager's, seconds of the first call, and the error
    against float64 as a multiple of eager's."""

    model: str
    backend: str
    run_us: float | None
    ratio: float | None
    compile_s: float | None
    note: str
    error_ratio: float | None = None


@dataclass(frozen=True)
class Benchmark:
    """One run of the benchmark on one machine."""

    name: str
    machine: str
    day: str
    versions: str
    rows: tuple[Row, ...]


def read_benchmarks(folder: Path) -> list[Benchmark]:
    """Every benchmark below `folder`, newest first. Raises CatalogError for one that names no machine."""
    found = [_read(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []
    return sorted(found, key=lambda benchmark: benchmark.day, reverse=True)


def _read(path: Path) -> Benchmark:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CatalogError(f"benchmarks/{path.name}: not JSON: {error}") from None
    machine = data.get("machine")
    if not machine:
        raise CatalogError(f"benchmarks/{path.name}: it does not name the machine")
    text = machine if isinstance(machine, str) else ", ".join(f"{value}" for value in machine.values() if value)
    versions = data.get("versions", {})
    rows = [_row(row) for row in data.get("rows", data.get("results", []))]
    eager = {row.model: row.run_us for row in rows if row.backend == "eager" and row.run_us}
    return Benchmark(
        name=path.stem,
        machine=text,
        day=str(data.get("date", ""))[:10],
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
        rows=tuple(_with_ratio(row, eager) for row in rows),
    )


def _row(row: Mapping[str, Any]) -> Row:
    def number(*keys: str) -> float | None:
        return next((float(row[key]) for key in keys if isinstance(row.get(key), (int, float))), None)

    return Row(
        model=str(row.get("model", "")),
        backend=str(row.get("backend", "")),
        run_us=number("run_us", "us"),
        ratio=number("ratio"),
        compile_s=number("compile_s", "first_s"),
        note=str(row.get("reason") or row.get("note") or ""),
        error_ratio=number("error_ratio"),
    )


def _with_ratio(row: Row, eager: Mapping[str, float | None]) -> Row:
    base = eager.get(row.model)
    if row.ratio is not None or not base or not row.run_us:
        return row
    return replace(row, ratio=base / row.run_us)
