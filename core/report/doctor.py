"""`core doctor`: what is wrong with an installation, as findings with a remedy each. Imports no torch.

Plugins are loaded and probed in subprocesses, so that a plugin that crashes, hangs or changes its process can't take
the doctor with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ..backends.discovery import InstalledBackend
from ..backends.manifest import running_versions
from ..backends.registry import Registry
from ..backends.versions import in_range
from ..plugin import Finding

PROBE_SECONDS = 60.0
"""For the whole subprocess: a vendor's module alone was measured to take 10 s to import."""

SUPPORTED_PYTHON = ">=3.11,<3.14"

_PROBE = """
import json, sys
from core.backends.registry import Registry
registry = Registry()
resolved = registry.resolve(sys.argv[1])
devices = sorted({entry.partition(":")[0] for entry in resolved.capabilities.devices}) or ["cpu"]
probes = {device: resolved.probe(device) for device in devices}
findings = [[f.level, f.text, f.remedy] for f in registry.diagnose()]
report = {device: [p.ok, p.reason, p.remedy, dict(p.runtime_versions)] for device, p in probes.items()}
print("\\n" + json.dumps({"probes": report, "findings": findings}, default=str))
"""


def examine(registry: Registry, name: str | None = None) -> list[Finding]:
    """Findings about the interpreter, torch, the plugins and their conflicts; with `name`, about that backend only."""
    if name is not None:
        return _backend(registry, registry.find(name))
    findings = [_python(), _torch(), *_shadowing(Path.cwd()), *_conflicts(registry)]
    for backend in registry.installed():
        findings += _backend(registry, backend)
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


def _conflicts(registry: Registry) -> list[Finding]:
    return [
        Finding(
            "warning",
            f"the backend name {name!r} is provided by {', '.join(b.distribution for b in group)}",
            f'pin one in pyproject.toml: [tool.core.plugins] pin = {{ {name} = "{group[0].distribution}" }}',
        )
        for name, group in registry.conflicts().items()
    ]


def _backend(registry: Registry, backend: InstalledBackend) -> list[Finding]:
    label = f"backend {backend.name!r} ({backend.distribution} {backend.version})"
    findings = [
        Finding("warning", f"{label}: {text}") for text in (backend.manifest.warnings if backend.manifest else ())
    ]
    state, reason = registry.state(backend)
    if state == "denied":
        return [*findings, Finding("info", f"{label} is not allowed: {reason}")]
    if state != "ready":
        pip = backend.manifest.requires_pip if backend.manifest is not None else ""
        remedy = f'pip install "{pip}"' if state == "unavailable" and pip else f"reinstall {backend.distribution}"
        return [*findings, Finding("error", f"{label} is {state}: {reason}", remedy)]
    return findings + _probed(label, backend.qualified)


def _probed(label: str, qualified: str) -> list[Finding]:
    root = str(Path(__file__).resolve().parent.parent.parent)
    environ = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))))
    command = [sys.executable, "-P", "-c", _PROBE, qualified]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, env=environ)
    except subprocess.TimeoutExpired:
        text = f"{label}: loading and probing took longer than {PROBE_SECONDS:.0f} s"
        return [Finding("error", text, "report it to the plugin's authors")]
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        message = next((line for line in lines if "[CORE-" in line), lines[-1] if lines else "")
        return [Finding("error", f"{label} can't be loaded: {message or f'exit status {done.returncode}'}")]
    report = json.loads(done.stdout.strip().splitlines()[-1])
    findings = [_probe_finding(label, device, *probe) for device, probe in report["probes"].items()]
    return findings + [Finding(*finding) for finding in report["findings"]]


def _probe_finding(
    label: str, device: str, ok: bool, reason: str, remedy: str, runtime_versions: dict[str, str]
) -> Finding:
    versions = ", ".join(f"{name} {version}" for name, version in runtime_versions.items())
    if ok:
        return Finding("info", f"{label} works on {device}" + (f" with {versions}" if versions else ""))
    return Finding("error", f"{label} can't work on {device}: {reason}", remedy)
