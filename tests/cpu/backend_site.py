"""Writes a plugin distribution with one backend into a folder of sys.path."""

from __future__ import annotations


def add_backend(site, name, source):
    """A distribution `auto-site-NAME` whose module holds `source`."""
    module = f"auto_site_{name}"
    (site / f"{module}.py").write_text(source)
    info = site / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: auto-site-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[core.backends]\n{name} = {module}\n")
