"""What is said when a name can't become a backend: each error with the line that helps. Nothing is imported for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..errors import (
    AmbiguousBackend,
    BackendBroken,
    BackendIncompatible,
    BackendNotInstalled,
    BackendRetired,
    BackendUnavailable,
    PluginNotLocked,
)
from .catalog import CATALOG, CONFUSED_PEERS, EVERYTHING, FOREIGN, GONE, CatalogEntry
from .compatibility import described
from .discovery import InstalledBackend
from .foreign import ForeignBackend
from .policy import normalise

_NOTHING = "nothing was compiled"


def owned_name(name: str) -> str | None:
    """The reserved name that a normalised name of the catalog is an alias of, or None."""
    return next((key for key, entry in CATALOG.items() if name in map(normalise, entry.aliases)), None)


def _entry(name: str) -> CatalogEntry | None:
    """The catalog's entry of a normalised name or alias, those that are gone aside."""
    return CATALOG.get(name) or CATALOG.get(owned_name(name) or "") or _foreign(name)


def installable(name: str, near: Sequence[str], provided: Callable[[str], bool]) -> CatalogEntry:
    """The entry of the catalog that pip can install for `name`. Raises BackendNotInstalled when there is none."""
    entry = _entry(normalise(name))
    if entry is None or not _published(entry):
        raise not_installed(name, near, provided)
    return entry


def _foreign(name: str) -> CatalogEntry | None:
    found = (entry for key, entry in FOREIGN.items() if name in map(normalise, (key, *entry.aliases)))
    return next(found, None)


def owner_of(backend: InstalledBackend) -> str | None:
    """The distribution that the backend's name belongs to when it is another one, else None."""
    owned = CATALOG.get(normalise(backend.name))
    if owned is None or normalise(owned.distribution) == normalise(backend.distribution):
        return None
    return owned.distribution


def label(backend: InstalledBackend) -> str:
    """`backend 'alpha' of core-alpha 1.0`, as errors name it."""
    return f"backend {backend.name!r} of {backend.distribution} {backend.version}"


def not_installed(name: str, near: Sequence[str], provided: Callable[[str], bool]) -> BackendNotInstalled:
    """No distribution provides `name`. near: names that look alike; provided: whether one of them is installed."""
    key = normalise(name.rpartition(":")[2])
    if key in GONE:
        return _retired(name, GONE[key], provided)
    entry = _entry(key)
    what = f"no installed distribution provides the backend {name!r}"
    remedies = []
    if entry is not None and entry.state == "reserved":
        what += f"; the name is kept for {entry.distribution}, of which nothing is published yet"
        what += f" ({entry.note.rstrip('.')})" if entry.note else ""
    elif entry is not None:
        remedies.append(pip_line(entry))
        if entry.use:
            remedies.append(f'then pass backend="{entry.use}"')
    if near and entry is None:
        remedies.append(f"did you mean {' or '.join(map(repr, near))}?")
        remedies += [pip_line(CATALOG[n]) for n in near if n in CATALOG and not provided(n) and _published(CATALOG[n])]
    peer = _present_peer(key, entry)
    if peer:
        what += f" ({peer} is installed, but it is no plugin of core)"
    if not remedies:
        remedies.append("`python -m core list --all` shows what is installed and what is known")
    return BackendNotInstalled(what, instead=_NOTHING, remedy="; ".join(remedies))


def _retired(name: str, entry: CatalogEntry, provided: Callable[[str], bool]) -> BackendRetired:
    reason = f": {entry.note.rstrip('.')}" if entry.note else ""
    return BackendRetired(
        f"the backend {name!r} is gone{reason}",
        instead=_NOTHING,
        remedy=successor_line(entry, provided) or "`python -m core list --all` shows what there is",
    )


def successor_line(entry: CatalogEntry, provided: Callable[[str], bool]) -> str:
    """What to use in place of a name that is gone, with the pip line where that is not installed."""
    if not entry.successor:
        return ""
    successor = EVERYTHING.get(entry.successor)
    line = f'use backend="{(successor.use if successor is not None else "") or entry.successor}"'
    if successor is None or provided(entry.successor):
        return line
    if not _published(successor):
        return f"{line}, once {successor.distribution} is published"
    return f"{line}: {pip_line(successor)}"


def pip_line(entry: CatalogEntry) -> str:
    """The line that installs what an entry of the catalog names, and where a folder of it is to be found."""
    return f'pip install "{entry.install}"' + (" in the sources of core" if entry.install.startswith("./") else "")


