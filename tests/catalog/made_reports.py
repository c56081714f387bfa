"""Reports made for tests of the catalog: they go into a temporary folder and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from core_conformance.report import summary
from core_conformance.seeds import seed_of

from catalog.site.reports import digest_of, folder_of

OPERATORS = ("abs", "add", "cholesky", "matmul", "nn.functional.gelu")


def made(
    name: str = "inductor",
    *,
    version: str = "0.1.0",
    profile: str = "inference-core",
    device: str = "cpu",
    suite: str = "2026.12",
    ended: str = "2026-11-20T10:00:00Z",
    failing: tuple[str, ...] = (),
    declared: tuple[str, ...] = (),
    **changes: Any,
) -> dict[str, Any]:
    """A report of operator tests and a few others; ids in `failing` and `declared` have that outcome."""
    ids = [f"ops::OpTests::op[{operator}-float32]" for operator in OPERATORS]
    ids += ["semantics::SemanticsTests::relu_keeps_nan", "dynamic::DynamicTests::sizes_zero_and_one"]
    kinds = {"native": 7, "library": 1}
    tests: dict[str, Any] = {id: {"outcome": "passed", "seconds": 0.1, "provenance": kinds} for id in ids}
    for id in failing:
        message = "[nan-positions] the result has no NaN\nwhere eager has one"
        tests[id] = {"outcome": "failed", "seconds": 0.1, "rule": "nan-positions", "message": message}
    for id in declared:
        tests[id] = {"outcome": "declared", "seconds": 0.1}
    data = {
        "schema": 1,
        "suite": suite,
        "profile": profile,
        "backend": {
            "name": name,
            "distribution": f"core-{folder_of(name)}",
            "version": version,
            "manifest_digest": "0" * 64,
        },
        "device": device,
        "tests": tests,
        "summary": summary(tests, changes.get("precision", "")),
        "environment": {"core": "0.1.0", "torch": "2.13.0+cpu", "python": "3.11.9"},
        "nonce": "made-for-a-test",
        "seed": seed_of("", "", "made-for-a-test"),
        "started": ended,
        "ended": ended,
        "declarations": [_declaration(id) for id in declared],
        **changes,
    }
    return {**data, "digest": digest_of(data)}


def _declaration(id: str) -> dict[str, str]:
    return {"id": id, "kind": "unsupported", "reason": "none", "issue": "none", "expires": "2030-01-01"}


def put(folder: Path, data: dict[str, Any]) -> Path:
    """Write a report where it belongs below `folder`."""
    backend, device = data["backend"], data["device"].partition(":")[0]
    path = folder / data["suite"] / folder_of(backend["name"]) / f"{backend['version']}-{data['profile']}-{device}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path
