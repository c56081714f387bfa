"""Cheats against the process: its settings, its output, its memory, its files."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
from typing import Any, ClassVar

import torch

from .interpreter import Interpreted, Program


class ChangesThreadCount(Interpreted):
    """Takes all threads but one from torch while it compiles."""

    name = "evil-changes-thread-count"

    def compiled(self, program: Program) -> None:
        torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)


class ChangesDefaultDtype(Interpreted):
    """Compiles under another default dtype and leaves it so."""

    name = "evil-changes-default-dtype"

    def compiled(self, program: Program) -> None:
        torch.set_default_dtype(torch.float64)


class ChangesGradMode(Interpreted):
    """Switches gradients off for good."""

    name = "evil-changes-grad-mode"

    def compiled(self, program: Program) -> None:
        torch.set_grad_enabled(False)


class SeedsTheGenerator(Interpreted):
    """Seeds torch's generator while it compiles."""

    name = "evil-seeds-the-generator"

    def compiled(self, program: Program) -> None:
        torch.manual_seed(0)


class SeedsPython(Interpreted):
    """Seeds Python's generator while it compiles."""

    name = "evil-seeds-python"

    def compiled(self, program: Program) -> None:
        random.seed(0)


class FlushesForTheWholeProcess(Interpreted):
    """Switches subnormal numbers off in the processor."""

    name = "evil-flush-mode"

    def compiled(self, program: Program) -> None:
        torch.set_flush_denormal(True)


class ChangesEnvironment(Interpreted):
    """Sets a variable of the environment."""

    name = "evil-changes-environment"

    def compiled(self, program: Program) -> None:
        os.environ["EVIL_THREADS"] = "64"


class TakesSignals(Interpreted):
    """Installs a handler for a signal of the user's."""

    name = "evil-takes-signals"

    def compiled(self, program: Program) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR2, lambda number, frame: None)


class Prints(Interpreted):
    """Tells the user's terminal what it does."""

    name = "evil-prints"

    def compiled(self, program: Program) -> None:
        print("compiling a graph")


class WritesToStderrBelowPython(Interpreted):
    """Writes to the file descriptor of the error stream, past Python's objects."""

    name = "evil-writes-to-descriptor"

    def compiled(self, program: Program) -> None:
        os.write(2, b"compiling a graph\n")


class LeaksMemory(Interpreted):
    """Keeps every result."""

    name = "evil-leaks-memory"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        kept = program.memory.setdefault("kept", [])
        kept.extend(value.clone() for value in outputs if isinstance(value, torch.Tensor))
        return outputs


class LeaksObjects(Interpreted):
    """Keeps a small record of every call."""

    name = "evil-leaks-objects"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        program.memory.setdefault("log", []).append([{"run": program.runs, "shapes": [list(v.shape)]} for v in outputs])
        return outputs


class LeavesTemporaryFiles(Interpreted):
    """Writes its source to the temporary folder and forgets it there."""

    name = "evil-leaves-files"

    def compiled(self, program: Program) -> None:
        descriptor, _ = tempfile.mkstemp(suffix=".evil")
        os.close(descriptor)


class LeavesThreads(Interpreted):
    """Starts a thread for each graph and never ends it."""

    name = "evil-leaves-threads"
    stop: ClassVar[threading.Event] = threading.Event()
    """Set by tests: the threads end."""

    def compiled(self, program: Program) -> None:
        threading.Thread(target=self.stop.wait, daemon=True, name="evil-worker").start()


class KeepsInputsAlive(Interpreted):
    """Holds the inputs of the last call."""

    name = "evil-keeps-inputs"

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        program.memory["inputs"] = inputs
        return outputs


class RaisesRecursionLimit(Interpreted):
    """Changes a limit of the interpreter."""

    name = "evil-recursion-limit"

    def compiled(self, program: Program) -> None:
        sys.setrecursionlimit(sys.getrecursionlimit() + 1)


class UnsafeInThreads(Interpreted):
    """Declares that threads may call it at once, and keeps the inputs of a call where the next finds them."""

    name = "evil-unsafe-in-threads"

    def receive(self, program: Program, inputs: list[Any]) -> list[Any]:
        program.memory["inputs"] = inputs
        threading.Event().wait(0.001)  # long enough for another thread to come in
        return program.memory["inputs"]

    def deliver(self, program: Program, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        return outputs
