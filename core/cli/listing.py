"""`core list`, `core info` and `core search`: what is installed and what is known; no plugin is imported."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .output import FOUND, OK, print_facts, print_json, print_table
from .places import add_plugins_dir, chosen_registry

if TYPE_CHECKING:
    from ..backends.catalog import CatalogEntry
    from ..backends.certificates import Certificate
    from ..backends.discovery import InstalledBackend
    from ..backends.foreign import ForeignBackend
    from ..backends.registry import Registry

COLUMNS = ("name", "distribution", "version", "devices", "tier", "certificate", "state", "summary")


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    listing = subparsers.add_parser("list", parents=[common], help="installed backends; imports none of them")
    listing.add_argument("--all", action="store_true", help="also known backends that are not installed, and old names")
    listing.set_defaults(run=_list)
    info = subparsers.add_parser("info", parents=[common], help="what a backend declares, from its manifest")
    info.add_argument("name", metavar="NAME")
    info.set_defaults(run=_info)
    search = subparsers.add_parser("search", parents=[common], help="backends of the bundled catalog; no network")
    search.add_argument("word", metavar="WORD")
    search.set_defaults(run=_search)
    for parser in (listing, info, search):
        add_plugins_dir(parser)


def _list(parsed: argparse.Namespace) -> int:
    registry = chosen_registry(parsed)
    rows = [_row(registry, backend) for backend in registry.installed()]
    rows += [_foreign_row(registry, each) for each in registry.foreign()]
    if parsed.all:
        rows += list(_absent(registry))
    if parsed.json:
        print_json(rows)
    else:
        print_table(COLUMNS, rows)
        _print_reasons(rows)
    return FOUND if any(row["state"] in ("broken", "incompatible") for row in rows) else OK


def _print_reasons(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["reason"]:
            name = f"{row['name']} ({row['distribution']})" if row["distribution"] else row["name"]
            print(f"{name}: {'; '.join(filter(None, (row['reason'], row.get('remedy'))))}")


def _row(registry: Registry, backend: InstalledBackend) -> dict[str, Any]:
    from ..backends.certificates import best_state, certificates

    state, reason = registry.state(backend)
    devices = backend.manifest.devices if backend.manifest is not None else ()
    return {
        "name": backend.name,
        "distribution": backend.distribution,
        "version": backend.version,
        "devices": list(devices) or ["any"],
        "tier": _tier(backend),
        "certificate": best_state(certificates(backend.name, backend.version)),
        "state": state,
        "reason": reason,
        "remedy": _remedy(backend) if state == "unavailable" else "",
        "aliases": list(backend.manifest.aliases) if backend.manifest is not None else [],
        "summary": backend.summary,
    }


def _remedy(backend: InstalledBackend) -> str:
    """What to install for a module that is missing."""
    from ..backends.refusals import unavailable

    return unavailable(backend, "").remedy


def _foreign_row(registry: Registry, foreign: ForeignBackend) -> dict[str, Any]:
    """What another project publishes for torch.compile, seen from its metadata."""
    from ..backends.catalog import FOREIGN
    from ..backends.certificates import best_state, certificates

    known = next((entry for entry in FOREIGN.values() if entry.use == foreign.use), None)
    refusal = registry.foreign_refusal(foreign)
    return {
        "name": foreign.use,
        "distribution": foreign.distribution,
        "version": foreign.version,
        "devices": list(known.devices) if known is not None else ["any"],
        "tier": "foreign",
        "certificate": best_state(certificates(foreign.use, foreign.version)),
        "state": "denied" if refusal else "ready",
        "reason": refusal,
        "summary": known.summary if known is not None else "Another project's torch.compile backend, bridged",
    }


def _tier(backend: InstalledBackend) -> str:
    from ..backends.catalog import CATALOG
    from ..backends.policy import normalise

    entry = CATALOG.get(normalise(backend.name))
    owned = entry is not None and normalise(entry.distribution) == normalise(backend.distribution)
    return entry.tier if entry is not None and owned else "community"


def _absent(registry: Registry) -> Iterator[dict[str, Any]]:
    """Every name of the catalog that nothing installed provides: what to install, or what became of it."""
    from ..backends.catalog import EVERYTHING

    present = {name for backend in registry.installed() for name in backend.names}
    bridged = {foreign.use for foreign in registry.foreign()}
    for name, entry in EVERYTHING.items():
        if name not in present and entry.use not in bridged:
            yield _known(name, entry, present)


def _known(name: str, entry: CatalogEntry, present: set[str]) -> dict[str, Any]:
    from ..backends.refusals import pip_line, successor_line

    state = {"available": "not installed", "reserved": "not published"}.get(entry.state, entry.state)
    reason = entry.note
    if entry.state == "available":
        reason = pip_line(entry) + (f'; then pass backend="{entry.use}"' if entry.use else "")
    elif entry.state == "gone":
        reason = "; ".join(filter(None, (entry.note.rstrip("."), successor_line(entry, present.__contains__))))
    return {
        "name": name,
        "distribution": entry.distribution,
        "version": "",
        "devices": list(entry.devices),
        "tier": entry.tier,
        "certificate": "none",
        "state": state,
        "reason": reason,
        "aliases": list(entry.aliases),
        "successor": entry.successor,
        "summary": entry.summary,
    }


def _info(parsed: argparse.Namespace) -> int:
    from ..backends.certificates import certificates
    from ..settings import options_of_backend

    registry = chosen_registry(parsed)
    foreign = registry.find_foreign(parsed.name)
    if foreign is not None:
        return _foreign_info(registry, foreign, as_json=parsed.json)
    backend = registry.find(parsed.name)
    facts = _row(registry, backend)
    facts["entry_point"] = backend.entry_point.value
    facts["options_set"] = options_of_backend(backend.name)
    earned = certificates(backend.name, backend.version)
    facts["certificates"] = [dataclasses.asdict(each) for each in earned] if parsed.json else dict(map(_told, earned))
    if backend.manifest is not None:
        facts["manifest"] = dataclasses.asdict(backend.manifest)
    if parsed.json:
        print_json(facts)
    else:
        print_facts(facts)
    return OK if facts["state"] == "ready" else FOUND


def _told(certificate: Certificate) -> tuple[str, str]:
    """A certificate in a line: profile and device, and what it says of them."""
    word = "certified" if certificate.certified else "not certified"
    counts = f"{certificate.passed} of {certificate.total} tests passed, {certificate.failed} failed"
    against = f"suite {certificate.suite}, torch {certificate.torch}, {certificate.ended}"
    return f"{certificate.profile} on {certificate.device}", f"{word}, {counts}; {against}"


def _foreign_info(registry: Registry, foreign: ForeignBackend, *, as_json: bool) -> int:
    facts = _foreign_row(registry, foreign)
    point, registering = foreign.entry_point, foreign.registering
    facts["entry_point"] = point.value if point is not None else ""
    facts["imported_module"] = registering.module if registering is not None else ""
    facts["graphs"] = f"dynamic shapes: {foreign.traits.dynamic_shapes}"
    facts["dtypes"] = list(foreign.traits.dtypes)
    facts["note"] = foreign.traits.note
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
    return OK if facts["state"] == "ready" else FOUND


def _search(parsed: argparse.Namespace) -> int:
    registry = chosen_registry(parsed)
    word = parsed.word.casefold()
    rows = [_row(registry, backend) for backend in registry.installed()]
    rows += [*(_foreign_row(registry, each) for each in registry.foreign()), *_absent(registry)]
    found = [row for row in rows if word in _searched(row)]
    if parsed.json:
        print_json(found)
    elif found:
        print_table(("name", "distribution", "tier", "state", "summary"), found)
        _print_reasons(found)
    else:
        print(f"nothing in the catalog of this core speaks of {parsed.word!r}")
    return OK if found else FOUND


def _searched(row: dict[str, Any]) -> str:
    words = [row[key] for key in ("name", "distribution", "summary", "reason")]
    return " ".join([*words, *row["devices"], *row.get("aliases", ())]).casefold()
