"""`core lock`: write which plugins are approved of, or compare what is installed with it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .output import FOUND, OK, print_json
from .places import add_plugins_dir, chosen_registry, require_writable


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    lock = subparsers.add_parser("lock", parents=[common], help="write the installed plugins to core.lock")
    lock.add_argument("--check", action="store_true", help="write nothing; compare, the files with their RECORD too")
    lock.add_argument("--file", type=Path, metavar="FILE", help="in place of core.lock beside pyproject.toml")
    lock.set_defaults(run=_lock)
    add_plugins_dir(lock)


def _lock(parsed: argparse.Namespace) -> int:
    from ..backends.lock import installed_plugins, lock_text

    registry = chosen_registry(parsed)
    path: Path = parsed.file or registry.policy.lock_file
    plugins = installed_plugins(registry.installed())
    findings = _checked(registry, path) if parsed.check else _unlockable(registry, plugins)
    if not parsed.check:
        require_writable(path)
        path.write_text(lock_text(plugins), encoding="utf-8")
    if parsed.json:
        rows = [{"distribution": p.distribution, "version": p.version, "digest": p.digest} for p in plugins]
        print_json({"file": str(path), "written": not parsed.check, "plugins": rows, "findings": findings})
    else:
        for plugin in plugins:
            print(f"{plugin.distribution} {plugin.version} {plugin.digest or 'no digest'}")
        print("\n".join([*findings, f"{'compared with' if parsed.check else 'written to'} {path}"]))
    return FOUND if findings else OK


def _unlockable(registry: Any, plugins: list[Any]) -> list[str]:
    """What the new lock can't hold fast."""
    found = [
        f"{plugin.distribution} has no record of its files: require_lock = true refuses it"
        for plugin in plugins
        if not plugin.digest
    ]
    editable = {b.distribution for b in registry.installed() if b.source is not None and _editable(b.source)}
    return found + [
        f"{plugin.distribution} is installed in place: its digest does not cover its sources"
        for plugin in plugins
        if plugin.distribution in editable and plugin.digest
    ]


def _editable(distribution: Any) -> bool:
    import json

    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    return bool(origin.get("dir_info", {}).get("editable", False))


def _checked(registry: Any, path: Path) -> list[str]:
    from ..backends.lock import LockError, changed_files, difference, read_lock
    from ..backends.policy import normalise

    try:
        locked = read_lock(path)
    except LockError as error:
        return [str(error)]
    if locked is None:
        return [f"there is no {path}"]
    found = []
    plugins = {
        normalise(b.distribution): b for b in registry.installed() if b.source and normalise(b.distribution) != "core"
    }
    for _, backend in sorted(plugins.items()):
        reason = difference(backend, locked)
        if reason:
            found.append(reason)
        changed = changed_files(backend.source)
        if changed:
            found.append(f"files of {backend.distribution} differ from its record: {', '.join(changed)}")
    gone = [plugin for key, plugin in sorted(locked.items()) if key not in plugins]
    return found + [f"{plugin.distribution} {plugin.version} is locked and not installed" for plugin in gone]
