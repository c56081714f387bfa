"""Where core and its plugins keep files between processes: one folder, and in it one for each that writes.

`CORE_CACHE_DIR`, else `core` in the user's cache folder. This module imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CacheFolder:
    """One folder of the cache: its name, its path, how many files it holds and how many bytes."""

    name: str
    path: Path
    files: int
    size: int


def cache_root() -> Path:
    """The folder that holds the others; it need not exist."""
    chosen = os.environ.get("CORE_CACHE_DIR", "")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~")) / ".cache") / "core"


def cache_folders() -> Iterator[CacheFolder]:
    """The folders in use, by name. Links are not followed."""
    root = cache_root()
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            files = list(_files(entry.path))
            yield CacheFolder(entry.name, root / entry.name, len(files), sum(files))


def _files(folder: str) -> Iterator[int]:
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                yield os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue  # another process has removed it meanwhile


def clear(folder: CacheFolder) -> list[str]:
    """Remove a folder of the cache; returns what could not be removed. A process that uses it makes it anew."""
    failed = []
    for place, folders, names in os.walk(folder.path, topdown=False):
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        steps = [(os.unlink, os.path.join(place, name)) for name in (*names, *linked)]
        for remove, path in [*steps, (os.rmdir, place)]:
            try:
                remove(path)
            except FileNotFoundError:
                continue  # another process was faster
            except OSError as error:
                failed.append(f"{path}: {error.strerror}")
    return failed
