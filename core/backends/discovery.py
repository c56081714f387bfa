"""What is installed: entry points of the groups `core.backends` and `core.manifests`, read from metadata alone.

Enters: the search path. Leaves: one InstalledBackend a name and distribution. No plugin is imported, nor torch; listing
runs no plugin code.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..plugin import PROJECT
from .catalog import CATALOG
from .distributions import EntryPoint, distributions, identity, version_of
from .manifest import Manifest, ManifestError, locate_manifest, parse_manifest
from .policy import normalise

BACKENDS_GROUP = f"{PROJECT}.backends"
MANIFESTS_GROUP = f"{PROJECT}.manifests"

BUILTIN = {
    "eager": "core.backends.debugging:eager_plugin",
    "aot_eager": "core.backends.debugging:aot_eager_plugin",
    "aot_eager_decomp_partition": "core.backends.debugging:decomposed_plugin",
}
"""Core's own entry points, as pyproject.toml names them: used where the installed metadata lacks them, as
in a tree that was never installed."""


@dataclass(frozen=True)
class InstalledBackend:
    """One backend of one distribution. problem: why its manifest can't be used, empty when it can.

    source: the distribution's metadata, None for core's own backends in a tree that was never installed.
    """

    name: str
    distribution: str
    version: str
    entry_point: EntryPoint
    manifest: Manifest | None = None
    problem: str = ""
    source: Any = field(default=None, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the aliases, normalised."""
        aliases = self.manifest.aliases if self.manifest is not None else ()
        return tuple(normalise(name) for name in (self.name, *aliases))

    @property
    def summary(self) -> str:
        if self.manifest is not None and self.manifest.summary:
            return self.manifest.summary
        owned = CATALOG.get(normalise(self.name))
        return owned.summary if owned is not None and owned.distribution == normalise(self.distribution) else ""

    @property
    def qualified(self) -> str:
        """The exact name: `distribution:name`."""
        return f"{self.distribution}:{self.name}"


def installed_backends(scanned: Scan | None = None) -> tuple[InstalledBackend, ...]:
    """Every backend that the scanned distributions publish, by default those on search_path; sorted by name."""
    scanned = scan(search_path()) if scanned is None else scanned
    found = [
        backend
        for name, version, distribution in publishing(scanned, BACKENDS_GROUP)
        for backend in _of_distribution(name, version, distribution)
    ]
    published = {backend.name for backend in found if normalise(backend.distribution) == PROJECT}
    found += [backend for backend in _builtin() if backend.name not in published]
    return tuple(sorted(found, key=lambda backend: (backend.name, backend.distribution)))


def search_path() -> list[str]:
    """Where distributions are looked for: sys.path, without the working folder that Python puts there by itself.

    A folder somebody works in may hold the metadata of anything; it counts when PYTHONPATH or the site names it.
    """
    here = _resolved(os.curdir)
    named = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *site.getsitepackages(), site.getusersitepackages()]
    on_purpose = here in {_resolved(folder) for folder in named if folder}
    return [folder for folder in sys.path if on_purpose or _resolved(folder or os.curdir) != here]


def _resolved(folder: str) -> str:
    return os.path.realpath(folder)


Scan = Sequence[tuple[Any, str]]
"""Distributions in the order of the path, each with the text of its entry points."""


def scan(path: Sequence[str]) -> Scan:
    """Read once what several groups of entry points are looked for in."""
    found = ((each, each.read_text("entry_points.txt")) for each in distributions(path))
    return [(distribution, text) for distribution, text in found if text]


def publishing(scanned: Scan, group: str) -> Iterator[tuple[str, str, Any]]:
    """(name, version, distribution) of those with entry points of a group.

    Of two with one name the first on the path counts, as it does for imports.
    """
    seen: set[str] = set()
    for distribution, text in scanned:
        if group not in text:
            continue
        name, version = identity(distribution)
        key = normalise(name)
        if key and key not in seen:
            seen.add(key)
            yield name, version, distribution


def _of_distribution(name: str, version: str, distribution: Any) -> Iterator[InstalledBackend]:
    points = distribution.entry_points
    manifests = {normalise(point.name): point.value for point in points if point.group == MANIFESTS_GROUP}
    for point in points:
        if point.group == BACKENDS_GROUP:
            manifest, problem = _manifest(distribution, point.name, manifests.get(normalise(point.name)))
            yield InstalledBackend(point.name, name, version, point, manifest, problem, distribution)


def _manifest(distribution: Any, name: str, value: str | None) -> tuple[Manifest | None, str]:
    if value is None:
        return None, ""
    path = locate_manifest(distribution, value)
    if path is None:
        return None, f"the manifest {value} is not among its files"
    try:
        manifest = parse_manifest(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ManifestError) as error:
        return None, f"the manifest {path.name} can't be read: {error}"
    if normalise(manifest.name) != normalise(name):
        return None, f"the manifest says name = {manifest.name!r}, the entry point {name!r}"
    return manifest, ""


def _builtin() -> list[InstalledBackend]:
    version = version_of(PROJECT) or "0"
    return [
        InstalledBackend(name, PROJECT, version, EntryPoint(name, value, BACKENDS_GROUP))
        for name, value in BUILTIN.items()
    ]
