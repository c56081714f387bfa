"""backend.toml of the backends whose sources stand in this repository: what their pages say of them."""

from __future__ import annotations

from pathlib import Path

from core.backends.manifest import Manifest, parse_manifest
from core.backends.policy import normalise

from .names import ROOT


def read_manifests(project: Path = ROOT.parent) -> dict[str, Manifest]:
    """Backend name -> manifest, of the folders plugins/ and examples/."""
    paths = [path for folder in ("plugins", "examples") for path in (project / folder).glob("*/*/backend.toml")]
    manifests = [parse_manifest(path.read_text(encoding="utf-8")) for path in sorted(paths)]
    return {normalise(manifest.name): manifest for manifest in manifests}
