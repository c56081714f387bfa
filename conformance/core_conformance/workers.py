"""Worker processes: a clean environment, a time limit for each test; a test that kills its worker has failed alone.

Enters: tests and what they are run with. Leaves: what came of each. One Shard drives one process after another.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import SuiteMisused

from .messages import for_report

START_S = 300.0
"""How long a worker may take until its first test: seconds where the machine is idle, minutes where it is not."""
LISTED = (0, 5)
"""With what pytest ends where every file could be read and, as in a listing, nothing was to run."""
KEPT = (
    "PATH HOME LANG LC_ALL TMPDIR VIRTUAL_ENV LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES CORE_CXX CORE_CACHE_DIR "
    "OMP_NUM_THREADS MKL_NUM_THREADS"
).split()
"""Variables that a worker inherits; no other one can steer a run."""


def clean_environment() -> dict[str, str]:
    """The environment of a worker."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    kept.setdefault("OMP_NUM_THREADS", "1")
    return {**kept, "CORE_STRICT": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONHASHSEED": "0"}


@dataclass(frozen=True)
class Setting:
    """What all workers of a run have in common. module: what is run as a worker."""

    backend: str
    device: str
    seed: int
    timeout_s: float
    unsupported: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    precision: str = ""
    module: str = "core_conformance.worker"

    def order(self, tests: Sequence[str] | None) -> str:
        """The JSON that a worker reads."""
        return json.dumps(
            {
                "backend": self.backend,
                "device": self.device,
                "seed": self.seed,
                "tests": tests,
                "unsupported": list(self.unsupported),
                "options": self.options,
                "precision": self.precision,
            }
        )


class Worker:
    """One process, in a folder of its own, and the lines that it writes."""

    def __init__(self, setting: Setting, tests: Sequence[str] | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self._errors = Path(self._folder.name) / "errors"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", setting.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self._folder.name,
                env=clean_environment(),
                process_group=0,  # so that what it starts ends with it
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(setting.order(tests).encode())
        self.process.stdin.close()
        self._rest = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)

    def lines(self, limit: Callable[[], float]) -> Iterator[dict[str, Any] | None]:
        """What it writes; None when the limit (seconds from the last line) passed. Ends with the process."""
        assert self.process.stdout is not None
        while True:
            if not self._selector.select(limit()):
                yield None
                return
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return
            *whole, self._rest = (self._rest + data).split(b"\n")
            for line in whole:
                yield json.loads(line)

    def end(self) -> str:
        """Stop it, if it runs, with all that it started; returns the end of what it wrote to standard error."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        assert self.process.stdout is not None
        self._selector.close()
        self.process.stdout.close()
        tail = self._errors.read_text(errors="replace")[-1500:]
        self._folder.cleanup()
        return tail


def listing(setting: Setting) -> list[str]:
    """Every test of the suite. Raises SuiteMisused with what the worker said where it can't tell."""
    worker = Worker(setting, None)
    found: list[str] | None = None
    ended = -1
    for line in worker.lines(lambda: START_S):
        if line is None:
            break
        found = line.get("tests", found)
        ended = line.get("done", ended)
    said = worker.end()
    if not found or ended not in LISTED:
        raise SuiteMisused(
            f"the suite's tests can't be listed:\n{said.strip() or f'nothing was heard for {START_S:g} s'}",
            instead="nothing was run",
            remedy='see what is missing or broken above; pip install "core[conformance]" brings what the suite needs',
        )
    return found


def run_shard(
    setting: Setting, tests: Sequence[str], done: Callable[[str, dict[str, Any]], None], stopped: Callable[[], bool]
) -> None:
    """Run tests in order, in as many processes as it takes, and hand each result to `done`."""
    left = list(tests)
    idle = 0
    while left and not stopped():
        before = len(left)
        said = _one_process(setting, left, done, stopped)
        idle = idle + 1 if len(left) == before else 0
        if idle == 2:
            for test in left:
                done(test, _failure("exception", for_report(f"no worker gets as far as a test:\n{said}"), 0.0))
            return


def _one_process(
    setting: Setting, left: list[str], done: Callable[[str, dict[str, Any]], None], stopped: Callable[[], bool]
) -> str:
    """Drive one worker until it ends, and take what it did off `left`. Returns the end of what it said."""
    worker = Worker(setting, left)
    running: str | None = None
    began = time.monotonic()
    late = False

    def limit() -> float:
        return setting.timeout_s if running else START_S

    for line in worker.lines(limit):
        if line is None:
            late = True
            break
        if "begin" in line:
            running, began = line["begin"], time.monotonic()
        elif "end" in line:
            test = line.pop("end")
            if test in left:
                left.remove(test)
                done(test, line)
            running = None
        if stopped():
            break
    said = worker.end()
    if running is None or running not in left or stopped():
        return f"nothing after {START_S:g} s\n{said}" if late else said
    left.remove(running)
    seconds = round(time.monotonic() - began, 3)
    if late:
        done(running, _failure("deadline", f"still running after {setting.timeout_s:g} s", seconds))
    else:
        code = worker.process.returncode
        done(running, _failure("exception", for_report(f"the process died with exit code {code}:\n{said}"), seconds))
    return said


def _failure(rule: str, message: str, seconds: float) -> dict[str, Any]:
    return {"outcome": "failed", "rule": rule, "message": message, "seconds": seconds}
