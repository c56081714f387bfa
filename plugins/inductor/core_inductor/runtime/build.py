"""From C++ source to a loaded library: memory, then disk, then the compiler.

State shared between threads: `_loaded` and `_caches`, both under `_lock`. No thread is started and none is held, so a
fork after a build is safe.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import threading
import weakref
from pathlib import Path

from .. import __version__
from .._runtime import Library
from .cache import KernelCache, default_folder, open_cache, temporary_cache, without_trailer
from .toolchain import CompilerMissing, Toolchain, find_toolchain, runtime_libraries

COMPILER_LIMIT_S = 600.0
_STOP_GRACE_S = 1.0

_lock = threading.Lock()
_loaded: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()
_caches: dict[Path, KernelCache] = {}


class BuildFailed(Exception):
    """The compiler refused generated code, or its output can't be loaded. `log` holds what it said."""

    def __init__(self, what: str, log: str = "") -> None:
        super().__init__(what)
        self.log = log


def build_library(source: str, *, compiler: str = "", keep: bool = True) -> Library:
    """The loaded library of a translation unit.

    compiler: a name or path instead of g++; keep: whether the disk cache is used. Raises CompilerMissing, BuildFailed.
    """
    toolchain = find_toolchain(compiler)
    key = source_key(source, toolchain)
    with _lock:
        library = _loaded.get(key)
    if library is None:
        library = _find_or_build(source, key, toolchain, _cache(keep))
        with _lock:
            library = _loaded.setdefault(key, library)
    return library


def machine_code(source: str, *, compiler: str = "", keep: bool = True) -> tuple[str, bytes]:
    """Key and content of the shared object of a translation unit. Raises CompilerMissing, BuildFailed, OSError."""
    toolchain = find_toolchain(compiler)
    key, cache = source_key(source, toolchain), _cache(keep)
    path = cache.find(key)
    if path is None:  # the folder was emptied, or held too much
        _find_or_build(source, key, toolchain, cache)
        path = _cache(keep).path(key)
    return key, without_trailer(path.read_bytes())


def adopt_library(key: str, code: bytes, *, keep: bool = True) -> Library:
    """The loaded library of a shared object that was built elsewhere for this machine. Raises OSError."""
    with _lock:
        library = _loaded.get(key)
    if library is None:
        cache = _cache(keep)
        library = _load_entry(cache, key) or _stored_library(key, code, cache)
        with _lock:
            library = _loaded.setdefault(key, library)
    return library


def _stored_library(key: str, code: bytes, cache: KernelCache) -> Library:
    try:
        return Library(cache.put(key, code))
    except OSError as error:
        if cache.temporary:
            raise
        return Library(_use_temporary(cache, error).put(key, code))


def source_key(source: str, toolchain: Toolchain) -> str:
    """The name of the entry: a digest of all that decides about its content."""
    digest = hashlib.sha256()
    for part in (__version__, *toolchain.key, source):
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:40]


def _cache(keep: bool) -> KernelCache:
    """The cache of the folder that the environment names now; without `keep`, one that ends with the process."""
    folder = default_folder() if keep else Path()
    with _lock:
        cache = _caches.get(folder)
        if cache is None:
            cache = _caches[folder] = open_cache(folder) if keep else temporary_cache("")
    return cache


def _use_temporary(failed: KernelCache, error: OSError) -> KernelCache:
    """Replace a cache that took no more files by a temporary one. Raises OSError when no disk takes any."""
    cache = temporary_cache(f"{failed.folder} takes no more files: {error}")
    with _lock:
        _caches.update({folder: cache for folder, entry in _caches.items() if entry is failed})
    return cache


def _find_or_build(source: str, key: str, toolchain: Toolchain, cache: KernelCache) -> Library:
    library = _load_entry(cache, key)
    if library is not None:
        return library
    try:
        return _build_entry(source, key, toolchain, cache)
    except OSError as error:
        failure = error
    try:
        return _build_entry(source, key, toolchain, _use_temporary(cache, failure))
    except OSError as error:
        raise BuildFailed(f"no place to build kernels: {error}") from error


def _load_entry(cache: KernelCache, key: str) -> Library | None:
    """The library of an intact entry. One that does not load (made for another torch's OpenMP runtime) is a miss."""
    path = cache.find(key)
    if path is None:
        return None
    try:
        return Library(path)
    except OSError:
        return None


def _build_entry(source: str, key: str, toolchain: Toolchain, cache: KernelCache) -> Library:
    """Compile under the key's lock, unless another process has done so meanwhile. Raises OSError for a full disk."""
    with cache.building(key):
        library = _load_entry(cache, key)
        if library is not None:
            return library
        scratch = cache.scratch(key)
        try:
            built = scratch / "kernels.so"
            compile_source(source, built, toolchain)
            path = cache.store(key, built)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    try:
        return Library(path)
    except OSError as error:
        raise BuildFailed(f"the compiled kernels can't be loaded: {error}") from error


def compile_source(source: str, output: Path, toolchain: Toolchain) -> None:
    """Run the compiler on `source`, writing `output`. Raises BuildFailed, or OSError when the disk took no output."""
    command = toolchain.command(str(output), runtime_libraries())
    environment = {**os.environ, "TMPDIR": str(output.parent), "LC_ALL": "C"}
    status, log = _run(command, source, environment)
    if status == 0:
        return
    if "No space left on device" in log or "Read-only file system" in log:
        raise OSError(log.strip().splitlines()[-1])
    raise BuildFailed(f"{toolchain.compiler} ended with status {status}", log)


def _run(command: list[str], text: str, environment: dict[str, str]) -> tuple[int, str]:
    """Exit status and output of a command fed with `text`. Whatever interrupts the wait ends the command too."""
    try:
        # A process group of its own, because the driver starts further processes that must end with it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            process_group=0,
        )
    except OSError as error:
        raise CompilerMissing(f"{command[0]} can't be started: {error}") from error
    with process:
        try:
            _, errors = process.communicate(text.encode(), timeout=COMPILER_LIMIT_S)
        except subprocess.TimeoutExpired as error:
            _stop(process)
            raise BuildFailed(f"{command[0]} took more than {COMPILER_LIMIT_S:.0f} s") from error
        except BaseException:  # also KeyboardInterrupt: leave no compiler behind
            _stop(process)
            raise
    return process.returncode, errors.decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a compiler and its children: politely, so that they remove their files, then by force."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.wait(_STOP_GRACE_S)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
