"""The disk cache of built kernel libraries: safe between processes, checked when read, bounded in size.

An entry is one file: the shared object and behind it a trailer of magic bytes and a digest; the loader ignores what
follows an ELF image. Entries appear by rename, so readers see all of one or none. Nothing stored here is ever unpickled
or evaluated. State shared between threads: the fields of KernelCache under its `_lock`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

MAGIC = b"core-kernels\x00\x01"
_DIGEST_BYTES = 32
_TRAILER_BYTES = len(MAGIC) + _DIGEST_BYTES
DEFAULT_LIMIT_BYTES = 1 << 30
_TRIM_EVERY = 64  # stores between two looks at the size of the folder
_TOUCH_AFTER_S = 3600  # a hit renews an entry's time only when it's older, to keep hits free of writes
_STALE_SCRATCH_S = 3600


class CacheUnusable(Exception):
    """The folder can't be used; the text says why."""


class KernelCache:
    """Files named by key in one folder that only its owner can read or write.

    folder: created with mode 0700; limit_bytes: the least recently used entries go when the sum exceeds it.
    """

    def __init__(self, folder: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, temporary: bool = False) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.temporary = temporary
        self._stores = 0
        self._lock = threading.Lock()
        _prepare(folder)

    def path(self, key: str) -> Path:
        """Where the entry of `key` lies or would lie."""
        return self.folder / f"{key}.so"

    def find(self, key: str) -> Path | None:
        """The entry of `key`, or None. An entry that's damaged is removed."""
        path = self.path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if not _intact(content):
            _remove(path)
            return None
        _touch(path)
        return path

    def scratch(self, key: str) -> Path:
        """A folder of its own for one build, on the same file system as the entries. Raises OSError."""
        return Path(tempfile.mkdtemp(prefix=f"{key[:16]}-", dir=self.folder / "scratch"))

    def store(self, key: str, built: Path) -> Path:
        """Take over a built shared object as the entry of `key`. Raises OSError, with nothing left behind."""
        digest = hashlib.sha256(built.read_bytes()).digest()
        with open(built, "ab") as file:
            file.write(MAGIC + digest)
        path = self.path(key)
        os.replace(built, path)
        with self._lock:
            self._stores += 1
            due = self._stores % _TRIM_EVERY == 1
        if due:
            self.trim()
        return path

    def put(self, key: str, code: bytes) -> Path:
        """Make a shared object the entry of `key`. Raises OSError, with nothing left behind."""
        scratch = self.scratch(key)
        try:
            built = scratch / "kernels.so"
            built.write_bytes(code)
            return self.store(key, built)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    @contextlib.contextmanager
    def building(self, key: str) -> Iterator[None]:
        """Hold the right to build `key`: other processes and threads that want it wait.

        Some network file systems have no locks; there two processes may build the same entry, which is only wasteful.
        """
        descriptor = os.open(self.folder / "locks" / key[:2], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def trim(self) -> int:
        """Remove the least recently used entries beyond the limit, and abandoned scratch. Returns bytes left."""
        self._drop_stale_scratch()
        entries = []
        for path in self.folder.glob("*.so"):
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            if total <= self.limit_bytes:
                break
            _remove(path)
            total -= size
        return total

    def _drop_stale_scratch(self) -> None:
        limit = time.time() - _STALE_SCRATCH_S
        for path in (self.folder / "scratch").iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < limit:
                    shutil.rmtree(path, ignore_errors=True)


def default_folder() -> Path:
    """CORE_CACHE_DIR/inductor, or core/inductor in the user's cache folder."""
    chosen = os.environ.get("CORE_CACHE_DIR", "")
    if chosen:
        return Path(chosen) / "inductor"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "core" / "inductor"


def open_cache(folder: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> KernelCache:
    """The cache in `folder`, or after one warning a temporary one that lasts as long as this process."""
    try:
        return KernelCache(folder, limit_bytes)
    except (CacheUnusable, OSError) as error:
        return temporary_cache(f"{folder} can't be used: {error}")


def temporary_cache(reason: str) -> KernelCache:
    """A cache that this process removes at its end; warns with the reason when there is one. Raises OSError."""
    if reason:
        warnings.warn(f"core: compiled kernels are not kept on disk; {reason}", RuntimeWarning, stacklevel=2)
    try:
        folder = tempfile.mkdtemp(prefix="core-inductor-")
    except OSError:
        folder = tempfile.mkdtemp(prefix="core-inductor-", dir="/dev/shm")  # memory, where every disk is full
    _remove_at_exit(folder)
    return KernelCache(Path(folder), temporary=True)


def _remove_at_exit(folder: str) -> None:
    import atexit

    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child leaves its parent's files alone
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


def _prepare(folder: Path) -> None:
    """Create the folder and its parts; refuse one that others own or can write. Raises CacheUnusable, OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise CacheUnusable("it is a link, not a folder")
    if status.st_uid != os.geteuid():
        raise CacheUnusable(f"it belongs to user {status.st_uid}")
    if stat.S_IMODE(status.st_mode) & 0o077:
        os.chmod(folder, 0o700)
    for part in ("scratch", "locks"):
        (folder / part).mkdir(mode=0o700, exist_ok=True)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise CacheUnusable("it is not writable")


def without_trailer(content: bytes) -> bytes:
    """The shared object in an entry."""
    return content[:-_TRAILER_BYTES]


def _intact(content: bytes) -> bool:
    body, trailer = content[:-_TRAILER_BYTES], content[-_TRAILER_BYTES:]
    return trailer == MAGIC + hashlib.sha256(body).digest()


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _TOUCH_AFTER_S:
            os.utime(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
