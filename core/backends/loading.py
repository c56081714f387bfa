"""From an installed backend to a ResolvedBackend: import, validation in a scratch plugin manager, hooks, bindings.

Enters: an InstalledBackend that may be used. Leaves: a Loaded, or the exception that the plugin's code raised; the
registry decides what becomes of it. Around the plugin's import and its first hooks the state of the process is read:
what they changed is reported and put back.
"""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import pluggy

from ..errors import BackendError
from ..events import BackendReported, emit
from ..plugin import PLUGIN_API, PROJECT, Backend, Capabilities, Finding
from . import hookspecs, process_state
from .discovery import InstalledBackend
from .policy import normalise
from .resolved import ResolvedBackend

IMPORT_SECONDS = 10.0
"""When a plugin's import is told of as slow. It is not ended: a half-imported module can't be taken back."""


class PluginDefect(Exception):
    """The plugin does not keep to the contract of plugins; the text says where."""


@dataclass(frozen=True)
class Quarantined:
    """A plugin that failed and is not asked again in this process. traceback: the whole text, for the doctor."""

    name: str
    distribution: str
    version: str
    error: BackendError
    traceback: str = ""

    @staticmethod
    def of(backend: InstalledBackend, error: BackendError, cause: BaseException | None) -> Quarantined:
        text = "".join(traceback.format_exception(cause)) if cause is not None else ""
        return Quarantined(backend.name, backend.distribution, backend.version, error, text)


@dataclass(frozen=True)
class Loaded:
    """A backend ready to compile, what its loading changed, and the plugin object that pluggy knows, if any."""

    resolved: ResolvedBackend
    findings: tuple[Finding, ...] = ()
    plugin: Any = None


def plugin_manager() -> pluggy.PluginManager:
    """A manager that knows the hooks of this plugin API."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def load(backend: InstalledBackend, manager: pluggy.PluginManager, config: Mapping[str, Any]) -> Loaded:
    """Import the plugin, register it in `manager` and ask it for its Backend.

    Raises PluginDefect for a plugin that breaks the contract, and whatever its own code raises.
    """
    if normalise(backend.distribution) == PROJECT:
        resolved, plugin = _resolve(backend, manager, config)
        return Loaded(resolved, plugin=plugin)
    issues = backend.manifest.issues if backend.manifest is not None else ""
    with (
        _beside_modes(),
        watched_import(backend.name, backend.distribution, backend.version, issues) as findings,
    ):
        resolved, plugin = _resolve(backend, manager, config)
    return Loaded(resolved, tuple(findings), plugin)


def _beside_modes() -> AbstractContextManager[Any]:
    """What a plugin's modules make stays after the modes that stand now; where torch is not loaded none stands."""
    if sys.modules.get("torch") is None:
        return nullcontext()
    from .. import torch_compat

    beside: AbstractContextManager[Any] = torch_compat.beside_modes()
    return beside


@contextmanager
def watched_import(name: str, distribution: str, version: str, issues: str = "") -> Iterator[list[Finding]]:
    """Around an import of a plugin's code: what it changes in the process is put back and told; a slow one is told.

    Gives a list that holds the findings once the block is over, however it ends.
    """
    findings: list[Finding] = []
    with _slow_import_told(name, distribution):
        before = process_state.take()
        try:
            yield findings
        finally:
            for change in before.changes():
                what = f"loading backend {name!r} of {distribution} {version} changed the process: {change.text}"
                text = f"{what}; it was put back" if change.restored else f"{what}; it can't be put back"
                remedy = f"report it at {issues}" if issues else "report it to the plugin's authors"
                findings.append(Finding("warning", text, remedy))
                emit(BackendReported(name, findings[-1]))
                if change.warned:
                    warnings.warn(f"{text}; {remedy}", stacklevel=2)


@contextmanager
def _slow_import_told(name: str, distribution: str) -> Iterator[None]:
    """While a plugin is imported: after IMPORT_SECONDS an event and a warning say which one it is and what to do."""

    def tell() -> None:
        text = f"importing {distribution} for the backend {name!r} has taken {IMPORT_SECONDS:g} s"
        remedy = (
            f"CORE_DISABLE_PLUGINS={distribution} leaves it out; `python -m core doctor {name}` "
            "imports it in a process of its own, with a limit"
        )
        emit(BackendReported(name, Finding("warning", text, remedy)))
        warnings.warn(f"{text} and goes on; {remedy}", stacklevel=2)

    timer = threading.Timer(IMPORT_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join(1.0)  # it ends at once; whoever counts threads next does not find it


def _resolve(
    backend: InstalledBackend, manager: pluggy.PluginManager, config: Mapping[str, Any]
) -> tuple[ResolvedBackend, Any]:
    plugin = backend.entry_point.load()
    if isinstance(plugin, type):
        plugin = plugin()
    if isinstance(plugin, Backend):
        return _bound(backend, plugin, {}), None
    scratch = plugin_manager()
    scratch.register(plugin, name=backend.qualified)
    scratch.check_pending()
    for implementation in scratch.hook.core_configure.get_hookimpls():
        implementation.function(**{name: config for name in implementation.argnames})
    answers = scratch.hook.core_backend()
    if len(answers) != 1 or not isinstance(answers[0], Backend):
        given = repr(answers[0]) if answers else "nothing"
        raise PluginDefect(f"core_backend returned {given}, not a core.plugin.Backend")
    resolved = _bound(backend, answers[0], _directed(scratch))
    manager.register(plugin, name=backend.qualified)
    return resolved, plugin


def _bound(backend: InstalledBackend, instance: Backend, overrides: Mapping[str, Any]) -> ResolvedBackend:
    return ResolvedBackend(
        name=backend.name,
        backend=instance,
        capabilities=_agreed_capabilities(backend, instance),
        distribution=backend.distribution,
        version=backend.version,
        issues=backend.manifest.issues if backend.manifest is not None else "",
        overrides=overrides,
    )


def _directed(manager: pluggy.PluginManager) -> dict[str, Any]:
    """The plugin's functions named `backend_<method>`, to be bound in place of the Backend's methods."""
    found = {}
    for method in hookspecs.DIRECTED:
        for implementation in getattr(manager.hook, f"backend_{method}").get_hookimpls():
            found[method] = implementation.function
    return found


def _agreed_capabilities(backend: InstalledBackend, instance: Backend) -> Capabilities:
    if instance.name and normalise(instance.name) != normalise(backend.name):
        raise PluginDefect(f"its Backend is named {instance.name!r}, not {backend.name!r}")
    declared = backend.manifest.capabilities if backend.manifest is not None else None
    if declared is None:
        devices = backend.manifest.devices if backend.manifest is not None else ()
        return replace(instance.capabilities, devices=instance.capabilities.devices or devices)
    if type(instance).capabilities is Backend.capabilities and "capabilities" not in vars(instance):
        return declared  # the class says nothing of its own: the manifest speaks for it
    for entry in fields(Capabilities):
        ours, theirs = getattr(instance.capabilities, entry.name), getattr(declared, entry.name)
        if entry.name not in ("devices", "op_coverage") and ours != theirs:
            raise PluginDefect(f"its manifest says {entry.name} = {theirs!r}, its Backend {ours!r}")
    return declared


def configuration(policy: Any, settings: Mapping[str, Any], versions: Mapping[str, str]) -> Mapping[str, Any]:
    """What core_configure is given, read-only: settings, versions, plugin_api, policy."""
    return MappingProxyType(
        {
            "settings": MappingProxyType(dict(settings)),
            "versions": MappingProxyType(dict(versions)),
            "plugin_api": PLUGIN_API,
            "policy": policy,
        }
    )
