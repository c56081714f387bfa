"""`core install NAME`: the pip line of a backend of the catalog, run after a question."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from typing import Any

from .output import FOUND, OK, print_json


def register(subparsers: Any, common: argparse.ArgumentParser) -> None:
    install = subparsers.add_parser("install", parents=[common], help="install a backend of the catalog with pip")
    install.add_argument("name", metavar="NAME")
    install.add_argument("--yes", action="store_true", help="run pip without asking")
    install.add_argument("--dry-run", action="store_true", help="print the line and do nothing")
    install.set_defaults(run=_install)


def _install(parsed: argparse.Namespace) -> int:
    """The name is looked up offline; only names of the catalog are given to pip, never a text as it was typed."""
    from ..backends.refusals import installable
    from ..backends.registry import Registry

    registry = Registry()
    entry = installable(parsed.name, registry.near(parsed.name), registry.provides)
    command = [sys.executable, "-m", "pip", "install", entry.install]
    wanted = not parsed.dry_run and (parsed.yes or _agreed(shlex.join(command), quiet=parsed.json))
    if parsed.json:
        code = subprocess.run(command, stdout=sys.stderr).returncode if wanted else None
        print_json({"name": entry.name, "command": command, "ran": wanted, "exit": code})
    else:
        print(shlex.join(command), flush=True)
        code = subprocess.run(command).returncode if wanted else None
        if not wanted and not parsed.dry_run:
            print("not run")
    if parsed.dry_run:
        return OK
    return OK if code == 0 else FOUND


def _agreed(line: str, *, quiet: bool) -> bool:
    """Ask on a terminal; elsewhere nobody can say yes, so that it takes --yes."""
    if quiet or not sys.stdin.isatty():
        return False
    return input(f"run {line}? [y/N] ").strip().casefold() in ("y", "yes")
