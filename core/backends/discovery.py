"""What is installed: entry points of the groups `core.backends` and `core.manifests`, read from metadata alone.

Enters: the search path. Leaves: one InstalledBackend a name and distribution. No plugin is imported, nor torch; listing
runs no plugin code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata

from ..plugin import PROJECT
from .catalog import CATALOG
from .manifest import Manifest, ManifestError, locate_manifest, parse_manifest
from .policy import normalise

BACKENDS_GROUP = f"{PROJECT}.backends"
MANIFESTS_GROUP = f"{PROJECT}.manifests"

BUILTIN = {
    "eager": "core.backends.debugging:eager_plugin",
    "aot_eager": "core.backends.debugging:aot_eager_plugin",
}
"""Core's own entry points, as pyproject.toml names them: used when core runs from a tree that was never installed."""


@dataclass(frozen=True)
class InstalledBackend:
    """One backend of one distribution. problem: why its manifest can't be used, empty when it can.

    source: the distribution's metadata, None for core's own backends in a tree that was never installed.
    """

    name: str
    distribution: str
    version: str
    entry_point: metadata.EntryPoint
    manifest: Manifest | None = None
    problem: str = ""
    source: metadata.Distribution | None = field(default=None, repr=False, compare=False)

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


def installed_backends(path: Sequence[str] | None = None) -> tuple[InstalledBackend, ...]:
    """Every backend that the distributions on `path` (default: sys.path) publish, sorted by name and distribution."""
    found = [backend for distribution in _distributions(path) for backend in _of_distribution(distribution)]
    if not any(normalise(backend.distribution) == PROJECT for backend in found):
        found += _builtin()
    return tuple(sorted(found, key=lambda backend: (backend.name, backend.distribution)))


def _distributions(path: Sequence[str] | None) -> Iterator[metadata.Distribution]:
    """Distributions by name; of two with one name the first on the path counts, as it does for imports."""
    seen: set[str] = set()
    found = metadata.distributions() if path is None else metadata.distributions(path=list(path))
    for distribution in found:
        text = distribution.read_text("entry_points.txt")
        if not text or BACKENDS_GROUP not in text:
            continue
        name = normalise(distribution.metadata["Name"] or "")
        if name and name not in seen:
            seen.add(name)
            yield distribution


def _of_distribution(distribution: metadata.Distribution) -> Iterator[InstalledBackend]:
    name, version = distribution.metadata["Name"], distribution.version or "0"
    points = distribution.entry_points
    manifests = {normalise(point.name): point.value for point in points if point.group == MANIFESTS_GROUP}
    for point in points:
        if point.group == BACKENDS_GROUP:
            manifest, problem = _manifest(distribution, point.name, manifests.get(normalise(point.name)))
            yield InstalledBackend(point.name, name, version, point, manifest, problem, distribution)


def _manifest(distribution: metadata.Distribution, name: str, value: str | None) -> tuple[Manifest | None, str]:
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
    try:
        version = metadata.version(PROJECT)
    except metadata.PackageNotFoundError:
        version = "0"
    return [
        InstalledBackend(name, PROJECT, version, metadata.EntryPoint(name, value, BACKENDS_GROUP))
        for name, value in BUILTIN.items()
    ]
