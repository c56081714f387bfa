"""The registry: how `backend=` becomes a ResolvedBackend, and what is said when it can't.

Enters: a name, a list of names, a Backend or a callable. Leaves: a ResolvedBackend, or one of the errors CORE-B001 to
CORE-B005. Only the plugin that was resolved is imported; a plugin that fails is quarantined for the process and the
others go on. This module imports no torch.
"""

from __future__ import annotations

import difflib
import importlib.util
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pluggy

from ..errors import (
    AmbiguousBackend,
    BackendBroken,
    BackendError,
    BackendIncompatible,
    BackendNotInstalled,
    BackendUnavailable,
    InvalidOption,
)
from ..plugin import PROJECT, Backend, Capabilities, Finding
from . import hookspecs
from .catalog import CATALOG, CONFUSED_PEERS
from .custom import resolve_object
from .discovery import InstalledBackend, installed_backends
from .manifest import running_versions
from .policy import PluginPolicy, normalise, read_policy
from .resolved import ResolvedBackend


class Registry:
    """The backends of one search path under one policy.

    State shared between threads: `_installed`, `_resolved`, `_quarantine`, `_warned` and the plugin manager, all under
    `_lock` (re-entrant: a plugin may look up another one while it is imported).
    """

    def __init__(
        self,
        path: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
        project: Path | None = None,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        self._versions = versions
        self.policy: PluginPolicy = read_policy(environ, project)
        self._lock = threading.RLock()
        self._installed: tuple[InstalledBackend, ...] | None = None
        self._resolved: dict[str, ResolvedBackend] = {}
        self._quarantine: dict[str, BackendError] = {}
        self._warned: set[str] = set()
        self._manager = _plugin_manager()
        self._manager.hook.core_configure.call_historic(kwargs={"config": {"policy": self.policy}})

    # -- listing -----------------------------------------------------------------------------------------------------

    def installed(self) -> tuple[InstalledBackend, ...]:
        """Every installed backend, usable or not; nothing is imported."""
        with self._lock:
            if self._installed is None:
                self._installed = installed_backends(self._path)
            return self._installed

    def refresh(self) -> None:
        """Forget what is installed, so that the next lookup reads the metadata again. Quarantine stays."""
        with self._lock:
            self._installed = None

    def state(self, backend: InstalledBackend) -> tuple[str, str]:
        """(state, reason) without importing the plugin: ready, denied, incompatible, unavailable or broken."""
        broken = self._quarantine.get(backend.qualified)
        if broken is not None:
            return "broken", broken.what
        if backend.problem:
            return "broken", backend.problem
        refusal = self.policy.refusal(backend.name, backend.distribution)
        if refusal:
            return "denied", refusal
        mismatches = self._mismatches(backend)
        if mismatches:
            return "incompatible", "; ".join(mismatches)
        missing = backend.manifest.missing_imports() if backend.manifest is not None else []
        if missing:
            return "unavailable", f"it needs {', '.join(missing)}, which is not installed"
        return "ready", ""

    def conflicts(self) -> dict[str, tuple[InstalledBackend, ...]]:
        """Names that more than one distribution provides."""
        by_name: dict[str, list[InstalledBackend]] = {}
        for backend in self.installed():
            by_name.setdefault(normalise(backend.name), []).append(backend)
        return {name: tuple(group) for name, group in by_name.items() if len(group) > 1}

    # -- resolution --------------------------------------------------------------------------------------------------

    def resolve(self, spec: Any) -> ResolvedBackend:
        """The backend for `spec`: a name, `distribution:name`, a list in order of preference, a Backend or a callable.

        Raises BackendNotInstalled, AmbiguousBackend, BackendIncompatible, BackendUnavailable or BackendBroken.
        """
        if isinstance(spec, str):
            return self._resolve_name(spec)
        if isinstance(spec, (list, tuple)) and spec:
            return self._first_usable(spec)
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
        chosen = self.find(name)
        with self._lock:
            resolved = self._resolved.get(chosen.qualified)
            if resolved is None:
                self._require_usable(chosen)
                resolved = self._resolved[chosen.qualified] = self._load(chosen)
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
        exact = [b for b in allowed if normalise(b.name) == wanted]
        return exact or [b for b in allowed if wanted in b.names]

    def _disambiguate(self, name: str, candidates: list[InstalledBackend]) -> InstalledBackend:
        key = normalise(candidates[0].name)
        preferred = [self.policy.pin.get(key, "")]
        if key in CATALOG:
            preferred.append(CATALOG[key].distribution)
        for distribution in preferred:
            for candidate in candidates:
                if distribution and normalise(candidate.distribution) == normalise(distribution):
                    return candidate
        listed = ", ".join(f"{c.distribution} {c.version}" for c in candidates)
        raise AmbiguousBackend(
            f"{len(candidates)} distributions provide the backend {name!r}: {listed}",
            instead="nothing was compiled",
            remedy=f'name one as backend="{candidates[0].qualified}", or pin it in pyproject.toml: '
            f'[tool.core.plugins] pin = {{ {key} = "{candidates[0].distribution}" }}',
        )

    def _warn_of_shadowing(self, backend: InstalledBackend) -> None:
        owned = CATALOG.get(normalise(backend.name))
        if owned is None or normalise(owned.distribution) == normalise(backend.distribution):
            return
        with self._lock:
            if backend.qualified in self._warned:
                return
            self._warned.add(backend.qualified)
        warnings.warn(
            f"backend {backend.name!r} comes from {backend.distribution} {backend.version}; "
            f"the name belongs to {owned.distribution}, which does not provide it here",
            stacklevel=2,
        )

    # -- errors ------------------------------------------------------------------------------------------------------

    def _not_installed(self, name: str) -> BackendNotInstalled:
        key = normalise(name.rpartition(":")[2])
        refused = [b for b in self.installed() if key in b.names and self.policy.refusal(b.name, b.distribution)]
        if refused:
            reason = self.policy.refusal(refused[0].name, refused[0].distribution)
            return BackendNotInstalled(
                f"backend {name!r} is installed by {refused[0].distribution}, but not allowed: {reason}",
                instead="nothing was compiled",
                remedy="change that setting, or choose another backend",
            )
        remedies = []
        if key in CATALOG:
            remedies.append(f'pip install "{CATALOG[key].install}"')
        near = self.near(name)
        if near:
            remedies.append(f"did you mean {' or '.join(map(repr, near))}?")
            remedies += [f'pip install "{CATALOG[n].install}"' for n in near if n in CATALOG and not self._provided(n)]
        if key not in CATALOG and not near:
            remedies.append("`python -m core list` shows what is installed")
        what = f"no installed distribution provides the backend {name!r}"
        peers = CATALOG[key].peers if key in CATALOG else (CONFUSED_PEERS.get(key, ""),)
        present = [peer for peer in peers if peer and importlib.util.find_spec(peer.partition(".")[0]) is not None]
        if present:
            what += f" ({present[0]} is installed, but it is no plugin of core)"
        return BackendNotInstalled(what, instead="nothing was compiled", remedy="; ".join(remedies))

    def near(self, name: str) -> list[str]:
        """Installed names that look like `name`, then known ones, best first."""
        key = normalise(name.rpartition(":")[2])
        installed = {n: b.name for b in self.installed() for n in b.names}
        close = difflib.get_close_matches(key, [*installed, *CATALOG], n=3, cutoff=0.6)
        return list(dict.fromkeys(installed.get(match, match) for match in close if match != key))

    def _provided(self, name: str) -> bool:
        return any(normalise(name) in backend.names for backend in self.installed())

    def _mismatches(self, backend: InstalledBackend) -> list[str]:
        manifest = backend.manifest
        if manifest is None:
            return []
        if not manifest.loadable:
            return [f"its manifest has schema {manifest.schema}, newer than this core reads"]
        return manifest.incompatibilities(self._versions or running_versions())

    def _require_usable(self, backend: InstalledBackend) -> None:
        state, reason = self.state(backend)
        label = f"backend {backend.name!r} of {backend.distribution} {backend.version}"
        if state == "broken":
            recorded = self._quarantine.get(backend.qualified)
            if recorded is not None:
                raise recorded
            raise self._broken(backend, reason)
        if state == "denied":
            raise BackendUnavailable(
                f"{label} is not allowed: {reason}", instead="nothing was compiled", remedy="change that setting"
            )
        if state == "incompatible":
            newer_core = backend.manifest is not None and (not backend.manifest.loadable or "plugin api" in reason)
            side = f"core or install another version of {backend.distribution}" if newer_core else backend.distribution
            raise BackendIncompatible(
                f"{label} does not fit this process: {reason}",
                instead="the plugin was not loaded",
                remedy=f"upgrade {side}, or bring the named version into its range",
            )
        if state == "unavailable":
            pip = backend.manifest.requires_pip if backend.manifest is not None else ""
            raise BackendUnavailable(
                f"{label} can't work here: {reason}",
                instead="nothing was compiled",
                remedy=f'pip install "{pip}"' if pip else "install what is missing",
            )

    def _broken(self, backend: InstalledBackend, reason: str) -> BackendBroken:
        issues = backend.manifest.issues if backend.manifest is not None else ""
        error = BackendBroken(
            f"backend {backend.name!r} of {backend.distribution} {backend.version} could not be loaded: {reason}",
            instead="the plugin is quarantined for this process; other backends keep working",
            remedy=f"reinstall {backend.distribution}" + (f", or report it at {issues}" if issues else ""),
        )
        with self._lock:
            self._quarantine[backend.qualified] = error
        return error

    # -- loading -----------------------------------------------------------------------------------------------------

    def _load(self, backend: InstalledBackend) -> ResolvedBackend:
        try:
            return self._load_unguarded(backend)
        except BackendError:
            raise
        except Exception as error:  # whatever a plugin's import or hooks raise must not reach the other plugins
            raise self._broken(backend, f"{type(error).__name__}: {error}") from error

    def _load_unguarded(self, backend: InstalledBackend) -> ResolvedBackend:
        plugin = backend.entry_point.load()
        if isinstance(plugin, type):
            plugin = plugin()
        name = backend.qualified
        scratch = _plugin_manager()
        if isinstance(plugin, Backend):
            instance, overrides = plugin, {}
        else:
            scratch.register(plugin, name=name)
            scratch.check_pending()
            answers = scratch.hook.core_backend()
            if len(answers) != 1 or not isinstance(answers[0], Backend):
                given = repr(answers[0]) if answers else "nothing"
                raise self._broken(backend, f"core_backend returned {given}, not a core.plugin.Backend")
            instance, overrides = answers[0], _directed(plugin, scratch)
            self._manager.register(plugin, name=name)
        capabilities = self._agreed_capabilities(backend, instance)
        return ResolvedBackend(
            name=backend.name,
            backend=instance,
            capabilities=capabilities,
            distribution=backend.distribution,
            version=backend.version,
            issues=backend.manifest.issues if backend.manifest is not None else "",
            overrides=overrides,
        )

    def _agreed_capabilities(self, backend: InstalledBackend, instance: Backend) -> Capabilities:
        if instance.name and normalise(instance.name) != normalise(backend.name):
            raise self._broken(backend, f"its Backend is named {instance.name!r}, not {backend.name!r}")
        declared = backend.manifest.capabilities if backend.manifest is not None else None
        if declared is None:
            devices = backend.manifest.devices if backend.manifest is not None else ()
            return replace(instance.capabilities, devices=instance.capabilities.devices or devices)
        if type(instance).capabilities is Backend.capabilities and "capabilities" not in vars(instance):
            return declared  # the class says nothing of its own: the manifest speaks for it
        for entry in fields(Capabilities):
            ours, theirs = getattr(instance.capabilities, entry.name), getattr(declared, entry.name)
            if entry.name not in ("devices", "op_coverage") and ours != theirs:
                raise self._broken(backend, f"its manifest says {entry.name} = {theirs!r}, its Backend {ours!r}")
        return declared

    # -- broadcasts --------------------------------------------------------------------------------------------------

    def diagnose(self) -> list[Finding]:
        """What the loaded plugins have to say; an exception of a plugin becomes a finding of its own."""
        findings: list[Finding] = []
        for implementation in self._manager.hook.core_diagnose.get_hookimpls():
            try:
                answered: Any = implementation.function()
                findings.extend(answered)
            except Exception as error:  # one plugin's diagnosis must not hide the others'
                text = f"{implementation.plugin_name}: core_diagnose raised {type(error).__name__}: {error}"
                findings.append(Finding("error", text, "report it to the plugin's authors"))
        return findings


def _plugin_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def _directed(plugin: Any, manager: pluggy.PluginManager) -> dict[str, Any]:
    """The plugin's functions named `backend_<method>`, to be bound in place of the Backend's methods."""
    found = {}
    for method in hookspecs.DIRECTED:
        for implementation in getattr(manager.hook, f"backend_{method}").get_hookimpls():
            found[method] = implementation.function
    return found


_default: Registry | None = None
_default_lock = threading.Lock()


def default_registry() -> Registry:
    """The registry of this process: sys.path under the process's environment and project file."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Registry()
        return _default


def resolve_backend(spec: Any) -> ResolvedBackend:
    """`default_registry().resolve(spec)`."""
    return default_registry().resolve(spec)


DEBUGGING = ("aot_eager", "eager")  # backends that compile nothing


def list_backends() -> list[str]:
    """Names that `backend=` takes: installed, allowed and fit for this process. No plugin is imported."""
    registry = default_registry()
    ready = {backend.name for backend in registry.installed() if registry.state(backend)[0] == "ready"}
    return sorted(ready)
