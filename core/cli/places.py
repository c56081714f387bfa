"""Where a command looks for plugins: sys.path, and with --plugins-dir a folder that holds installed distributions; and
where it writes.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .output import WrongUsage

if TYPE_CHECKING:
    from ..backends.registry import Registry


def add_plugins_dir(parser: argparse.ArgumentParser) -> None:
    """Let a command take --plugins-dir."""
    parser.add_argument(
        "--plugins-dir",
        metavar="DIR",
        type=_folder,
        help="also the distributions in this folder, as `pip install --target DIR` leaves them",
    )


def chosen_registry(parsed: argparse.Namespace) -> Registry:
    """The registry of sys.path and of --plugins-dir, whose folder this process and its children import from."""
    from ..backends.discovery import search_path
    from ..backends.registry import Registry

    folder = getattr(parsed, "plugins_dir", None)
    if folder is None:
        return Registry()
    path = [*search_path(), folder]
    if folder not in sys.path:
        sys.path.append(folder)
    inherited = os.environ.get("PYTHONPATH", "")
    if folder not in inherited.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (inherited, folder)))
    return Registry(path)


def require_writable(path: Path) -> None:
    """Make the folder of a file that a command is to write. Raises WrongUsage where the file can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch()
            path.unlink()
        elif path.is_dir() or not os.access(path, os.W_OK):
            raise PermissionError(0, "it is a folder" if path.is_dir() else "permission denied")
    except OSError as error:
        raise WrongUsage(f"{path} can't be written: {error.strerror}", "") from None


def _folder(text: str) -> str:
    folder = os.path.realpath(text)
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    return folder
