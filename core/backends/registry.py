"""The registry: how `backend=` becomes a ResolvedBackend.

Enters: a name, a list of names, a Backend or a callable. Leaves: a ResolvedBackend, or one of the errors of
`refusals.py`. Only the plugin that was resolved is imported; a plugin that fails is quarantined for the process and the
others go on. This module imports no torch.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import (
    BackendBroken,
    BackendError,
    BackendIncompatible,
    BackendNotInstalled,
    BackendUnavailable,
    InvalidOption,
)
from ..plugin import Finding
from ..settings import config
from . import refusals
from .catalog import CATALOG
from .discovery import InstalledBackend, Scan, installed_backends, scan, search_path
from .foreign import PREFIX, ForeignBackend, foreign_backends, named, registered_names
from .manifest import running_versions
from .policy import PluginPolicy, normalise, read_policy

if TYPE_CHECKING:
    import pluggy

    from .loading import Quarantined
    from .lock import LockedPlugin
    from .resolved import ResolvedBackend

# What only loading needs is imported where it is used: listing has to be quick.

LOAD_SECONDS = 120.0
"""How long a thread waits for another one that imports the plugin it wants."""


class Registry:
    """The backends of one search path under one policy.

    State shared between threads: `_installed`, `_resolved`, `_quarantine`, `_findings`, `_warned`, `_loading` and the
    plugin manager, all under `_lock`. A plugin is imported under a lock of its own (in `_loading`), so that one that
    hangs holds up nobody who wants another.
    """

    def __init__(
        self,
        path: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        project: Path | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        self._given_versions = versions
        self.policy: PluginPolicy = read_policy(environ, project)
        self._lock = threading.RLock()
        self._scan: Scan | None = None
        self._installed: tuple[InstalledBackend, ...] | None = None
        self._foreign: tuple[ForeignBackend, ...] | None = None
        self._bridged: dict[str, ResolvedBackend] = {}
        self._resolved: dict[str, ResolvedBackend] = {}
        self._plugins: dict[str, Any] = {}
        self._loading: dict[str, threading.RLock] = {}
        self._quarantine: dict[str, Quarantined] = {}
        self._findings: dict[str, tuple[Finding, ...]] = {}
        self._warned: set[tuple[str, str]] = set()

    @cached_property
    def _manager(self) -> pluggy.PluginManager:
        from .loading import plugin_manager

        return plugin_manager()

    # -- listing -----------------------------------------------------------------------------------------------------

    def installed(self) -> tuple[InstalledBackend, ...]:
        """Every installed backend, usable or not; nothing is imported."""
        with self._lock:
            if self._installed is None:
                self._installed = installed_backends(self._scanned())
            return self._installed

    def refresh(self) -> None:
        """Forget what is installed, so that the next lookup reads the metadata again. Quarantine stays."""
        with self._lock:
            self._scan = None
            self._installed = None
            self._foreign = None

    def _scanned(self) -> Scan:
        """What is on the path, read once for plugins and foreign backends."""
        with self._lock:
            if self._scan is None:
                self._scan = scan(search_path() if self._path is None else self._path)
            return self._scan

    @cached_property
    def versions(self) -> Mapping[str, str]:
        """The versions on this side of a mismatch, read from metadata."""
        return self._given_versions or running_versions()

    def state(self, backend: InstalledBackend) -> tuple[str, str]:
        """(state, reason) without importing the plugin: ready, denied, incompatible, unavailable or broken.

        A ready one has a reason where it was made for an older torch than this.
        """
        broken = self._quarantine.get(backend.qualified)
        if broken is not None:
            return "broken", broken.error.what
        if backend.problem:
            return "broken", backend.problem
        refusal = self.policy.refusal(backend.name, backend.distribution)
        if refusal:
            return "denied", refusal
        unlocked = self.unlocked(backend)
        if unlocked:
            return "denied", unlocked
        manifest = backend.manifest
        if manifest is None:
            return "ready", ""
        if not manifest.loadable:
            return "incompatible", f"its manifest has schema {manifest.schema}, newer than this core reads"
        mismatches = manifest.mismatches(self.versions)
        if self.policy.strict or not all(each.untested for each in mismatches) or manifest.wrong_platform():
            reasons = [*map(str, mismatches), *filter(None, [manifest.wrong_platform()])]
            if reasons:
                return "incompatible", "; ".join(reasons)
        missing = manifest.missing_imports()
        if missing:
            return "unavailable", f"it needs {', '.join(missing)}, which is not installed"
        return "ready", "; ".join(f"not tested with this torch: {each}" for each in mismatches)

    def unlocked(self, backend: InstalledBackend) -> str:
        """Why the lock file does not admit a backend, where one is required; else an empty text."""
        if not self.policy.require_lock or normalise(backend.distribution) == "core":
            return ""
        from .lock import LockError, difference

        path = self.policy.lock_file
        try:
            locked = self._locked_plugins
        except LockError as error:
            return str(error)
        if locked is None:
            return f"require_lock = true, and there is no {path}"
        reason = difference(backend, locked)
        return f"require_lock = true, and {path} refuses it: {reason}" if reason else ""

    @cached_property
    def _locked_plugins(self) -> dict[str, LockedPlugin] | None:
        from .lock import read_lock

        return read_lock(self.policy.lock_file)

    def conflicts(self) -> dict[str, tuple[InstalledBackend, ...]]:
        """Names that more than one distribution provides."""
        by_name: dict[str, list[InstalledBackend]] = {}
        for backend in self.installed():
            by_name.setdefault(normalise(backend.name), []).append(backend)
        return {name: tuple(group) for name, group in by_name.items() if len(group) > 1}

    def strangers(self) -> list[InstalledBackend]:
        """Backends under a name that the catalog keeps for another distribution."""
        return [backend for backend in self.installed() if refusals.owner_of(backend) is not None]

    def quarantined(self) -> list[Quarantined]:
        """The plugins that failed in this process, with the traceback of their failure."""
        with self._lock:
            return list(self._quarantine.values())

    def findings(self) -> list[Finding]:
        """What loading plugins changed in this process."""
        with self._lock:
            return [finding for findings in self._findings.values() for finding in findings]

    # -- resolution --------------------------------------------------------------------------------------------------

    def resolve(self, spec: Any) -> ResolvedBackend:
        """The backend for `spec`: a name, `distribution:name`, a list in order of preference, a Backend or a callable.

        Raises BackendNotInstalled, AmbiguousBackend, BackendIncompatible, BackendUnavailable or BackendBroken.
        """
        if isinstance(spec, str):
            return self._resolve_name(spec)
        if isinstance(spec, (list, tuple)) and spec:
            return self._first_usable(spec)
        from .custom import resolve_object

        resolved = resolve_object(spec)
        if resolved is None:
            raise InvalidOption(
                f"backend={spec!r} is neither a name, a Backend nor a callable",
                instead="nothing was compiled",
                remedy="pass a name that `python -m core list` shows, or a function (graph_module, example_inputs)",
            )
        return resolved

    def find(self, name: str) -> InstalledBackend:
        """The one installed backend that a name means, without importing it. Raises as resolve does."""
        candidates = self._candidates(name)
        if not candidates:
            self.refresh()  # it may have been installed since
            candidates = self._candidates(name)
        if not candidates:
            raise self._not_installed(name)
        chosen = candidates[0] if len(candidates) == 1 else self._disambiguate(name, candidates)
        self._warn_of_shadowing(chosen)
        return chosen

    def _resolve_name(self, name: str) -> ResolvedBackend:
        if name.strip().casefold().startswith(PREFIX):
            return self._resolve_foreign(name.strip()[len(PREFIX) :])
        if normalise(name) == "auto" and not self._candidates(name):
            from .auto import resolved_auto

            return resolved_auto(self)
        try:
            chosen = self.find(name)
        except BackendNotInstalled:
            if not self._means_foreign(name):
                raise
            return self._resolve_foreign(name)
        with self._lock:
            resolved = self._resolved.get(chosen.qualified)
            lock = self._loading.setdefault(chosen.qualified, threading.RLock())
        if resolved is not None:
            return resolved
        if not lock.acquire(timeout=LOAD_SECONDS):
            raise refusals.still_loading(chosen, LOAD_SECONDS)
        try:
            with self._lock:
                resolved = self._resolved.get(chosen.qualified)
            if resolved is None:
                self._require_usable(chosen)
                resolved = self._load(chosen)
                with self._lock:
                    self._resolved[chosen.qualified] = resolved
        finally:
            lock.release()
        return resolved

    def foreign(self) -> tuple[ForeignBackend, ...]:
        """What other projects publish for torch.compile, from metadata; `backend="dynamo:NAME"` takes it."""
        with self._lock:
            if self._foreign is None:
                self._foreign = foreign_backends(self._scanned(), registering=self._path is None)
            return self._foreign

    def foreign_refusal(self, foreign: ForeignBackend) -> str:
        """Why a foreign backend may not be used, or an empty text."""
        reason = self.policy.refusal(foreign.name, foreign.distribution)
        if not reason and self.policy.require_lock:
            return "require_lock = true, and a lock holds plugins of core only"
        return reason

    def find_foreign(self, name: str) -> ForeignBackend | None:
        """The foreign backend that `dynamo:NAME`, or a name that no plugin has, means; None where it means none."""
        given = name.strip()
        if given.casefold().startswith(PREFIX):
            found = named(self.foreign(), given[len(PREFIX) :])
        elif self._candidates(given) or not self._means_foreign(given):
            return None
        else:
            found = named(self.foreign(), given)
        if len(found) > 1:
            raise refusals.ambiguous_foreign(given, found)
        return found[0] if found else None

    def _means_foreign(self, name: str) -> bool:
        """Whether a name that no plugin has means one foreign backend; names of the catalog's plugins never do."""
        if normalise(name.rpartition(":")[2]) in CATALOG or refusals.owned_name(normalise(name)) is not None:
            return False
        return len(named(self.foreign(), name)) == 1 or name in registered_names()

    def _resolve_foreign(self, name: str) -> ResolvedBackend:
        """The bridge to a foreign backend; `name` is without the prefix."""
        found = self.find_foreign(PREFIX + name)
        refusal = self.foreign_refusal(found) if found is not None else ""
        if refusal:
            raise refusals.denied_foreign(name, found.distribution, refusal)  # type: ignore[union-attr]
        bare = found.name if found is not None else name.rpartition(":")[2]
        key = f"{PREFIX}{found.distribution if found is not None else ''}:{bare}"
        with self._lock:
            resolved = self._bridged.get(key)
        if resolved is None:
            from .bridge import load_foreign

            resolved = load_foreign(bare, found)
            with self._lock:
                resolved = self._bridged.setdefault(key, resolved)
        return resolved

    def _first_usable(self, specs: Sequence[Any]) -> ResolvedBackend:
        first: BackendError | None = None
        for spec in specs:
            try:
                return self.resolve(spec)
            except (BackendNotInstalled, BackendIncompatible, BackendUnavailable) as error:
                first = first or error
        assert first is not None
        raise first

    def _candidates(self, name: str) -> list[InstalledBackend]:
        distribution, _, bare = name.rpartition(":")
        wanted = normalise(bare)
        allowed = [b for b in self.installed() if not self.policy.refusal(b.name, b.distribution)]
        if distribution:
            allowed = [b for b in self.installed() if normalise(b.distribution) == normalise(distribution)]
        names = [wanted]
        owned = refusals.owned_name(wanted)
        if owned is not None and not distribution:
            names.append(owned)
        for each in names:
            exact = [b for b in allowed if normalise(b.name) == each]
            found = exact or [b for b in allowed if each in b.names]
            if found:
                return found
        return []

    def _disambiguate(self, name: str, candidates: list[InstalledBackend]) -> InstalledBackend:
        key = normalise(candidates[0].name)
        preferred = [self.policy.pin.get(key, "")]
        if key in CATALOG:
            preferred.append(CATALOG[key].distribution)
        for distribution in preferred:
            for candidate in candidates:
                if distribution and normalise(candidate.distribution) == normalise(distribution):
                    return candidate
        raise refusals.ambiguous(name, candidates)

    def _warn_of_shadowing(self, backend: InstalledBackend) -> None:
        owner = refusals.owner_of(backend)
        if owner is not None:
            self._warn_once(
                backend,
                f"backend {backend.name!r} comes from {backend.distribution} {backend.version}; "
                f"the name belongs to {owner}, which does not provide it here",
            )

    def _warn_once(self, backend: InstalledBackend, text: str) -> None:
        with self._lock:
            if (backend.qualified, text) in self._warned:
                return
            self._warned.add((backend.qualified, text))
        warnings.warn(text, stacklevel=2)

    # -- refusals ----------------------------------------------------------------------------------------------------

    def _not_installed(self, name: str) -> BackendNotInstalled:
        key = normalise(name.rpartition(":")[2])
        for backend in self.installed():
            reason = self.policy.refusal(backend.name, backend.distribution) if key in backend.names else ""
            if reason:
                return refusals.denied_by_name(name, backend, reason)
        return refusals.not_installed(name, self.near(name), self.provides)

    def near(self, name: str) -> list[str]:
        """Installed names that look like `name`, then known ones, best first."""
        key = normalise(name.rpartition(":")[2])
        installed = {n: b.name for b in self.installed() for n in b.names}
        import difflib

        close = difflib.get_close_matches(key, [*installed, *CATALOG], n=3, cutoff=0.6)
        return list(dict.fromkeys(installed.get(match, match) for match in close if match != key))

    def provides(self, name: str) -> bool:
        """Whether something installed has this name or alias."""
        return any(normalise(name) in backend.names for backend in self.installed())

    def _require_usable(self, backend: InstalledBackend) -> None:
        """Raise what forbids to import a backend, without importing it."""
        state, reason = self.state(backend)
        if state == "ready":
            if reason:
                self._warn_once(backend, f"backend {backend.name!r} of {backend.distribution}: {reason}")
            return
        recorded = self._quarantine.get(backend.qualified)
        if recorded is not None:
            raise recorded.error
        if state == "broken":
            raise self._broken(backend, reason)
        if state == "incompatible":
            raise refusals.incompatible(backend, reason, self.versions)
        if state == "denied" and self.unlocked(backend) == reason:
            raise refusals.not_locked(backend, reason)
        raise refusals.denied(backend, reason) if state == "denied" else refusals.unavailable(backend, reason)

    def _broken(self, backend: InstalledBackend, reason: str, cause: BaseException | None = None) -> BackendBroken:
        from .loading import Quarantined

        error = refusals.broken(backend, reason)
        with self._lock:
            self._quarantine[backend.qualified] = Quarantined.of(backend, error, cause)
        return error

    # -- loading -----------------------------------------------------------------------------------------------------

    def _load(self, backend: InstalledBackend) -> ResolvedBackend:
        from .loading import PluginDefect, configuration, load

        given = configuration(self.policy, config.as_dict(), self.versions)
        with self._lock:
            manager = self._manager
        try:
            loaded = load(backend, manager, given)
        except BackendError:
            raise
        except PluginDefect as error:
            raise self._broken(backend, str(error), error) from error
        except (Exception, SystemExit) as error:  # whatever a plugin's code raises must not reach the other plugins
            raise self._broken(backend, f"{type(error).__name__}: {error}", error) from error
        with self._lock:
            self._plugins[backend.qualified] = loaded.plugin
            self._findings[backend.qualified] = loaded.findings
        return loaded.resolved

    def unload(self, name: str) -> list[Finding]:
        """Tear a loaded backend down; a later lookup of its name loads it anew. Its compiled graphs must be gone.

        Its modules stay imported: Python can't take them back. Returns what went wrong in its teardown.
        """
        chosen = self.find(name)
        with self._lock:
            resolved = self._resolved.pop(chosen.qualified, None)
            plugin = self._plugins.pop(chosen.qualified, None)
            self._findings.pop(chosen.qualified, None)
            if plugin is not None:
                self._manager.unregister(plugin)
        if resolved is None:
            return []
        resolved.unloaded = True
        try:
            resolved.teardown()
        except Exception as error:  # what it could not release is told; the backend is gone all the same
            text = f"{resolved.label}: teardown raised {type(error).__name__}: {error}"
            return [Finding("error", text, "report it to the plugin's authors")]
        return []

    def loaded(self) -> list[str]:
        """The qualified names of the backends that this process has loaded."""
        with self._lock:
            return sorted(self._resolved)

    # -- broadcasts --------------------------------------------------------------------------------------------------

    def pass_sources(self) -> list[tuple[str, Any]]:
        """(plugin, its core_passes) of the loaded plugins that have graph passes."""
        if "_manager" not in vars(self):
            return []
        implementations = self._manager.hook.core_passes.get_hookimpls()
        return [(each.plugin_name, each.function) for each in implementations]

    def diagnose(self) -> list[Finding]:
        """What the loaded plugins have to say; an exception of a plugin becomes a finding of its own."""
        findings: list[Finding] = []
        with self._lock:
            manager = self._manager
        for implementation in manager.hook.core_diagnose.get_hookimpls():
            try:
                answered: Any = implementation.function()
                findings.extend(answered)
            except Exception as error:  # one plugin's diagnosis must not hide the others'
                text = f"{implementation.plugin_name}: core_diagnose raised {type(error).__name__}: {error}"
                findings.append(Finding("error", text, "report it to the plugin's authors"))
        return findings


_default: Registry | None = None
_default_lock = threading.Lock()


def default_registry() -> Registry:
    """The registry of this process: sys.path under the process's environment and project file."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Registry()
            atexit.register(_tear_down, _default)
        return _default


def _tear_down(registry: Registry) -> None:
    """At the end of the process every loaded backend may release what it holds."""
    from ..events import BackendReported, emit

    for name in registry.loaded():
        for finding in registry.unload(name):
            emit(BackendReported(name, finding))


def resolve_backend(spec: Any) -> ResolvedBackend:
    """`default_registry().resolve(spec)`."""
    return default_registry().resolve(spec)


DEBUGGING = ("aot_eager", "aot_eager_decomp_partition", "eager")  # backends that compile nothing


def list_backends() -> list[str]:
    """Names that `backend=` takes: installed, allowed and fit for this process. No plugin is imported."""
    registry = default_registry()
    ready = {backend.name for backend in registry.installed() if registry.state(backend)[0] == "ready"}
    return sorted(ready)
