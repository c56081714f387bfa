"""Digests of what took part in a run: distributions as they are installed, or as they lie in their source folders."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path

KINDS = frozenset((".py", ".pyi", ".toml", ".txt", ".json", ".c", ".cpp", ".h", ".cu"))


def distribution_digest(name: str) -> str:
    """sha256 of the RECORD of an installed distribution; of its sources where it is installed from a folder in place.

    Empty for a distribution that is not installed.
    """
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return ""
    folder = _source_folder(distribution)
    if folder is not None:
        return folder_digest(*[folder / top for top in _top_levels(distribution)])
    record = distribution.read_text("RECORD") or ""
    return hashlib.sha256("\n".join(sorted(record.splitlines())).encode()).hexdigest()


def _source_folder(distribution: metadata.Distribution) -> Path | None:
    """The folder of a distribution that is installed in place (editable), else None."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = str(origin.get("url", ""))
    if not origin.get("dir_info", {}).get("editable") or not url.startswith("file://"):
        return None
    return Path(url.removeprefix("file://"))


def _top_levels(distribution: metadata.Distribution) -> list[str]:
    return (distribution.read_text("top_level.txt") or "").split() or [distribution.name.replace("-", "_")]


def folder_digest(*folders: Path) -> str:
    """sha256 over the names and contents of the source files beneath some folders."""
    total = hashlib.sha256()
    for folder in folders:
        files = [folder] if folder.is_file() else sorted(p for p in folder.rglob("*") if p.suffix in KINDS)
        for path in files:
            if "__pycache__" in path.parts:
                continue
            total.update(f"{path.relative_to(folder.parent).as_posix()}\n".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def altered_files(name: str) -> list[str]:
    """Files of an installed distribution whose contents are not those of its RECORD; nothing to say when in place."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return []
    found = []
    for path in distribution.files or []:
        if path.hash is None or path.hash.mode != "sha256":
            continue
        located = Path(str(path.locate()))
        if not located.is_file() or _urlsafe(located.read_bytes()) != path.hash.value:
            found.append(str(path))
    return found


def _urlsafe(content: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