def _published(entry: CatalogEntry) -> bool:
    return entry.state == "available"


def _present_peer(key: str, entry: CatalogEntry | None) -> str:
    peers: Iterable[str] = entry.peers if entry is not None else (CONFUSED_PEERS.get(key, ""),)
    return next((peer for peer in peers if peer and importlib.util.find_spec(peer.partition(".")[0]) is not None), "")


def denied_by_name(name: str, backend: InstalledBackend, reason: str) -> BackendNotInstalled:
    return BackendNotInstalled(
        f"backend {name!r} is installed by {backend.distribution}, but not allowed: {reason}",
        instead=_NOTHING,
        remedy="change that setting, or choose another backend",
    )


def denied(backend: InstalledBackend, reason: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"{label(backend)} is not allowed: {reason}", instead=_NOTHING, remedy="change that setting"
    )


def not_locked(backend: InstalledBackend, reason: str) -> PluginNotLocked:
    return PluginNotLocked(
        f"{label(backend)} is not locked: {reason}",
        instead="the plugin was not imported",
        remedy="look at what was installed, then run `python -m core lock`",
    )


def ambiguous(name: str, candidates: Sequence[InstalledBackend]) -> AmbiguousBackend:
    """More than one distribution, none pinned and none the owner."""
    key = normalise(candidates[0].name)
    listed = ", ".join(f"{each.distribution} {each.version}" for each in candidates)
    return AmbiguousBackend(
        f"{len(candidates)} distributions provide the backend {name!r}: {listed}",
        instead=_NOTHING,
        remedy=f'name one as backend="{candidates[0].qualified}", or pin it in pyproject.toml: '
        f"[tool.core.plugins] {pin_line(key, candidates[0].distribution)}",
    )


def ambiguous_foreign(name: str, found: Sequence[ForeignBackend]) -> AmbiguousBackend:
    listed = ", ".join(f"{each.distribution} {each.version}" for each in found)
    return AmbiguousBackend(
        f"{len(found)} distributions publish {name!r} for torch.compile: {listed}",
        instead=_NOTHING,
        remedy=f'name one as backend="dynamo:{found[0].distribution}:{found[0].name}"',
    )


def denied_foreign(name: str, distribution: str, reason: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"backend 'dynamo:{name}' of {distribution} is not allowed: {reason}",
        instead=_NOTHING,
        remedy="change that setting, or choose another backend",
    )


def pin_line(name: str, distribution: str) -> str:
    return f'pin = {{ {name} = "{distribution}" }}'


def incompatible(backend: InstalledBackend, reason: str, versions: Mapping[str, str]) -> BackendIncompatible:
    """The plugin's ranges, the versions here, and which side to change."""
    manifest = backend.manifest
    remedies = []
    if manifest is not None and not manifest.loadable:
        remedies.append(f"upgrade core: pip install --upgrade core; or install an older {backend.distribution}")
    elif manifest is not None:
        remedies = [each.remedy(backend.distribution) for each in manifest.mismatches(versions)]
    return BackendIncompatible(
        f"{label(backend)} does not fit this process: {reason}; here are {described(versions)}",
        instead="the plugin was not loaded",
        remedy="; ".join(remedies) or f"install another version of {backend.distribution}",
    )


def unavailable(backend: InstalledBackend, reason: str) -> BackendUnavailable:
    pip = backend.manifest.requires_pip if backend.manifest is not None else ""
    return BackendUnavailable(
        f"{label(backend)} can't work here: {reason}",
        instead=_NOTHING,
        remedy=f'pip install "{pip}"' if pip else "install what is missing",
    )


def broken(backend: InstalledBackend, reason: str) -> BackendBroken:
    issues = backend.manifest.issues if backend.manifest is not None else ""
    return BackendBroken(
        f"{label(backend)} could not be loaded: {reason}",
        instead="the plugin is quarantined for this process; other backends keep working",
        remedy=f"reinstall {backend.distribution}" + (f", or report it at {issues}" if issues else ""),
    )


def still_loading(backend: InstalledBackend, seconds: float) -> BackendUnavailable:
    return BackendUnavailable(
        f"{label(backend)} is being imported by another thread, which has not ended within {seconds:g} s",
        instead=_NOTHING,
        remedy=f"`python -m core doctor {backend.name}` imports it in a process of its own and says where it stands",
    )
