"""The offline name table: which distribution owns a bare backend name, what is foreign, and what is gone.

The rows stand in `catalog.json` beside this file, which the catalog's generator writes from `catalog/backends/*.toml`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

TABLE = Path(__file__).parent / "catalog.json"


@dataclass(frozen=True)
class CatalogEntry:
    """A name of the catalog. install: what to give pip; peers: importable modules that are something else.

    tier: "official", "verified", "community" or "foreign" (another project's torch.compile backend, reached through
    the bridge: `use` is what to pass as `backend=`); state: "available", "reserved" (nothing is published yet) or
    "gone", with `successor` as the name to use now and `note` as the reason.
    """

    distribution: str
    install: str
    summary: str
    peers: tuple[str, ...] = ()
    name: str = ""
    aliases: tuple[str, ...] = ()
    tier: str = "community"
    state: str = "available"
    use: str = ""
    devices: tuple[str, ...] = ()
    owner: str = ""
    docs: str = ""
    successor: str = ""
    note: str = ""


def read_table(path: Path = TABLE) -> dict[str, CatalogEntry]:
    """Every name of the table, whatever its tier and state."""
    known = {part.name for part in fields(CatalogEntry)}
    rows = json.loads(path.read_text(encoding="utf-8"))["backends"]
    return {row["name"]: _entry({key: value for key, value in row.items() if key in known}) for row in rows}


def _entry(row: Mapping[str, object]) -> CatalogEntry:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return CatalogEntry(**values)  # type: ignore[arg-type]


EVERYTHING = read_table()

CATALOG = {name: entry for name, entry in EVERYTHING.items() if entry.tier != "foreign" and entry.state != "gone"}
"""The reserved names: a bare name of this table means the distribution that owns it."""

FOREIGN = {name: entry for name, entry in EVERYTHING.items() if entry.tier == "foreign" and entry.state != "gone"}
"""Other projects' backends for torch.compile, which the bridge reaches."""

GONE = {
    alias: entry for entry in EVERYTHING.values() if entry.state == "gone" for alias in (entry.name, *entry.aliases)
}
"""Names, aliases included, of backends that no longer exist; `successor` says what to use."""

CONFUSED_PEERS = {
    name: entry.peers[0] for name, entry in EVERYTHING.items() if name not in CATALOG and len(entry.peers) > 0
}
"""Names people ask for that core has no plugin for -> the module of the peer, to say so when it is installed."""
