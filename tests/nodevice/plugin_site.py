"""Plugin distributions (metadata, manifest, module) in a folder, as an installer would leave them, and its registry."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.backends.registry import Registry

ROOT = Path(__file__).parents[2]
VERSIONS = {"plugin_api": "1.0", "core": "0.1.0", "torch": "2.13.0+cpu", "python": "3.11.7"}

PLUGIN = """
from core.plugin import Artifact, Backend, Capabilities, hookimpl

class Mine(Backend):
    name = "{name}"
    version = "{version}"

    def compile(self, graph, fake_inputs, ctx):
        return Artifact(call=graph)

@hookimpl
def core_backend():
    return Mine()
"""

MANIFEST = """
schema = 1
name = "{name}"
summary = "a backend for tests"
plugin_api = ">=1.0,<2"
devices = ["cpu"]
issues = "https://example.org/{name}/issues"
"""


def add_distribution(
    site: Path,
    distribution: str,
    name: str,
    *,
    version: str = "1.0",
    module: str | None = None,
    source: str | None = None,
    manifest: str | None = MANIFEST,
    extra: str = "",
    attribute: str = "",
) -> str:
    """Add one distribution with one backend; returns the name of its module.

    source: text of the module; manifest: text of backend.toml (None for none); extra: lines appended to it.
    """
    module = module or distribution.replace("-", "_") + "_plugin"
    package = site / module
    package.mkdir(parents=True, exist_ok=True)
    text = PLUGIN.format(name=name, version=version) if source is None else textwrap.dedent(source)
    (package / "__init__.py").write_text(text)
    points = [f"[core.backends]\n{name} = {module}{':' + attribute if attribute else ''}\n"]
    if manifest is not None:
        (package / "backend.toml").write_text(manifest.format(name=name) + textwrap.dedent(extra))
        points.append(f"[core.manifests]\n{name} = {module}:backend.toml\n")
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("\n".join(points))
    return module


def write_record(site: Path, distribution: str, module: str, version: str = "1.0") -> None:
    """Write the distribution's RECORD: every file of its module and metadata with its digest."""
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    lines = [f"{info.name}/RECORD,,"]
    for path in sorted([*(site / module).rglob("*"), *info.iterdir()]):
        if path.is_file() and path.suffix != ".pyc" and path.name != "RECORD":
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
            lines.append(f"{path.relative_to(site).as_posix()},sha256={digest},{path.stat().st_size}")
    (info / "RECORD").write_text("\n".join(lines) + "\n")


def empty_site(tmp_path: Path, monkeypatch: Any) -> Iterator[Path]:
    """The body of a fixture: an empty site folder for this process and its subprocesses, in a working folder without a
    project file, without settings of the user's. Modules imported from it are forgotten again."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), str(ROOT))))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    # What torch registers in a process that has loaded its own compiler is no part of the site.
    monkeypatch.delitem(sys.modules, "torch._dynamo.backends.registry", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.endswith("_plugin"):
            del sys.modules[name]


def registry(site: Path, **options: Any) -> Registry:
    """The registry of a site folder alone: no environment, no project file, fixed versions."""
    options.setdefault("environ", {})
    options.setdefault("project", site / "no_pyproject.toml")
    return Registry([str(site)], **{"versions": VERSIONS, **options})
