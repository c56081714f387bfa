"""Runs the tests of the extension on every supported interpreter.

A test module that says `EVERY_INTERPRETER = True` is not imported by pytest. Each of its test functions becomes one
test for each interpreter: the extension is built for it once (build/extension/<version>), and the function runs in a
process of its own, so that a crash, a leak or a left-over hook belongs to one test. Such functions take no arguments;
raising unittest.SkipTest skips. Where an interpreter is absent, its tests are skipped.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from interpreters import VERSIONS, BuildFailed, built_for, find_interpreter  # noqa: E402

SKIPPED = 77
RUNNER = Path(__file__).with_name("run_function.py")


class OnInterpreter(pytest.Item):
    """One function of a module on one interpreter."""

    def __init__(self, *, function: str, line: int, version: str, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.function, self.line, self.version = function, line, version

    def runtest(self) -> None:
        python = find_interpreter(self.version)
        if python is None:
            pytest.skip(f"no CPython {self.version} with headers on this machine")
        try:
            env = {**os.environ, "PYTHONPATH": str(built_for(self.version)), "PYTHONFAULTHANDLER": "1"}
        except BuildFailed as problem:
            pytest.fail(str(problem), pytrace=False)
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
