"""`core list` and `core info`: what is installed and what it declares, from metadata; no plugin is imported."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from ..backends.catalog import CATALOG
from ..backends.discovery import InstalledBackend
from ..backends.policy import normalise
from ..backends.registry import Registry
from .output import FOUND, OK, print_facts, print_json, print_table


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    listing = subparsers.add_parser("list", parents=[common], help="installed backends; imports none of them")
    listing.add_argument("--all", action="store_true", help="also known backends that are not installed")
    listing.set_defaults(run=_list)
    info = subparsers.add_parser("info", parents=[common], help="what a backend declares, from its manifest")
    info.add_argument("name", metavar="NAME")
    info.set_defaults(run=_info)


def _list(parsed: argparse.Namespace) -> int:
    registry = Registry()
    rows = [_row(registry, backend) for backend in registry.installed()]
    if parsed.all:
        present = {normalise(row["name"]) for row in rows}
        rows += [_absent(name) for name in CATALOG if name not in present]
    if parsed.json:
        print_json(rows)
    else:
        print_table(("name", "distribution", "version", "devices", "state", "summary"), rows)
        for row in rows:
            if row["reason"]:
                print(f"{row['name']} ({row['distribution']}): {row['reason']}")
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


def _info(parsed: argparse.Namespace) -> int:
    registry = Registry()
    backend = registry.find(parsed.name)
    facts = _row(registry, backend)
    facts["entry_point"] = backend.entry_point.value
    if backend.manifest is not None:
        facts["manifest"] = dataclasses.asdict(backend.manifest)
    if parsed.json:
        print_json(facts)
    else:
        print_facts(facts)
    return OK if facts["state"] == "ready" else FOUND
