"""Compiled artifacts on disk, by key: bytes in a folder of the user's own. This module imports no torch.

A file is a header with the digest of what follows, and the bytes; one that doesn't fit its digest counts as absent and
is removed. Files are written beside their place and renamed into it, so that two processes that store one key at once
leave one whole file. A folder that another user could write to is not used. Nothing here raises for what a disk may do:
after the first trouble there is one warning, and the store holds nothing more in this process.
State shared between threads: `_trouble`, written under the GIL.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import warnings
from pathlib import Path

from .folders import cache_root

MAGIC = b"core artifact 1\n"
LIMIT_BYTES = 2 << 30
"""Of all files together; the ones that were not read for longest go first."""

_DIGEST_BYTES = 32
_SHARED = stat.S_IWGRP | stat.S_IWOTH


class ArtifactStore:
    """The store in one folder. `read` and `write` never raise."""

    def __init__(self, folder: Path | None = None, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = cache_root() / "artifacts" if folder is None else folder
        self.limit_bytes = limit_bytes
        self._trouble = False

    def read(self, key: str) -> bytes | None:
        """The bytes stored under a key, None when there are none that are whole."""
        path = self._path(key)
        if self._trouble or not self._usable(create=False):
            return None
        try:
            with open(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    return None
                content = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(f"{path} can't be read: {error}")
            return None
        blob = _unpacked(content)
        if blob is None:
            self.remove(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it is in use: among the last to be removed
        return blob

    def write(self, key: str, blob: bytes) -> bool:
        """Store bytes under a key; whether that worked."""
        if self._trouble or len(blob) > self.limit_bytes or not self._usable(create=True):
            return False
        path = self._path(key)
        temporary = ""
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with open(descriptor, "wb") as file:
                file.write(MAGIC + hashlib.sha256(blob).digest() + blob)
            os.replace(temporary, path)
        except OSError as error:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            self._give_up(f"{self.folder} can't be written: {error}")
            return False
        self._trim()
        return True

    def remove(self, key: str) -> None:
        """Forget a key."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.bin"

    def _usable(self, *, create: bool) -> bool:
        """Whether the folder is there and nobody but the user can write to it."""
        try:
            if create:
                self.folder.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    self.folder.mkdir(mode=0o700)
            status = os.lstat(self.folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            self._give_up(f"{self.folder} can't be made: {error}")
            return False
        if not stat.S_ISDIR(status.st_mode):
            self._give_up(f"{self.folder} is no folder")
        elif status.st_uid != os.geteuid():
            self._give_up(f"{self.folder} belongs to another user")
        elif status.st_mode & _SHARED:
            self._give_up(f"other users can write to {self.folder}: give it the mode 0700")
        return not self._trouble

    def _give_up(self, reason: str) -> None:
        if not self._trouble:
            self._trouble = True
            warnings.warn(f"core: compiled artifacts are not kept on disk; {reason}", RuntimeWarning, stacklevel=4)

    def _trim(self) -> None:
        """Remove the files that were not used for longest until the rest is within the limit."""
        files = []
        for place, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(place, name)
                with contextlib.suppress(OSError):  # another process has removed it
                    status = os.lstat(path)
                    files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.limit_bytes:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size


def _unpacked(content: bytes) -> bytes | None:
    head = len(MAGIC) + _DIGEST_BYTES
    blob = content[head:]
    whole = content.startswith(MAGIC) and hashlib.sha256(blob).digest() == content[len(MAGIC) : head]
    return blob if whole else None
