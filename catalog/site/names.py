"""backends/<name>.toml of the catalog: one file a name, checked when it is read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BACKENDS = ROOT / "backends"
BUNDLED = ROOT.parent / "core" / "backends" / "catalog.json"

TIERS = ("official", "verified", "community", "foreign")
STATES = ("available", "reserved", "gone")
TEXTS = ("name", "summary", "distribution", "owner", "tier", "state", "install", "use", "docs", "successor", "note")
LISTS = ("aliases", "devices", "peers")
REQUIRED = ("name", "summary", "distribution", "owner", "tier", "state")


class CatalogError(ValueError):
    """A file of the catalog that can't be published; the text names the file and the key."""


def read_names(folder: Path = BACKENDS) -> list[dict[str, Any]]:
    """Every row, ordered by tier and name. Raises CatalogError."""
    rows = [_read(path) for path in sorted(folder.glob("*.toml"))]
    claimed: dict[str, str] = {}
    for row in rows:
        for name in (row["name"], *row["aliases"]):
            key = name.casefold().replace("-", "_")
            if key in claimed:
                raise CatalogError(f"{row['name']}.toml: {name!r} is claimed by {claimed[key]}.toml too")
            claimed[key] = row["name"]
    for row in rows:
        successor = row["successor"]
        if successor and successor not in {other["name"] for other in rows}:
            raise CatalogError(f"{row['name']}.toml: successor {successor!r} is not in the catalog")
    return sorted(rows, key=lambda row: (STATES.index(row["state"]), TIERS.index(row["tier"]), row["name"]))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{path.name}: not TOML: {error}") from None
    for key in REQUIRED:
        if key not in data:
            raise CatalogError(f"{path.name}: `{key}` is missing")
    for key, value in data.items():
        if key in LISTS:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise CatalogError(f"{path.name}: `{key}` must be a list of strings")
        elif key not in TEXTS:
            raise CatalogError(f"{path.name}: unknown key `{key}`")
        elif not isinstance(value, str):
            raise CatalogError(f"{path.name}: `{key}` must be a string")
    if data["name"] != path.stem:
        raise CatalogError(f"{path.name}: `name` is {data['name']!r}")
    for key, allowed in (("tier", TIERS), ("state", STATES)):
        if data[key] not in allowed:
            raise CatalogError(f"{path.name}: `{key}` is {data[key]!r}, not one of {', '.join(allowed)}")
    if data["state"] == "gone" and not data.get("note"):
        raise CatalogError(f"{path.name}: a backend that is gone needs a `note`")
    if data["state"] != "gone" and not data.get("install"):
        raise CatalogError(f"{path.name}: `install` is missing")
    return {**dict.fromkeys(TEXTS, ""), **{key: [] for key in LISTS}, **data}


def bundle_text(rows: list[dict[str, Any]]) -> str:
    """The name table as core carries it: `core/backends/catalog.json`. Empty values are left out."""
    slim = [{key: value for key, value in row.items() if value} for row in rows]
    lines = ",\n".join("    " + json.dumps({"distribution": "", "install": "", **row}, sort_keys=True) for row in slim)
    return f'{{\n  "schema": 1,\n  "backends": [\n{lines}\n  ]\n}}\n'
