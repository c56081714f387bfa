"""HygieneTests: what a backend leaves alone: settings, output, files, memory, other compiles."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import random
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import core

from ..bare_process import run_bare
from ..rules import broken, closely, require
from ..surroundings import differences, restore, state
from .base import ConformanceTests
from .values import draw, needs_dynamic, needs_training

PROGRAM = """
import torch

def program(x, y, w):
    h = torch.relu(x @ w) + y
    return h * torch.sigmoid(h), torch.softmax(x, -1).sum(0), (x * y.sum()).tanh()
"""
CALLS = 200
MEGABYTE = 1 << 20
GROWTH_BYTES = 8 * MEGABYTE
GROWTH_OBJECTS = CALLS // 2


def program(x: Any, y: Any) -> Any:
    """A graph with pointwise operations, a product and a reduction."""
    return torch.tanh(x @ y) + x.sum(0), x * 2


class HygieneTests(ConformanceTests):
    """A compile and its calls are over when they are over."""

    def test_settings_are_left_alone(self, subject: Any, generator: torch.Generator) -> None:
        inputs = [draw(generator, 6, 6), draw(generator, 6, 6)]
        self._run_elsewhere(subject, inputs)  # what the first compile of a process loads is another test's affair
        torch.rand(3)  # no state that a seed of zero would lead to
        random.random()
        before = state()
        try:
            compiled = subject.compile(lambda x, y: (program(x, y), x - y))
            compiled(*inputs)
            changed = differences(before, state())
            compiled(*inputs)
            changed += [text for text in differences(before, state()) if text not in changed]
        finally:
            restore(before)
        require(not changed, "global-state", "; ".join(changed))

    def test_settings_are_left_alone_in_training(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        x = draw(generator, 6, 6).requires_grad_()
        self._run_elsewhere(subject, [x, x])
        before = state()
        try:
            sum(part.sum() for part in subject.compile(lambda x: program(x, x))(x)).backward()  # type: ignore[union-attr]
            changed = differences(before, state(), without=("threads",))  # autograd's own
        finally:
            restore(before)
        require(not changed, "global-state", "; ".join(changed))

    def test_import_leaves_settings_alone_and_nobody_has_to_watch(
        self, subject: Any, generator: torch.Generator
    ) -> None:
        calls = [[draw(generator, 5, 7), draw(generator, 5, 4), draw(generator, 7, 4)] for _ in range(3)]
        reply = run_bare(subject, PROGRAM, calls)
        require(reply.status == 0, "surroundings", f"a process without the suite failed:\n{reply.output[-2000:]}")
        require(not reply.imported, "global-state", "when imported: " + "; ".join(reply.imported))
        require(not reply.left, "files", f"files are left behind: {', '.join(reply.left)}")
        require(not reply.output, "output", f"a process printed: {reply.output[:500]!r}")
        names: dict[str, Any] = {}
        exec(PROGRAM, names)
        for number, (given, got) in enumerate(zip(calls, reply.results)):
            try:
                closely(got, list(names["program"](*given)), "surroundings", f"result {number}", factor=2)
            except AssertionError as error:
                raise broken("surroundings", f"in a process without the suite, {error}") from None

    def test_nothing_is_printed(self, subject: Any, generator: torch.Generator) -> None:
        inputs = [draw(generator, 5, 5), draw(generator, 5, 5)]
        with printed() as output:
            compiled = subject.compile(program)
            compiled(*inputs)
            compiled(*inputs)
        require(not output, "output", f"this was printed: {''.join(output)[:500]!r}")

    def test_no_file_is_left_behind(self, subject: Any, generator: torch.Generator) -> None:
        inputs = [draw(generator, 5, 5), draw(generator, 5, 5)]
        with tempfile.TemporaryDirectory() as folder, empty_folders(Path(folder)) as left:
            compiled = subject.compile(lambda x, y: program(y, x))
            compiled(*inputs)
            subject.reset()
            gc.collect()
            require(not left(), "files", f"files are left behind: {', '.join(left())}")

    def test_memory_does_not_grow_with_calls(self, subject: Any, generator: torch.Generator) -> None:
        if not Path("/proc/self/statm").exists():
            pytest.skip("this system does not tell the memory of a process")
        x = draw(generator, 1 << 14)
        compiled = subject.compile(lambda x: (x * 2 + 1, torch.sin(x)))
        self._call_often(compiled, [x], 20)
        before = resident_bytes()
        self._call_often(compiled, [x], CALLS)
        grown = resident_bytes() - before
        text = f"{CALLS} calls took {grown / MEGABYTE:.0f} MiB"
        require(grown < GROWTH_BYTES, "leak", text)

    def test_objects_do_not_grow_with_calls(self, subject: Any, generator: torch.Generator) -> None:
        inputs = [draw(generator, 4, 4), draw(generator, 4, 4)]
        compiled = subject.compile(program)
        self._call_often(compiled, inputs, 20)
        before = live_objects()
        self._call_often(compiled, inputs, CALLS)
        grown = live_objects() - before
        require(grown < GROWTH_OBJECTS, "leak", f"{CALLS} calls left {grown} objects behind")

    def test_inputs_and_results_are_let_go(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(program)
        inputs = [draw(generator, 4, 4), draw(generator, 4, 4)]
        compiled(*inputs)
        results = compiled(*inputs)
        watched = [weakref.ref(value) for value in (*inputs, *results)]
        del inputs, results
        gc.collect()
        alive = sum(reference() is not None for reference in watched)
        require(alive == 0, "leak", f"{alive} tensors of a call live on after it")

    def test_saved_tensors_are_let_go(self, subject: Any, generator: torch.Generator) -> None:
        needs_training(subject)
        compiled = subject.compile(lambda x, w: torch.tanh(x * w).sum())
        x, w = draw(generator, 8), draw(generator, 8).requires_grad_()
        compiled(x, w).backward()
        loss = compiled(x, w)
        watched = weakref.ref(x)
        loss.backward()
        del x, loss
        gc.collect()
        require(watched() is None, "leak", "an input lives on after the backward that needed it")

    def test_what_is_compiled_is_let_go(self, subject: Any, generator: torch.Generator) -> None:
        module = torch.nn.Linear(4, 4)
        compiled = subject.compile(module)
        with torch.no_grad():
            compiled(draw(generator, 2, 4))
        watched = weakref.ref(module.weight)
        del module, compiled
        subject.reset()
        subject.watched.clear()
        gc.collect()
        require(watched() is None, "leak", "a parameter lives on after everything compiled was dropped")

    def test_threads_are_not_left_behind(self, subject: Any, generator: torch.Generator) -> None:
        x = draw(generator, 4, 4)
        subject.compile(program)(x, x)
        before = {thread.ident for thread in threading.enumerate()}
        for power in (2, 3, 4):
            subject.compile(lambda x, power=power: torch.tanh(x) ** power)(x)
        subject.reset()
        gc.collect()
        left = [thread.name for thread in threading.enumerate() if thread.ident not in before]
        require(not left, "leak", f"threads are left behind: {', '.join(left)}")

    def test_options_stay_with_their_compile(self, subject: Any, generator: torch.Generator) -> None:
        x, y = draw(generator, 8, 8), draw(generator, 8, 8)
        plain = subject.compile(lambda x, y: program(x, y))
        closely(plain(x, y), program(x, y), "numerics", factor=2)
        for name, option in subject.resolved.options().items():
            for choice in option.choices:
                if choice == option.default or name in subject.options:
                    continue
                subject.compile(lambda x, y: program(x, y)[0], options={name: choice})(x, y)
                fresh = subject.compile(lambda x, y: (program(x, y), x))
                what = f"the result without options, after a compile with {name}={choice!r}"
                closely(fresh(x, y)[0], program(x, y), "options", what, factor=2)
                closely(plain(x, y), program(x, y), "options", f"{what}, of what was compiled before", factor=2)

    def test_compiles_of_one_function_are_apart(self, subject: Any, generator: torch.Generator) -> None:
        def scaled(factor: float) -> Any:
            return subject.compile(lambda x: torch.sin(x) * factor)

        x = draw(generator, 6)
        two, three = scaled(2.0), scaled(3.0)
        closely((two(x), three(x), two(x)), tuple(torch.sin(x) * f for f in (2.0, 3.0, 2.0)), "stale-result")

    def test_warm_calls_compile_nothing(self, subject: Any, generator: torch.Generator) -> None:
        compiled = subject.compile(program)
        for _ in range(2):
            compiled(draw(generator, 5, 5), draw(generator, 5, 5))
        before = core.stats()["graphs"]
        for _ in range(5):
            compiled(draw(generator, 5, 5), draw(generator, 5, 5))
        made = core.stats()["graphs"] - before
        require(made == 0, "recompiles", f"five calls with values of the same kind compiled {made} graphs")

    def test_calls_from_a_size_to_another_and_back_compile_once_each(
        self, subject: Any, generator: torch.Generator
    ) -> None:
        needs_dynamic(subject)
        compiled = subject.compile(lambda x: torch.exp(x) + 1)
        before = core.stats()["graphs"]
        for size in (4, 8, 4, 8, 16, 4):
            compiled(draw(generator, size))
        made = core.stats()["graphs"] - before
        require(made == 2, "recompiles", f"three sizes, each used again, compiled {made} graphs")

    @staticmethod
    def _run_elsewhere(subject: Any, inputs: list[Any]) -> None:
        """The process's first compile by this backend, its settings put back."""
        before = state()
        try:
            with torch.no_grad():
                core.compile(program, backend="eager")(*inputs)
        finally:
            restore(before)

    @staticmethod
    def _call_often(compiled: Any, inputs: list[Any], times: int) -> None:
        for _ in range(times):
            compiled(*inputs)
        gc.collect()


