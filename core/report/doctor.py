"""`core doctor`: what is wrong with an installation, as findings with a remedy each. Imports no torch.

Plugins are loaded and probed in subprocesses (`doctor_probe.py`), so that a plugin that crashes, hangs or changes its
process can't take the doctor with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..backends import refusals
from ..backends.discovery import InstalledBackend
from ..backends.foreign import ForeignBackend
from ..backends.lock import LockError, read_lock
from ..backends.manifest import running_versions
from ..backends.probing import patience
from ..backends.registry import Registry
from ..backends.versions import in_range
from ..plugin import Finding
from ..settings import unknown_keys

PROBE_SECONDS = 60.0
"""For the whole subprocess, where nothing else runs: a vendor's module alone was measured to take 10 s to import."""

PROBES_AT_ONCE = 2

SUPPORTED_PYTHON = ">=3.11,<3.14"

TESTED_TORCH = ">=2.11,<2.14"
"""An older or newer torch is no error: what core does not know of it runs as it was written."""


def examine(registry: Registry, name: str | None = None, *, verify: bool = False) -> list[Finding]:
    """Findings about the interpreter, torch, the settings, the plugins and their conflicts.

    name: only that backend; verify: also compile a small function with each backend and compare it with eager.
    """
    if name is not None:
        foreign = registry.find_foreign(name)
        return _foreign(registry, foreign, verify) if foreign else _backend(registry, registry.find(name), verify)
    findings = [_python(), _torch(), *_shadowing(Path.cwd()), *_settings(), *_lock(registry)]
    findings += [*_conflicts(registry), *_strangers(registry), *_quarantined(registry), *registry.findings()]
    with ThreadPoolExecutor(PROBES_AT_ONCE) as pool:
        for found in pool.map(lambda backend: _backend(registry, backend, verify), registry.installed()):
            findings += found
    return findings


def _python() -> Finding:
    version = running_versions()["python"]
    text = f"Python {version} ({sys.implementation.name})"
    if sys.implementation.name == "cpython" and in_range(version, SUPPORTED_PYTHON):
        return Finding("info", text)
    return Finding("error", f"{text} is not supported", "use CPython 3.11, 3.12 or 3.13")


def _torch() -> Finding:
    version = running_versions().get("torch")
    if version is None:
        return Finding("error", "torch is not installed", "pip install torch")
    if not in_range(version, TESTED_TORCH):
        text = f"torch {version} is not one that core was tested with ({TESTED_TORCH}): more may run uncompiled"
        return Finding("warning", text, f'pip install "torch{TESTED_TORCH}"')
    return Finding("info", f"torch {version}")


def _shadowing(folder: Path) -> list[Finding]:
    """A project's own `core` shadows ours for `python script.py` started in that folder."""
    ours = Path(__file__).resolve().parent.parent
    found = []
    for candidate in (folder / "core" / "__init__.py", folder / "core.py"):
        if candidate.is_file() and candidate.resolve().parent != ours:
            text = f"{candidate} shadows the compiler `core` for scripts started in {folder}"
            found.append(Finding("warning", text, "rename it, or start Python with -P"))
    return found


def _settings() -> Iterator[Finding]:
    for line in unknown_keys():
        yield Finding("warning", line, "correct or remove it")


def _lock(registry: Registry) -> Iterator[Finding]:
    """A lock that is required and absent or unreadable leaves every plugin out."""
    if registry.policy.require_lock:
        path, why = registry.policy.lock_file, ""
        try:
            why = "" if read_lock(path) is not None else f"there is no {path}"
        except LockError as error:
            why = str(error)
        if why:
            text = f"require_lock = true, and {why}: every plugin is left out"
            yield Finding("error", text, "look at what is installed, then run `python -m core lock`")


def _conflicts(registry: Registry) -> Iterator[Finding]:
    for name, group in registry.conflicts().items():
        chosen = registry.policy.pin.get(name, "")
        providers = ", ".join(f"{b.distribution} {b.version}" for b in group)
        if chosen:
            yield Finding("info", f"the backend name {name!r} is provided by {providers}; pinned is {chosen}")
        else:
            pin = refusals.pin_line(name, group[0].distribution)
            text = f"the backend name {name!r} is provided by {providers}"
            yield Finding("warning", text, f"pin one in pyproject.toml: [tool.core.plugins] {pin}")


