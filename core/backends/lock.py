"""core.lock: which distribution of which content each plugin had when somebody approved of it.

The digest of a distribution is that of its RECORD, which names the sha256 of every file that was installed, without the
lines that differ between machines (compiled files, scripts, what the installer notes). `core lock` writes the file;
with `require_lock = true` a plugin that it does not hold as installed is refused. The files themselves are compared
with their RECORD by `core lock --check`, not at each start.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..plugin import PROJECT
from .discovery import InstalledBackend
from .policy import normalise

SCHEMA = 1
_NOTES = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")


@dataclass(frozen=True)
class LockedPlugin:
    """One distribution of the lock: its digest, and the backends it provided."""

    distribution: str
    version: str
    digest: str
    backends: tuple[str, ...] = ()


class LockError(ValueError):
    """A lock file that can't be read."""


def record_digest(distribution: Any) -> str:
    """`sha256:...` of the distribution's RECORD; empty when it has none, or one without digests of its files."""
    lines = sorted(f"{name} {digest}" for name, digest in _recorded(distribution))
    if not lines:
        return ""
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest_of(backend: InstalledBackend) -> str:
    """The digest of the distribution that provides a backend."""
    return record_digest(backend.source) if backend.source is not None else ""


def _recorded(distribution: Any) -> Iterable[tuple[str, str]]:
    """(file, digest) of each file that is the same on every machine."""
    for row in csv.reader(io.StringIO(distribution.read_text("RECORD") or "")):
        if len(row) < 2 or not row[1]:
            continue
        path = Path(row[0])
        noted = path.name in _NOTES and path.parent.suffix == ".dist-info"
        if not noted and path.suffix != ".pyc" and ".." not in path.parts:
            yield row[0], row[1]


def changed_files(distribution: Any) -> list[str]:
    """The files that are not what RECORD says: other content, or gone."""
    changed = []
    for name, recorded in _recorded(distribution):
        kind, _, wanted = recorded.partition("=")
        try:
            content = Path(str(distribution.locate_file(name))).read_bytes()
        except OSError:
            changed.append(name)
            continue
        digest = base64.urlsafe_b64encode(hashlib.new(kind, content).digest()).rstrip(b"=").decode()
        if digest != wanted:
            changed.append(name)
    return changed


def installed_plugins(backends: Iterable[InstalledBackend]) -> list[LockedPlugin]:
    """What a lock would hold now: the distributions of these backends, core's own aside."""
    names: dict[str, list[InstalledBackend]] = {}
    for backend in backends:
        if normalise(backend.distribution) != PROJECT:
            names.setdefault(backend.distribution, []).append(backend)
    return [
        LockedPlugin(name, group[0].version, digest_of(group[0]), tuple(sorted(b.name for b in group)))
        for name, group in sorted(names.items())
    ]


def read_lock(path: Path) -> dict[str, LockedPlugin] | None:
    """The plugins of a lock file by normalised distribution; None when there is no file. Raises LockError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise LockError(f"{path} can't be read: {error}") from None
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise LockError(f"{path} has schema {data['schema']}, this core reads {SCHEMA}")
        rows = [LockedPlugin(row["distribution"], row["version"], row["digest"]) for row in data["plugins"]]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, LockError):
            raise
        raise LockError(f"{path} is no lock file of core: {type(error).__name__}: {error}") from None
    return {normalise(row.distribution): row for row in rows}


def lock_text(plugins: Iterable[LockedPlugin]) -> str:
    """The content of a lock file: JSON, one plugin a line group, the same text for the same plugins."""
    rows = [
        {"distribution": p.distribution, "version": p.version, "digest": p.digest, "backends": list(p.backends)}
        for p in plugins
    ]
    return json.dumps({"schema": SCHEMA, "plugins": rows}, indent=2) + "\n"


def difference(backend: InstalledBackend, locked: Mapping[str, LockedPlugin]) -> str:
    """Why the lock does not admit a backend as it is installed, or an empty text."""
    known = locked.get(normalise(backend.distribution))
    if known is None:
        return f"it does not hold {backend.distribution}"
    if known.version != backend.version:
        return f"it holds {backend.distribution} {known.version}, installed is {backend.version}"
    if not known.digest:
        return f"it has no digest of {backend.distribution}, which was installed without a record of its files"
    if known.digest != digest_of(backend):
        return f"the files of {backend.distribution} {backend.version} are not those that were locked"
    return ""
