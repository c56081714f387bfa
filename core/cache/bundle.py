"""What compiling has left on disk, as one piece of bytes for another process or machine. This module imports no torch.

A bundle is a header with the digest of what follows, a list of names and sizes, and the files one after another. The
keys of the files say with what they were made; one that another machine can't use is never asked for there. Compiled
code is in it: load only bundles whose maker may run code here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from .folders import cache_root

MAGIC = b"core bundle 1\n"
_DIGEST_BYTES = 32
_LENGTH_BYTES = 8
_LEFT_OUT = frozenset(("scratch", "locks"))


@dataclass(frozen=True)
class CacheInfo:
    """What a bundle holds: the names of its files by the folder of the cache that they belong to."""

    artifacts: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.artifacts)


def saved(since: float) -> tuple[bytes, CacheInfo] | None:
    """A bundle of the files written or read since that moment (seconds of the epoch); None when there are none."""
    listed: list[tuple[str, bytes]] = []
    for path in _files(cache_root()):
        with contextlib.suppress(OSError):  # another process has removed it
            if path.stat().st_mtime >= since:
                listed.append((path.relative_to(cache_root()).as_posix(), path.read_bytes()))
    if not listed:
        return None
    head = json.dumps([[name, len(content)] for name, content in listed]).encode()
    body = len(head).to_bytes(_LENGTH_BYTES, "big") + head + b"".join(content for _, content in listed)
    return MAGIC + hashlib.sha256(body).digest() + body, _info(name for name, _ in listed)


def loaded(bundle: bytes) -> CacheInfo | None:
    """Put the files of a bundle where compiling looks for them; None, with a warning, for bytes that are no bundle.

    A file that is there already stays. Raises OSError where the cache can't be written.
    """
    contents = _contents(bundle)
    if contents is None:
        warnings.warn("core: these bytes are no whole bundle of cache artifacts; nothing was loaded", stacklevel=3)
        return None
    root = cache_root()
    for name, content in contents.items():
        path = root / name
        if not path.exists():
            _write(root, path, content)
    return _info(contents)


def _files(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        for name in sorted(names):
            path = Path(place, name)
            if path.parent != root and not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def _contents(bundle: bytes) -> dict[str, bytes] | None:
    """The files by name; None unless all is as `saved` writes it and stays inside the cache."""
    start = len(MAGIC) + _DIGEST_BYTES
    body = bundle[start:]
    if not bundle.startswith(MAGIC) or hashlib.sha256(body).digest() != bundle[len(MAGIC) : start]:
        return None
    at = _LENGTH_BYTES + int.from_bytes(body[:_LENGTH_BYTES], "big")
    found: dict[str, bytes] = {}
    for name, size in json.loads(body[_LENGTH_BYTES:at]):
        parts = PurePosixPath(name).parts
        if len(parts) < 2 or ".." in parts or PurePosixPath(name).is_absolute():
            return None
        found[name] = body[at : at + size]
        at += size
    return found


def _write(root: Path, path: Path, content: bytes) -> None:
    missing = [folder for folder in path.parents if folder != root and root in folder.parents and not folder.exists()]
    root.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    with open(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def _info(names: Iterable[str]) -> CacheInfo:
    found: dict[str, list[str]] = {}
    for name in names:
        folder, _, rest = name.partition("/")
        found.setdefault(folder, []).append(rest)
    return CacheInfo(found)
