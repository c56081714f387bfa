"""The supported interpreters of this machine, and the extension built for each of them.

For tests/extension and soak.py, which run on every interpreter. Each gets `build/extension/<version>/lib`: a `core`
package that links to the tree's files and holds a `_C` of its own, so that the tree's in-place build stays untouched.
CORE_PYTHON_3_12 (and so on) names an interpreter where it is not found.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "extension"
VERSIONS = ("3.11", "3.12", "3.13")


class BuildFailed(Exception):
    """The compiler's words on why the extension could not be built."""


def candidates(version: str) -> Iterator[str]:
    """Places where an interpreter of this version may stand, best first."""
    named = os.environ.get("CORE_PYTHON_" + version.replace(".", "_"))
    if named:
        yield named
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        yield sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for folder in sorted(pyenv.glob(version + ".*")):
        yield str(folder / "bin" / "python3")
    found = shutil.which("python" + version)
    if found:
        yield found


@functools.cache
def find_interpreter(version: str) -> str | None:
    """The path of an interpreter of this version that runs and has headers, or None."""
    probe = "import os, sys, sysconfig; print('%d.%d' % sys.version_info[:2], sysconfig.get_paths()['include'])"
    for path in candidates(version):
        try:
            done = subprocess.run([path, "-c", probe], capture_output=True, text=True)
        except OSError:
            continue
        words = done.stdout.split(maxsplit=1)
        if done.returncode == 0 and words[0] == version and Path(words[1].strip(), "Python.h").exists():
            return path
    return None


def link_package(package: Path) -> None:
    """Make `package` the tree's `core` but for the extension, by links."""
    package.mkdir(parents=True, exist_ok=True)
    for source in (ROOT / "core").iterdir():
        link = package / source.name
        if not source.name.startswith("_C") and source.name != "__pycache__" and not link.exists():
            link.symlink_to(source)


def lend_setuptools(folder: Path) -> str:
    """A folder with nothing but this environment's setuptools, for an interpreter that has none."""
    import setuptools

    folder.mkdir(parents=True, exist_ok=True)
    home = Path(setuptools.__file__).parent
    for name in ("setuptools", "_distutils_hack"):
        with contextlib.suppress(FileExistsError):  # an earlier build, or one for another interpreter right now
            (folder / name).symlink_to(home.parent / name)
    return str(folder)


@functools.cache
def built_for(version: str) -> Path:
    """The folder to put on PYTHONPATH for this version; builds what is out of date."""
    python = find_interpreter(version)
    home = BUILD / version
    home.mkdir(parents=True, exist_ok=True)
    with open(home / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        link_package(home / "lib" / "core")
        has_own = subprocess.run([python, "-c", "import setuptools"], capture_output=True).returncode == 0
        env = dict(os.environ)
        if not has_own:
            env["PYTHONPATH"] = lend_setuptools(BUILD / "setuptools")
        command = [python, "setup.py", "-q", "build_ext", "--build-temp", str(home / "temp")]
        done = subprocess.run(
            [*command, "--build-lib", str(home / "lib")], cwd=ROOT, env=env, capture_output=True, text=True
        )
        if done.returncode:
            raise BuildFailed(f"the extension does not build for {version}:\n{done.stdout}{done.stderr}")
    return home / "lib"
