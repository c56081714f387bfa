"""A fresh virtual environment that sees core, its suite, inductor and the installed torch, but no other plugin."""

from __future__ import annotations

import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT, ROOT / "conformance", ROOT / "plugins" / "inductor")
OURS = ("core-", "core_conformance-", "core_inductor-")


def fresh_environment(folder: Path) -> Path:
    """Make it in `folder`, with a `pip` on its path that needs no network; returns its site-packages."""
    import torch

    venv.create(folder, with_pip=False)
    site = next((folder / "lib").glob("python*/site-packages"))
    for entry in Path(torch.__file__).parents[1].iterdir():
        name = entry.name.lower()
        ours = name.endswith(".dist-info") and name.startswith(OURS)
        other = name.startswith(("core-", "core_", "core.", "__editable__")) or entry.suffix == ".pth"
        if (ours or not other) and name not in ("core", "__pycache__"):
            (site / entry.name).symlink_to(entry)
    (site / "seen.pth").write_text("".join(f"{path}\n" for path in SOURCES))
    pip = folder / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m pip "$@"\n')
    pip.chmod(0o755)
    return site