def _strangers(registry: Registry) -> Iterator[Finding]:
    for backend in registry.strangers():
        owner = refusals.owner_of(backend)
        yield Finding(
            "warning",
            f"{refusals.label(backend)} has a name that belongs to {owner}",
            f"pip uninstall {backend.distribution}, or deny it: [tool.core.plugins] deny",
        )


def _quarantined(registry: Registry) -> Iterator[Finding]:
    """The plugins that failed in this very process, as a program that calls the doctor sees them."""
    for record in registry.quarantined():
        trace = f"\n{record.traceback.rstrip()}" if record.traceback else ""
        yield Finding("error", f"{record.error.what}{trace}", record.error.remedy)


def _backend(registry: Registry, backend: InstalledBackend, verify: bool) -> list[Finding]:
    label = f"backend {backend.name!r} ({backend.distribution} {backend.version})"
    findings = [
        Finding("warning", f"{label}: {text}") for text in (backend.manifest.warnings if backend.manifest else ())
    ]
    if backend.manifest is None and not backend.problem and backend.distribution != "core":
        text = f"{label} has no manifest: its versions and devices are known only once it is imported"
        findings.append(Finding("warning", text, "its authors add one under the entry point group core.manifests"))
    state, reason = registry.state(backend)
    if state == "denied":
        return [*findings, Finding("info", f"{label} is not allowed: {reason}")]
    if state != "ready":
        return [*findings, Finding("error", f"{label} is {state}: {reason}", _remedy(registry, backend, state))]
    if reason:
        findings.append(Finding("warning", f"{label}: {reason}", f"pip install --upgrade {backend.distribution}"))
    return findings + _probed(label, backend.qualified, verify)


def _foreign(registry: Registry, foreign: ForeignBackend, verify: bool) -> list[Finding]:
    """A backend of another project is looked at when it is named: its import may bring all of torch's compiler."""
    label = f"backend {foreign.use!r} ({foreign.distribution} {foreign.version})"
    refusal = registry.foreign_refusal(foreign)
    if refusal:
        return [Finding("info", f"{label} is not allowed: {refusal}")]
    return _probed(label, foreign.use, verify)


def _remedy(registry: Registry, backend: InstalledBackend, state: str) -> str:
    if state == "incompatible":
        return refusals.incompatible(backend, "", registry.versions).remedy
    if state == "unavailable":
        return refusals.unavailable(backend, "").remedy
    return refusals.broken(backend, "").remedy


# -- the subprocess ---------------------------------------------------------------------------------------------------


def _probed(label: str, qualified: str, verify: bool) -> list[Finding]:
    root = str(Path(__file__).resolve().parent.parent.parent)
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))))
    seconds = patience(PROBE_SECONDS)
    command = [sys.executable, "-P", "-m", "core.report.doctor_probe", qualified, str(seconds)]
    command += ["--verify"] if verify else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 10, env=environ)
    except subprocess.TimeoutExpired:
        return [_too_slow(label, "")]
    answer = _answer(done.stdout)
    if answer is None:
        if "Timeout (" in done.stderr:
            return [_too_slow(label, _innermost(done.stderr))]
        lines = done.stderr.strip().splitlines()
        died = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        return [Finding("error", f"{label} can't be loaded: {died}" + (f": {lines[-1]}" if lines else ""))]
    return [Finding(*(text.replace("BACKEND", label, 1) for text in finding)) for finding in answer]


def _answer(output: str) -> list[list[str]] | None:
    """The findings in the last line of the output; None when the process ended before it wrote them."""
    last = output.strip().rpartition("\n")[2]
    try:
        found: Any = json.loads(last)
    except ValueError:
        return None
    return found["findings"] if isinstance(found, dict) and "findings" in found else None


def _too_slow(label: str, where: str) -> Finding:
    place = f"; it was in {where}" if where else ""
    text = f"{label}: loading and probing took longer than {PROBE_SECONDS:g} s{place}"
    return Finding("error", text, "report it to the plugin's authors; CORE_DISABLE_PLUGINS leaves it out meanwhile")


def _innermost(stderr: str) -> str:
    """Where the main thread was, from what faulthandler wrote."""
    stack = stderr.rpartition("Current thread")[2] or stderr
    found = re.search(r'File "(.*?)", line (\d+) in (\S+)', stack)
    return "{}:{} in {}".format(*found.groups()) if found is not None else ""