@contextlib.contextmanager
def printed() -> Iterator[list[str]]:
    """What is written to the two output streams meanwhile, through Python's objects or below them."""
    found: list[str] = []
    text = io.StringIO()
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        sys.stderr.flush()
        kept = [os.dup(descriptor) for descriptor in (1, 2)]
        try:
            for descriptor in (1, 2):
                os.dup2(file.fileno(), descriptor)
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield found
        finally:
            for descriptor, copy in zip((1, 2), kept):
                os.dup2(copy, descriptor)
                os.close(copy)
        file.seek(0)
        found += [part for part in (text.getvalue(), file.read().decode(errors="replace")) if part]


@contextlib.contextmanager
def empty_folders(folder: Path) -> Iterator[Any]:
    """An empty temporary folder and an empty working directory; yields a function that lists what is in them."""
    temporary, working = folder / "temporary", folder / "working"
    temporary.mkdir()
    working.mkdir()
    before, where, variable = tempfile.tempdir, os.getcwd(), os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    os.chdir(working)
    try:
        yield lambda: sorted(path.name for place in (temporary, working) for path in place.iterdir())
    finally:
        os.chdir(where)
        tempfile.tempdir = before
        os.environ.pop("TMPDIR")
        if variable is not None:
            os.environ["TMPDIR"] = variable


def resident_bytes() -> int:
    """The memory of this process that is in use. What is free goes back first: a leak could fill it unseen."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def live_objects() -> int:
    """The number of objects that Python's collector knows."""
    gc.collect()
    return len(gc.get_objects())
