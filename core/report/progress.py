"""Progress: one line on a terminal while a compile takes long, so that a silent program is not taken for a stuck one.

State shared between threads: the timers and depths of a Progress, under its lock. A timer thread exists only while
something compiles and the standard error stream is a terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

from ..events import CompileBegan, CompileEnded, Event, subscribe

AFTER_S = 2.0


class Progress:
    """A sink of events. It writes to sys.stderr, or to `stream`, when a compile is `after_s` seconds old."""

    def __init__(self, after_s: float = AFTER_S, stream: TextIO | None = None) -> None:
        self.after_s = after_s
        self._stream = stream
        self._lock = threading.Lock()
        self._running: dict[int, _Running] = {}  # by thread

    def __call__(self, event: Event) -> None:
        if isinstance(event, CompileBegan):
            self._begin(event)
        elif isinstance(event, CompileEnded):
            self._end()

    def _begin(self, event: CompileBegan) -> None:
        thread = threading.get_ident()
        with self._lock:
            running = self._running.get(thread)
            if running is not None:
                running.depth += 1
                return
            stream = self._stream if self._stream is not None else sys.stderr
            if not _is_terminal(stream):
                return
            running = self._running[thread] = _Running(event, stream, self._lock)
        running.start(self.after_s)

    def _end(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            running = self._running.get(thread)
            if running is None:
                return
            running.depth -= 1
            if running.depth:
                return
            del self._running[thread]
            running.finish()


class _Running:
    """The outermost compile of one thread. All but `start` and `_overdue` is called under the lock of its Progress."""

    def __init__(self, event: CompileBegan, stream: TextIO, lock: threading.Lock) -> None:
        self.depth = 1
        self.began = time.monotonic()
        self.over = self.announced = False
        self.what = event.function if event.line is None else f"{event.function} ({event.line})"
        self.stream = stream
        self.lock = lock
        self.timer: threading.Timer | None = None

    def start(self, after_s: float) -> None:
        self.timer = threading.Timer(after_s, self._overdue)
        self.timer.daemon = True
        self.timer.start()

    def _overdue(self) -> None:
        with self.lock:
            if not self.over:
                self.announced = True
                self._write(f"core: still compiling {self.what} ...")

    def finish(self) -> None:
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        if self.announced:
            self._write(f" done after {time.monotonic() - self.began:.1f} s\n")

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # the terminal is gone, or the stream was closed: nobody is left to tell
            pass


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):  # something else stands for stderr, or it was closed
        return False


_lock = threading.Lock()
_started = False


def start() -> None:
    """Watch the compiles of this process, once."""
    global _started
    with _lock:
        if not _started:
            subscribe(Progress())
            _started = True
