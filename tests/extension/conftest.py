"""Runs the tests of the extension on every supported interpreter.

A test module that says `EVERY_INTERPRETER = True` is not imported by pytest. Each of its test functions becomes one
test for each interpreter: the extension is built for it once (build/extension/<version>), and the function runs in a
process of its own, so that a crash, a leak or a left-over hook belongs to one test. Such functions take no arguments;
raising unittest.SkipTest skips. Where an interpreter is absent, its tests are skipped.
"""

from __future__ import annotations

import ast
import fcntl
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "extension"
VERSIONS = ("3.11", "3.12", "3.13")
SKIPPED = 77
RUNNER = Path(__file__).with_name("run_function.py")


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
        if not (folder / name).exists():
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
            pytest.fail(f"the extension does not build for {version}:\n{done.stdout}{done.stderr}", pytrace=False)
    return home / "lib"


class OnInterpreter(pytest.Item):
    """One function of a module on one interpreter."""

    def __init__(self, *, function: str, line: int, version: str, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.function, self.line, self.version = function, line, version

    def runtest(self) -> None:
        python = find_interpreter(self.version)
        if python is None:
            pytest.skip(f"no CPython {self.version} with headers on this machine")
        env = {**os.environ, "PYTHONPATH": str(built_for(self.version)), "PYTHONFAULTHANDLER": "1"}
        command = [python, "-B", str(RUNNER), str(self.path), self.function]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
        if done.returncode == SKIPPED:
            pytest.skip(done.stdout.strip())
        if done.returncode:
            pytest.fail(f"exit status {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-8000:]}", pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line - 1, self.name


class EveryInterpreter(pytest.File):
    """A module whose test functions run on every interpreter; read, not imported."""

    def collect(self) -> Iterator[OnInterpreter]:
        for node in ast.parse(self.path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for version in VERSIONS:
                    name = f"{node.name}[{version}]"
                    yield OnInterpreter.from_parent(
                        self, name=name, function=node.name, line=node.lineno, version=version
                    )


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> EveryInterpreter | None:
    if "\nEVERY_INTERPRETER = True\n" in module_path.read_text():
        return EveryInterpreter.from_parent(parent, path=module_path)
    return None
