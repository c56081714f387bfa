"""The command line: `python -m core list|info|doctor`, or `core ...` after installation. Imports no torch.

Exit codes: 0 all well, 1 something was found (an unusable backend, a doctor's finding), 2 wrong usage. Every command
takes --json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

from .backends.catalog import CATALOG
from .backends.discovery import InstalledBackend
from .backends.policy import normalise
from .backends.registry import Registry
from .errors import CoreError
from .report.doctor import examine

OK, FOUND, USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = _parser()
    try:
        parsed = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse has printed the help or what is wrong
        return OK if stop.code in (0, None) else USAGE
    if parsed.command is None:
        parser.print_help()
        return USAGE
    try:
        return _COMMANDS[parsed.command](parsed)
    except CoreError as error:
        return _report_error(error, as_json=parsed.json)
    except BrokenPipeError:
        return OK  # the reader of our output has seen enough


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="machine-readable output")
    parser = argparse.ArgumentParser(prog="core", description="Backends of the core compiler.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    listing = commands.add_parser("list", parents=[common], help="installed backends; imports none of them")
    listing.add_argument("--all", action="store_true", help="also known backends that are not installed")
    info = commands.add_parser("info", parents=[common], help="what a backend declares, from its manifest")
    info.add_argument("name", metavar="NAME")
    doctor = commands.add_parser("doctor", parents=[common], help="what is wrong with this installation")
    doctor.add_argument("name", metavar="NAME", nargs="?", help="only this backend")
    return parser


def _report_error(error: CoreError, *, as_json: bool) -> int:
    if as_json:
        _print_json({"error": {"id": error.id, "what": error.what, "instead": error.instead, "remedy": error.remedy}})
    else:
        print(error, file=sys.stderr)
    return FOUND


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))


def _list(parsed: argparse.Namespace) -> int:
    registry = Registry()
    rows = [_row(registry, backend) for backend in registry.installed()]
    if parsed.all:
        present = {normalise(row["name"]) for row in rows}
        rows += [_absent(name) for name in CATALOG if name not in present]
    if parsed.json:
        _print_json(rows)
    else:
        _print_table(("name", "distribution", "version", "devices", "state", "summary"), rows)
    return FOUND if any(row["state"] in ("broken", "incompatible") for row in rows) else OK


def _row(registry: Registry, backend: InstalledBackend) -> dict[str, Any]:
    state, reason = registry.state(backend)
    devices = backend.manifest.devices if backend.manifest is not None else ()
    return {
        "name": backend.name,
        "distribution": backend.distribution,
        "version": backend.version,
        "devices": list(devices) or ["any"],
        "state": state,
        "reason": reason,
        "summary": backend.summary,
    }


def _absent(name: str) -> dict[str, Any]:
    entry = CATALOG[name]
    return {
        "name": name,
        "distribution": entry.distribution,
        "version": "",
        "devices": [],
        "state": "not installed",
        "reason": f'pip install "{entry.install}"',
        "summary": entry.summary,
    }


def _print_table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    cells = [list(columns)] + [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
    for row in rows:
        if row["reason"]:
            print(f"{row['name']} ({row['distribution']}): {row['reason']}")


def _cell(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def _info(parsed: argparse.Namespace) -> int:
    registry = Registry()
    backend = registry.find(parsed.name)
    facts = _row(registry, backend)
    facts["entry_point"] = backend.entry_point.value
    if backend.manifest is not None:
        facts["manifest"] = dataclasses.asdict(backend.manifest)
    if parsed.json:
        _print_json(facts)
    else:
        _print_facts(facts)
    return OK if facts["state"] == "ready" else FOUND


def _print_facts(facts: dict[str, Any], indent: str = "") -> None:
    for key, value in facts.items():
        if isinstance(value, dict):
            print(f"{indent}{key}:")
            _print_facts(value, indent + "  ")
        elif value not in ("", (), [], None):
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            print(f"{indent}{key}: {text}")


def _doctor(parsed: argparse.Namespace) -> int:
    findings = examine(Registry(), parsed.name)
    if parsed.json:
        _print_json([dataclasses.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{finding.level}: {finding.text}")
            if finding.remedy:
                print(f"  remedy: {finding.remedy}")
    return FOUND if any(finding.level != "info" for finding in findings) else OK


_COMMANDS = {"list": _list, "info": _info, "doctor": _doctor}
